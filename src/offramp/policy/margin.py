"""One threshold for all exits on how far the likeliest class is ahead."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from offramp.policy.point import OperatingPoint
from offramp.policy.policy import POLICIES, Observation
from offramp.policy.threshold import OneThreshold, spread_levels
from offramp.policy.tuning import Tuning

__all__ = ["MarginPolicy", "lead"]


def lead(probabilities: Tensor) -> Tensor:
    r"""How far the likeliest class is ahead of the next: $p_{(1)} - p_{(2)}$.

    Args:
        probabilities: `... x K`, K >= 2.

    Returns:
        `...` differences.

    Example:
        >>> lead(torch.tensor([0.125, 0.625, 0.25]))
        tensor(0.3750)
    """
    first, second = probabilities.topk(2, dim=-1).values.unbind(-1)
    return first - second


class MarginPolicy(OneThreshold):
    """Leave at the first exit whose two largest probabilities, temperature applied, differ by the threshold or more.

    Example:
        >>> seen = Observation(margin=lead(torch.tensor([[0.5, 0.5, 0.0], [0.8, 0.1, 0.1]])))
        >>> MarginPolicy().step(seen, (), {"threshold": torch.tensor(0.6)})[0]
        tensor([False,  True])
    """

    name = "margin"
    reads = frozenset({"margin"})

    def step(self, seen: Observation, carry: Any, parameters: Mapping[str, Tensor]) -> tuple[Tensor, Any]:
        """Leave where the margin reaches the threshold; nothing is remembered."""
        assert seen.margin is not None
        return seen.margin >= parameters["threshold"], carry

    def candidates(self, tuning: Tuning) -> list[OperatingPoint]:
        """Offer up to 512 thresholds, spread over the margins of the tune samples."""
        levels = spread_levels(tuning.margin[:, list(tuning.early)])
        never = levels.new_tensor([2.0])  # no margin reaches it
        return [tuning.point(self.name, threshold=level) for level in torch.cat([levels, never])]

    def mul_adds(self, num_classes: int) -> int:
        """A softmax and a difference; comparisons are not counted."""
        return 3 * num_classes + 1


POLICIES.add(MarginPolicy.name, MarginPolicy())
