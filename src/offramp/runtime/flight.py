"""Samples on their way through the network, and those who have left it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from offramp.backbone import Hidden

__all__ = ["Departed", "Flight"]


@dataclass(slots=True)  # not frozen: at batch 1, making frozen ones takes a noticeable share of an exit's time
class Flight:
    """n samples that have passed the same stages: everything that travels with them. Never changed once made."""

    depth: int
    """Stages that have run."""
    aboard: tuple[int, ...]
    """The points that samples may be at, some of whom may have left."""
    hidden: Hidden
    """The backbone's hidden state; all else below lies samples first."""
    rows: Tensor
    """`n` numbers the caller knows the samples by."""
    point: Tensor | None
    """`n` rows of the table of points; None where all are at its only one."""
    gone: Tensor | None
    """`n` flags of samples that have left and ride along, where taking them out would not have paid; None: nobody."""
    riding: int
    """How many those are."""
    state: Any
    """Of the exits, and of the averaging of the network's own heads."""
    carries: Mapping[str, Any]
    """What each policy remembers of the samples."""

    def __len__(self) -> int:
        return len(self.rows)


@dataclass(slots=True)
class Departed:
    """m samples that have left at one exit."""

    exit: int
    """Where, 0-based."""
    rows: Tensor
    """`m` numbers the caller knows them by."""
    probabilities: Tensor
    """`m x K`, calibrated."""
