"""The same budget of tuning for every contestant: eight settings for five epochs, the best at full length."""

from dataclasses import dataclass, replace

from offramp.methods._settings import PAPER, JointSettings, spread_cost_weights
from offramp_bench.paper.tasks import Task
from offramp_bench.tracks.contestants import Training
from offramp_bench.tracks.samples import Look, widest_ladder

__all__ = ["EPOCHS", "SHORT", "TUNING_SEED", "VARIANTS", "Variant", "settings_of"]

EPOCHS = {"image": 20, "text": 45, "graph": 45}
"""Epochs of a fit in all phases, by kind of task."""

SHORT = 5
"""Epochs of a fit that compares settings."""

TUNING_SEED = 100
"""Seed of the splits and fits that settings are compared on; figures come from others."""

COST_WEIGHTS = spread_cost_weights(8)
"""Cost weights of methods that train gates; offsets of the gates fill the curve between them."""


@dataclass(frozen=True)
class Variant:
    """One setting of what is tuned."""

    learning_rate: float
    weight_decay: float
    batch_size: int
    warmup_share: float
    """Share of the epochs in which classifiers are trained alone, for methods of two phases; up to half, as in the
    paper."""
    scale_rates_by_depth: bool


VARIANTS = (
    Variant(0.01, 5e-4, 64, 1 / 3, True),  # the paper's optimiser and batch size
    Variant(0.01, 0.0, 256, 1 / 2, False),
    Variant(0.003, 5e-4, 256, 1 / 2, True),
    Variant(0.003, 0.0, 64, 1 / 3, False),
    Variant(0.003, 1e-2, 256, 1 / 3, False),
    Variant(0.001, 5e-4, 64, 1 / 2, False),
    Variant(0.001, 0.0, 256, 1 / 3, True),
    Variant(0.001, 1e-2, 64, 1 / 2, False),
)
"""The eight settings that are compared."""


def settings_of(
    task: Task, training: Training, look: Look, variant: Variant, *, epochs: int, seed: int, gates: bool
) -> JointSettings:
    """Return the settings of one fit.

    Args:
        task: The task.
        training: The way to train exits.
        look: What exits see.
        variant: What is tuned.
        epochs: Number of epochs in all phases.
        seed: Seed of the fit.
        gates: Train gates on classifiers that are not trained jointly.
    """
    warmup = max(1, round(variant.warmup_share * epochs)) if training.joint else epochs
    settings = replace(
        PAPER,
        cost_weights=COST_WEIGHTS,
        warmup_epochs=warmup,
        epochs=epochs - warmup,
        batch_size=variant.batch_size,
        learning_rate=variant.learning_rate,
        warmup_learning_rate=variant.learning_rate,
        scale_rates_by_depth=variant.scale_rates_by_depth,
        weight_decay=variant.weight_decay,
        patience=epochs,
        seed=seed,
    )
    settings = replace(settings, **training.settings)
    if settings.classifier_loss == "fixed":
        # Classifiers that stay get as many epochs as those of other methods; the gates' epochs come on top.
        settings = replace(settings, warmup_epochs=epochs, epochs=max(1, epochs // 2) if gates else 0)
    if settings.exits == "ladder":
        settings = replace(settings, ladder_width=widest_ladder(task.name, look))
    return settings
