"""PABEE: leave when enough exits in a row agree."""

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
    """A policy that leaves when the last `patience` + 1 active exits predict the same class.

    The rule of PABEE [Zhou2020]. Parameters: `patience`, one whole number per point; at 0 all samples leave at the
    first active exit.

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
        """Return class -1, which no exit predicts, and 0 agreements in a row."""
        return zeros.long() - 1, zeros.long()

    def step(self, observation: Observation, carry: Any, parameters: Mapping[str, Tensor]) -> tuple[Tensor, Any]:
        """Leave where the number of agreements in a row reaches the patience."""
        assert observation.prediction is not None
        last, agreements = carry
        agreements = torch.where(observation.prediction == last, agreements + 1, 0)
        return agreements >= parameters["patience"], (observation.prediction, agreements)

    def candidates(self, tuning: Tuning) -> list[OperatingPoint]:
        """Return every patience at which samples can leave early, and one at which none can."""
        return [tuning.point(self.name, patience=torch.tensor(float(step))) for step in range(len(tuning.active))]

    def mul_adds(self, num_classes: int) -> int:
        """Count a comparison per class; the decision needs no softmax."""
        return num_classes


POLICY = PatiencePolicy()
"""The registered policy."""
