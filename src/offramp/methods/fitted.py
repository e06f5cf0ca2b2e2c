"""What a method hands back."""

from dataclasses import dataclass

from torch import Tensor

from offramp.exits import ExitBank, Gates

__all__ = ["FittedExits"]


@dataclass(frozen=True)
class FittedExits:
    """Trained exits and their gates, for every cost weight."""

    bank: ExitBank
    """The classifiers: one set a cost weight, or one for all."""
    gates: Gates
    """The gates, W sets."""
    cost_weights: Tensor
    """`W` prices of compute."""
