"""Options of a fit, in groups."""

from collections.abc import Sequence
from dataclasses import dataclass

from offramp.errors import InputError
from offramp.pooling._rich import DEFAULT_POOLING
from offramp.preprocessing import Preprocessing
from offramp.runtime import LatencyTable
from offramp.uncertainty._conformal import ConformalVariant

__all__ = ["CalibrationOptions", "CostOptions", "FittingOptions"]


@dataclass(frozen=True)
class FittingOptions:
    """Options of what the exits see and where they are."""

    pooling: str = DEFAULT_POOLING
    """Name of the pooling that turns a hidden state into features."""
    max_exits: int | None = None
    """Largest number of exits per network, evenly spread over its cost; None: one after every stage. Every exit takes
    time: few are enough for a cascade, whose members answer at their ends."""
    augmented: Sequence[Preprocessing] = ()
    """Further views of the training samples; each takes one more pass of the network over them."""


@dataclass(frozen=True)
class CalibrationOptions:
    """Options of prediction sets; docs/reference/prediction-sets.md."""

    conformal: ConformalVariant = "pooled"
    """Way to calibrate prediction sets."""
    sets_by_class: bool = False
    """Calibrate sets within each class, so that they hold the true class as often in each class as overall; sets grow,
    and some dozens of validation samples per class are needed."""
    miscoverages: Sequence[float] = (0.05, 0.1)
    """Levels of prediction sets."""


@dataclass(frozen=True)
class CostOptions:
    """Options of the unit of cost."""

    latency: LatencyTable | None = None
    """Measured times of this backbone with such exits, trained or not: costs are then times, in training and in
    choosing; None: Mul-Adds."""
    batch_size: int = 1
    """Samples per batch, if costs are times."""

    def __post_init__(self) -> None:
        if self.batch_size < 1:
            raise InputError(expected="batch_size of at least 1", got=str(self.batch_size))
