"""A threshold on confidence for each exit."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from offramp.policy.policy import POLICIES, Observation, Policy

__all__ = ["ExitThresholdsPolicy"]


class ExitThresholdsPolicy(Policy):
    """Leave at the first exit whose temperature-scaled confidence reaches that exit's own threshold.

    The rule of MSDNet [Huang2018], and with it of BoostedNet and L2W-DEN. Parameters: `threshold`, one an exit; above 1
    nobody leaves there.

    Example:
        >>> import torch
        >>> seen = Observation(confidence=torch.tensor([0.9, 0.6]))
        >>> ExitThresholdsPolicy().step(seen, (), {"threshold": torch.tensor(0.8)})[0]
        tensor([ True, False])
    """

    name = "exit_thresholds"
    reads = frozenset({"confidence"})
    parameters = frozenset({"threshold"})
    per_exit = frozenset({"threshold"})

    def initial_carry(self, zeros: Tensor) -> Any:
        """Nothing."""
        return ()

    def step(self, seen: Observation, carry: Any, parameters: Mapping[str, Tensor]) -> tuple[Tensor, Any]:
        """Leave where confidence reaches the threshold; nothing is remembered."""
        assert seen.confidence is not None
        return seen.confidence >= parameters["threshold"], carry

    def mul_adds(self, num_classes: int) -> int:
        """A softmax, as for one threshold."""
        return 3 * num_classes


POLICIES.add(ExitThresholdsPolicy.name, ExitThresholdsPolicy())
