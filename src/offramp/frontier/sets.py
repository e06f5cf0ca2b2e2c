"""Prediction sets of operating points, from where calibrate samples leave at each."""

from collections.abc import Sequence
from dataclasses import replace

from torch import Tensor

from offramp.frontier.outcomes import Outcomes
from offramp.frontier.simulate import simulate
from offramp.policy import OperatingPoint
from offramp.uncertainty import ConformalVariant, class_thresholds, conformal_thresholds

__all__ = ["with_sets"]


def with_sets(
    points: Sequence[OperatingPoint],
    seen: Outcomes,
    variant: ConformalVariant,
    miscoverages: Sequence[float],
    *,
    by_class: bool,
) -> list[OperatingPoint]:
    """Points with the conformal thresholds of each.

    Args:
        points: Operating points, their classifiers as the outcomes have them.
        seen: Outcomes of calibrate samples, with true labels.
        variant: How sets are calibrated: docs/conformal.md.
        miscoverages: Offered levels.
        by_class: Whether sets are calibrated within each class.
    """

    def thresholds(scores: Tensor, left: Tensor, miscoverage: float) -> Tensor:
        if not by_class:
            return conformal_thresholds(variant, scores, left, miscoverage=miscoverage)
        return class_thresholds(
            variant, scores, left, seen.labels, num_classes=seen.num_classes, miscoverage=miscoverage
        )

    return [
        replace(
            point,
            conformal_thresholds={
                miscoverage: thresholds(seen.conformal_scores[point.classifier], left, miscoverage)
                for miscoverage in miscoverages
            },
        )
        for point, left in zip(points, simulate(points, seen), strict=True)
    ]
