"""One threshold on confidence for all exits: the control every learned policy has to beat."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from offramp.policy.point import OperatingPoint
from offramp.policy.policy import POLICIES, Observation, Policy
from offramp.policy.tuning import Tuning

__all__ = ["OneThreshold", "ThresholdPolicy", "spread_levels", "threshold_candidates"]

LEVELS = 512
"""How many thresholds at most."""


def threshold_candidates(
    confidence: Tensor,
    temperatures: Tensor,
    classifier: int,
    *,
    active: tuple[int, ...] | None = None,
    levels: int = LEVELS,
) -> list[OperatingPoint]:
    """Offer points of one threshold for all exits, at levels spread over the confidences of the tune samples.

    Args:
        confidence: `N x L` confidences on the tune split.
        temperatures: `L` temperatures of the exits.
        classifier: Which set of classifiers these are of.
        active: The exits in force; all if left out.
        levels: How many thresholds at most.

    Returns:
        Points from "everybody leaves at once" to "nobody leaves early".
    """
    active = tuple(range(confidence.shape[-1])) if active is None else active
    chosen = spread_levels(confidence[:, list(active[:-1])], levels)
    never = chosen.new_tensor([2.0])  # no confidence reaches it
    return [
        OperatingPoint("threshold", {"threshold": level}, active, temperatures, classifier)
        for level in torch.cat([chosen, never])
    ]


def spread_levels(scores: Tensor, levels: int = LEVELS) -> Tensor:
    """Return ascending values from the lowest to the highest score, about as many samples between each two.

    Args:
        scores: Scores of any shape.
        levels: How many values at most.

    Example:
        >>> spread_levels(torch.tensor([0.2, 0.9, 0.2, 0.5]), 3)
        tensor([0.2000, 0.9000])
    """
    ordered = scores.flatten().sort().values
    places = torch.linspace(0, len(ordered) - 1, min(levels, len(ordered)), dtype=torch.float64).long()
    distinct: Tensor = torch.unique(ordered[places])
    return distinct


class OneThreshold(Policy):
    """A policy with one threshold for all exits on a share from 0 to 1, and nothing to remember.

    Parameters: `threshold`, one number a point; above 1 nobody leaves early.
    """

    parameters = frozenset({"threshold"})
    per_exit = frozenset()
    staying = MappingProxyType({"threshold": 2.0})

    def initial_carry(self, zeros: Tensor) -> Any:
        """Return no carry."""
        return ()


class ThresholdPolicy(OneThreshold):
    """Leave at the first exit whose temperature-scaled confidence reaches the threshold.

    Example:
        >>> seen = Observation(confidence=torch.tensor([0.9, 0.6]))
        >>> ThresholdPolicy().step(seen, 0.0, {"threshold": torch.tensor(0.8)})[0]
        tensor([ True, False])
    """

    name = "threshold"
    reads = frozenset({"confidence"})

    def step(self, seen: Observation, carry: Any, parameters: Mapping[str, Tensor]) -> tuple[Tensor, Any]:
        """Leave where confidence reaches the threshold; nothing is remembered."""
        assert seen.confidence is not None
        return seen.confidence >= parameters["threshold"], carry

    def candidates(self, tuning: Tuning) -> list[OperatingPoint]:
        """Offer up to 512 thresholds, spread over the confidences of the tune samples."""
        temperatures = tuning.temperatures[tuning.classifier]
        return threshold_candidates(tuning.confidence, temperatures, tuning.classifier, active=tuning.active)

    def mul_adds(self, num_classes: int) -> int:
        """A softmax: scale, exponential and sum of each class."""
        return 3 * num_classes


POLICIES.add(ThresholdPolicy.name, ThresholdPolicy())
