"""What a method hands back."""

from dataclasses import dataclass

from torch import Tensor

from offramp.errors import InputError
from offramp.exits import ExitBank, Gates

__all__ = ["FittedExits"]


@dataclass(frozen=True)
class FittedExits:
    """Trained exits and their gates, for every cost weight.

    Example:
        >>> import torch
        >>> from offramp.exits import LinearExits
        >>> FittedExits(LinearExits((2, 2), (0,), 3), None, torch.ones(1)).trained_gates
        Traceback (most recent call last):
        offramp.errors.InputError: expected exits with gates, ... choose the policy 'threshold'
    """

    bank: ExitBank
    """The classifiers: one set a cost weight, or one for all."""
    gates: Gates | None
    """The gates, W sets; None where the method trains none."""
    cost_weights: Tensor
    """`W` prices of compute."""
    gate_policy: str = "gates"
    """Name of the policy that the gates were trained for."""

    @property
    def trained_gates(self) -> Gates:
        """The gates, where there must be some."""
        if self.gates is None:
            raise InputError(
                "expected exits with gates, got exits of a method that trains none; fit with method='default' or "
                "'paper', or choose the policy 'threshold'"
            )
        return self.gates
