"""One threshold for all exits, on the confidence or on the margin: the control that learned policies have to beat."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from offramp.policy._observation import Observation
from offramp.policy._point import OperatingPoint
from offramp.policy._policy import POLICIES, Policy
from offramp.policy._tuning import Tuning

__all__ = ["MarginPolicy", "OneThreshold", "ThresholdPolicy", "spread_levels", "threshold_candidates"]

LEVELS = 512
"""Largest number of thresholds to try."""

NEVER = 2.0
"""A threshold that no confidence and no margin reaches."""


def threshold_candidates(
    confidence: Tensor,
    temperatures: Tensor,
    classifier: int,
    *,
    active: tuple[int, ...] | None = None,
    levels: int = LEVELS,
) -> list[OperatingPoint]:
    """Return points with one threshold for all exits, at quantiles of the tune samples' confidences.

    Args:
        confidence: `N x L` confidences on the tune split.
        temperatures: `L` temperatures of the exits.
        classifier: Index of the set of classifiers.
        active: The active exits; by default all.
        levels: Largest number of thresholds.

    Returns:
        Points from "all samples leave at the first exit" to "no sample leaves early".
    """
    active = tuple(range(confidence.shape[-1])) if active is None else active
    thresholds = spread_levels(confidence[:, list(active[:-1])], levels)
    return [
        OperatingPoint("threshold", {"threshold": threshold}, active, temperatures, classifier)
        for threshold in torch.cat([thresholds, thresholds.new_tensor([NEVER])])
    ]


def spread_levels(scores: Tensor, levels: int = LEVELS) -> Tensor:
    """Return distinct quantiles of the scores, ascending, from the lowest score to the highest.

    Args:
        scores: Scores of any shape.
        levels: Largest number of values.

    Example:
        >>> spread_levels(torch.tensor([0.2, 0.9, 0.2, 0.5]), 3)
        tensor([0.2000, 0.9000])
    """
    ordered = scores.flatten().sort().values
    places = torch.linspace(0, len(ordered) - 1, min(levels, len(ordered)), dtype=torch.float64).long()
    distinct: Tensor = torch.unique(ordered[places])
    return distinct


class OneThreshold(Policy):
    """A policy without a carry that compares a number between 0 and 1 with one threshold for all exits."""

    parameters = frozenset({"threshold"})
    per_exit = frozenset()
    stay_values = MappingProxyType({"threshold": NEVER})

    def initial_carry(self, _zeros: Tensor) -> Any:
        """Return no carry."""
        return ()


class ThresholdPolicy(OneThreshold):
    """A policy that leaves at the first exit whose confidence, temperature applied, reaches the threshold.

    Example:
        >>> observation = Observation(confidence=torch.tensor([0.9, 0.6]))
        >>> ThresholdPolicy().step(observation, (), {"threshold": torch.tensor(0.8)})[0]
        tensor([ True, False])
    """

    name = "threshold"
    reads = frozenset({"confidence"})

    def step(self, observation: Observation, carry: Any, parameters: Mapping[str, Tensor]) -> tuple[Tensor, Any]:
        """Leave where the confidence reaches the threshold."""
        assert observation.confidence is not None
        return observation.confidence >= parameters["threshold"], carry

    def candidates(self, tuning: Tuning) -> list[OperatingPoint]:
        """Return up to 512 thresholds, at quantiles of the tune samples' confidences."""
        temperatures = tuning.temperatures[tuning.classifier]
        return threshold_candidates(tuning.confidence, temperatures, tuning.classifier, active=tuning.active)

    def mul_adds(self, num_classes: int) -> int:
        """Count a softmax: scale, exponential and sum per class."""
        return 3 * num_classes


class MarginPolicy(OneThreshold):
    """A policy that leaves at the first exit whose two largest probabilities differ by at least the threshold.

    Example:
        >>> observation = Observation(margin=torch.tensor([0.0, 0.7]))
        >>> MarginPolicy().step(observation, (), {"threshold": torch.tensor(0.6)})[0]
        tensor([False,  True])
    """

    name = "margin"
    reads = frozenset({"margin"})

    def step(self, observation: Observation, carry: Any, parameters: Mapping[str, Tensor]) -> tuple[Tensor, Any]:
        """Leave where the margin reaches the threshold."""
        assert observation.margin is not None
        return observation.margin >= parameters["threshold"], carry

    def candidates(self, tuning: Tuning) -> list[OperatingPoint]:
        """Return up to 512 thresholds, at quantiles of the tune samples' margins."""
        thresholds = spread_levels(tuning.margin[:, list(tuning.early)])
        never = thresholds.new_tensor([NEVER])
        return [tuning.point(self.name, threshold=threshold) for threshold in torch.cat([thresholds, never])]

    def mul_adds(self, num_classes: int) -> int:
        """Count a softmax and a difference; comparisons are not counted."""
        return 3 * num_classes + 1


POLICIES.add(ThresholdPolicy.name, ThresholdPolicy())
POLICIES.add(MarginPolicy.name, MarginPolicy())
