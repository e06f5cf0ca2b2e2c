"""One threshold on confidence for all exits: the control every learned policy has to beat."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from offramp.policy.policy import POLICIES, Observation, Policy

__all__ = ["ThresholdPolicy"]


class ThresholdPolicy(Policy):
    """Leave at the first exit whose temperature-scaled confidence reaches the threshold.

    Parameters: `threshold`, one number a point; above 1 nobody leaves early.

    Example:
        >>> import torch
        >>> seen = Observation(confidence=torch.tensor([0.9, 0.6]))
        >>> ThresholdPolicy().step(seen, 0.0, {"threshold": torch.tensor(0.8)})[0]
        tensor([ True, False])
    """

    name = "threshold"
    reads = frozenset({"confidence"})
    parameters = frozenset({"threshold"})
    per_exit = frozenset()

    def initial_carry(self, zeros: Tensor) -> Any:
        """Nothing."""
        return ()

    def step(self, seen: Observation, carry: Any, parameters: Mapping[str, Tensor]) -> tuple[Tensor, Any]:
        """Leave where confidence reaches the threshold; nothing is remembered."""
        assert seen.confidence is not None
        return seen.confidence >= parameters["threshold"], carry

    def mul_adds(self, num_classes: int) -> int:
        """A softmax: scale, exponential and sum of each class."""
        return 3 * num_classes


POLICIES.add(ThresholdPolicy.name, ThresholdPolicy())
