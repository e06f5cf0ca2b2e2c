"""Leave when exits have agreed for long enough."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from offramp.policy import Observation, Policy
from offramp.policy._point import OperatingPoint
from offramp.policy._tuning import Tuning

__all__ = ["POLICY", "PatiencePolicy"]


class PatiencePolicy(Policy):
    """Leave when the last `patience` + 1 exits in force predict the same class.

    The rule of PABEE [Zhou2020]. Parameters: `patience`, one whole number a point; at 0 everybody leaves at the first
    exit in force.

    Example:
        >>> policy, parameters = PatiencePolicy(), {"patience": torch.tensor(1.0)}
        >>> carry = policy.initial_carry(torch.zeros(2))
        >>> leave, carry = policy.step(Observation(prediction=torch.tensor([3, 4])), carry, parameters)
        >>> policy.step(Observation(prediction=torch.tensor([3, 5])), carry, parameters)[0]
        tensor([ True, False])
    """

    name = "patience"
    reads = frozenset({"prediction"})
    parameters = frozenset({"patience"})
    per_exit = frozenset()
    stay_values = MappingProxyType({"patience": 1e6})

    def initial_carry(self, zeros: Tensor) -> Any:
        """The class predicted last, which is none yet, and how many exits in a row have agreed with the one before."""
        return zeros.long() - 1, zeros.long()

    def step(self, seen: Observation, carry: Any, parameters: Mapping[str, Tensor]) -> tuple[Tensor, Any]:
        """Leave where as many exits as asked for have agreed with the one before."""
        assert seen.prediction is not None
        last, agreed = carry
        agreed = torch.where(seen.prediction == last, agreed + 1, 0)
        return agreed >= parameters["patience"], (seen.prediction, agreed)

    def candidates(self, tuning: Tuning) -> list[OperatingPoint]:
        """Offer every patience that lets anybody leave early, and one that lets nobody."""
        return [tuning.point(self.name, patience=torch.tensor(float(step))) for step in range(len(tuning.active))]

    def mul_adds(self, num_classes: int) -> int:
        """A comparison of each class: no softmax is needed to decide."""
        return num_classes


POLICY = PatiencePolicy()
"""The policy, as it is registered."""
