"""How exits are fitted: one dataclass, two presets."""

from dataclasses import dataclass
from typing import Literal, get_args

from offramp.errors import InputError
from offramp.functional import ClassifierLoss, GateTarget
from offramp.registry import unknown_name

__all__ = ["DEFAULT", "PAPER", "ClassifierTraining", "ExitKind", "JointSettings", "spread_cost_weights"]

ExitKind = Literal["linear", "cumulative", "ladder"]
ClassifierTraining = ClassifierLoss | Literal["fixed"]


def spread_cost_weights(count: int = 16, *, lowest: float = 0.01, highest: float = 10.0) -> tuple[float, ...]:
    """Cost weights, evenly spread on a logarithmic scale over the paper's range.

    Args:
        count: How many.
        lowest: The smallest: hardly anybody leaves early.
        highest: The largest: nearly everybody does.

    Example:
        >>> spread_cost_weights(3)
        (0.01, 0.31622776601683794, 10.0)
    """
    ratio = highest / lowest
    return tuple(lowest * ratio ** (index / max(1, count - 1)) for index in range(count))


@dataclass(frozen=True)
class JointSettings:
    """Settings of `fit_joint`."""

    exits: ExitKind = "linear"
    """What the classifiers are: linear on their stage (the paper), linear on all stages so far, or a ladder."""
    classifier_loss: ClassifierTraining = "weighted"
    """How classifiers go on learning beside the gates; "fixed": not at all, only the gates do."""
    gate_target: GateTarget = "exit_subsequent"
    """What a gate is asked to say."""
    imbalance: bool = True
    """Weight the gates' positives by their rarity on the tune split."""
    cost_weights: tuple[float, ...] = spread_cost_weights()
    """The prices of compute, lambda: one operating regime each."""
    warmup_epochs: int = 5
    """Epochs in which all classifiers learn on all samples."""
    epochs: int = 10
    """Epochs of alternation between gates and classifiers."""
    switch_every: int = 50
    """Batches between the two; gates come first. The released code's 200 batches of 64 samples."""
    batch_size: int = 256
    """Samples a step, at most."""
    least_steps: int = 1
    """Steps an epoch at least: with few samples they are made smaller, down to 32 samples."""
    learning_rate: float = 0.01
    """Of gates and classifiers while they alternate (Adam)."""
    warmup_learning_rate: float = 0.01
    """Of the classifiers during warm-up: lr_0 of the paper where rates are scaled by depth."""
    scale_rates_by_depth: bool = True
    """During warm-up, exit l of L learns at (L - l) times the rate, as in the paper: early exits need more."""
    weight_decay: float = 5e-4
    """L2 penalty (Adam), or decay (AdamW, ladder)."""
    patience: int = 5
    """Epochs without improvement on the tune split, for any cost weight, before stopping."""
    ladder_width: int | None = None
    """Numbers in the ladder's state; None: two a class, at least 64, at most 256."""
    dropout: float = 0.1
    """Of the ladder, while training."""
    seed: int = 0
    """Every random number follows from it."""

    def __post_init__(self) -> None:
        for name, value, known in (
            ("exits", self.exits, get_args(ExitKind)),
            ("classifier_loss", self.classifier_loss, (*get_args(ClassifierLoss), "fixed")),
            ("gate_target", self.gate_target, get_args(GateTarget)),
        ):
            if value not in known:
                raise unknown_name(name, value, known)
        if not self.cost_weights or min(self.cost_weights) < 0:
            raise InputError(f"cost_weights must be at least one number >= 0, got {self.cost_weights}")
        if self.ladder_width is not None and self.ladder_width < 1:
            raise InputError(
                f"ladder_width must be at least 1, or None for two numbers a class; got {self.ladder_width}"
            )
        counts = (self.switch_every, self.batch_size, self.least_steps, self.patience)
        if min(self.warmup_epochs, self.epochs) < 0 or min(counts) < 1:
            raise InputError(
                "warmup_epochs and epochs must be >= 0, switch_every, batch_size, least_steps and patience >= 1; got "
                f"{self.warmup_epochs}, {self.epochs}, {', '.join(map(str, counts))}"
            )

    def state_width(self, num_classes: int) -> int:
        """Numbers in the ladder's state.

        Args:
            num_classes: K.

        Example:
            >>> [DEFAULT.state_width(classes) for classes in (2, 10, 100, 1000)]
            [64, 64, 200, 256]
        """
        # With fewer numbers than classes late exits fall behind linear ones; wider states cost more than they bring.
        return min(256, max(64, 2 * num_classes)) if self.ladder_width is None else self.ladder_width

    def samples_a_step(self, samples: int) -> int:
        """How many of so many samples are taken at a time.

        Example:
            >>> DEFAULT.samples_a_step(100_000), DEFAULT.samples_a_step(2_000)
            (512, 50)
        """
        return min(self.batch_size, max(32, samples // self.least_steps))


PAPER = JointSettings()
"""The paper's method: linear exits, weighted loss, gates and classifiers in turn."""

DEFAULT = JointSettings(
    exits="ladder",
    classifier_loss="fixed",
    warmup_epochs=8,
    epochs=2,
    batch_size=512,
    least_steps=40,
    warmup_learning_rate=3e-3,
    scale_rates_by_depth=False,
    weight_decay=0.01,
)
"""What `offramp.fit` does unless told otherwise: a ladder learned on all samples, then gates for every cost weight."""
