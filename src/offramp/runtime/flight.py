"""Samples on their way through the network, and those who have left it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from offramp.trunk import Hidden

__all__ = ["Departed", "Flight"]


@dataclass(frozen=True)
class Flight:
    """n samples that have passed the same stages: everything that travels with them."""

    depth: int
    """Stages that have run."""
    aboard: tuple[int, ...]
    """The points that samples may be at, some of whom may have left."""
    riding: bool
    """Whether somebody who has left rides along."""
    hidden: Hidden
    """The trunk's hidden state; all else below lies samples first."""
    rows: Tensor
    """`n` numbers the caller knows the samples by."""
    sizes: Tensor
    """`n` sizes (tokens, nodes); ones where samples do not differ."""
    point: Tensor
    """`n` rows of the table of points."""
    gone: Tensor
    """`n` flags of samples that have left and ride along, where taking them out would not have paid."""
    state: Any
    """Of the exits, and of the averaging of the network's own heads."""
    carries: Mapping[str, Any]
    """What each policy remembers of the samples."""

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def luggage(self) -> tuple[Tensor, Tensor, Tensor, Tensor, Any, Mapping[str, Any]]:
        """All but the hidden state, in the order of the fields."""
        return self.rows, self.sizes, self.point, self.gone, self.state, self.carries


@dataclass(frozen=True)
class Departed:
    """m samples that have left at one exit."""

    exit: int
    """Where, 0-based."""
    rows: Tensor
    """`m` numbers the caller knows them by."""
    probabilities: Tensor
    """`m x K`, calibrated."""
