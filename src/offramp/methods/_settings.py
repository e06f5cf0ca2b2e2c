"""Settings of `fit_joint`: one dataclass, two presets."""

from dataclasses import dataclass
from typing import Literal, get_args

from offramp._registry import unknown_name
from offramp.errors import InputError
from offramp.functional._objective import ClassifierLoss, GateTarget

__all__ = ["DEFAULT", "PAPER", "ClassifierTraining", "ExitKind", "JointSettings", "spread_cost_weights"]

ExitKind = Literal["linear", "cumulative", "ladder"]
ClassifierTraining = ClassifierLoss | Literal["fixed"]


def spread_cost_weights(count: int = 16) -> tuple[float, ...]:
    """Return cost weights from 0.01 to 10, the paper's range, evenly spread on a logarithmic scale.

    Example:
        >>> spread_cost_weights(3)
        (0.01, 0.31622776601683794, 10.0)
    """
    return tuple(0.01 * 1000.0 ** (index / max(1, count - 1)) for index in range(count))


@dataclass(frozen=True)
class JointSettings:
    """Settings of `fit_joint`."""

    exits: ExitKind = "linear"
    """Kind of the classifiers: linear on their stage (the paper), linear on all stages so far, or a ladder."""
    classifier_loss: ClassifierTraining = "weighted"
    """Loss of the classifiers while gates are trained; "fixed": classifiers stay as they are."""
    distillation: float = 0.0
    """Share of the network's own answers, beside the labels, in the loss of the warm-up: 0 to 1."""
    gate_target: GateTarget = "exit_subsequent"
    """Binary target of the gates."""
    imbalance: bool = True
    """Weight the gates' positives by their rarity on the tune split."""
    cost_weights: tuple[float, ...] = spread_cost_weights()
    """The prices of compute, lambda; gates are trained for each."""
    warmup_epochs: int = 5
    """Epochs in which all classifiers are trained on all samples."""
    epochs: int = 10
    """Epochs of alternation between gates and classifiers; 0: no gates are trained."""
    switch_every: int = 50
    """Batches before gates and classifiers swap, at most half an epoch; gates come first. 50 x 256 are as many samples
    as the released code's 200 x 64."""
    batch_size: int = 256
    """Largest number of samples per step."""
    least_steps: int = 1
    """Fewest steps per epoch: with few samples, steps take fewer of them, down to 32."""
    learning_rate: float = 0.01
    """Learning rate of gates and classifiers while they alternate (Adam)."""
    warmup_learning_rate: float = 0.01
    """Learning rate of the classifiers during warm-up; the paper's lr_0 where rates are scaled by depth."""
    scale_rates_by_depth: bool = True
    """Multiply the warm-up rate of exit l of L by L - l, as in the paper."""
    weight_decay: float = 5e-4
    """L2 penalty (Adam), or decoupled decay (AdamW, for the ladder)."""
    patience: int = 5
    """Epochs without improvement on the tune split, for any cost weight, before the fit stops."""
    ladder_width: int | None = None
    """Size of the ladder's state; None: two numbers per class, at least 64, at most 256."""
    dropout: float = 0.1
    """Dropout of the ladder in training."""
    seed: int = 0
    """Seed of all random numbers."""

    def __post_init__(self) -> None:
        for name, value, known in (
            ("exits", self.exits, get_args(ExitKind)),
            ("classifier_loss", self.classifier_loss, (*get_args(ClassifierLoss), "fixed")),
            ("gate_target", self.gate_target, get_args(GateTarget)),
        ):
            if value not in known:
                raise unknown_name(name, value, known)
        if not self.cost_weights or min(self.cost_weights) < 0:
            raise InputError("cost_weights", expected="at least one number, none below 0", got=self.cost_weights)
        if not 0 <= self.distillation <= 1:
            raise InputError("distillation", expected="a share from 0 to 1", got=self.distillation)
        if self.ladder_width is not None and self.ladder_width < 1:
            expected = "at least 1, or None for two numbers per class"
            raise InputError("ladder_width", expected=expected, got=self.ladder_width)
        least = {"warmup_epochs": 0, "epochs": 0, "switch_every": 1, "batch_size": 1, "least_steps": 1, "patience": 1}
        for name, smallest in least.items():
            if getattr(self, name) < smallest:
                raise InputError(name, expected=f"at least {smallest}", got=getattr(self, name))

    def state_width(self, num_classes: int) -> int:
        """Return the size of the ladder's state for K classes.

        Example:
            >>> [DEFAULT.state_width(classes) for classes in (2, 10, 100, 1000)]
            [64, 64, 200, 256]
        """
        # With fewer numbers than classes, late exits are worse than linear ones; wider states cost more than they gain.
        return min(256, max(64, 2 * num_classes)) if self.ladder_width is None else self.ladder_width

    def samples_per_step(self, samples: int) -> int:
        """Return the batch size for a training set of some number of samples.

        Example:
            >>> DEFAULT.samples_per_step(100_000), DEFAULT.samples_per_step(2_000)
            (512, 50)
        """
        return min(self.batch_size, max(32, samples // self.least_steps))


PAPER = JointSettings()
"""The paper's method: linear exits, weighted loss, gates and classifiers alternating."""

DEFAULT = JointSettings(
    exits="ladder",
    classifier_loss="fixed",
    distillation=0.5,
    warmup_epochs=10,
    epochs=0,
    batch_size=512,
    least_steps=40,
    warmup_learning_rate=3e-3,
    scale_rates_by_depth=False,
    weight_decay=0.01,
)
"""The default of `offramp.fit`: a ladder trained on all samples, on their labels and the network's own answers."""
