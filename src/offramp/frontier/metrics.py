"""What a set of samples says of an operating point."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from offramp.cost import Costs
from offramp.frontier.outcomes import Outcomes
from offramp.frontier.simulate import simulate
from offramp.policy import OperatingPoint
from offramp.uncertainty import bootstrap_ratio_interval, calibration_error, paired_interval, wilson_interval

__all__ = ["Measured", "measure"]


@dataclass(frozen=True)
class Measured:
    """An operating point on one split, with 95 % intervals over its samples."""

    accuracy: float
    """Share of right answers."""
    accuracy_interval: tuple[float, float]
    """Where it would lie on other samples of the same kind: Wilson's."""
    change: float
    """Accuracy minus the full network's on the same samples."""
    change_interval: tuple[float, float]
    """Bonett and Price's, of the paired difference: narrower than the accuracies' own intervals suggest."""
    relative_cost: float
    """Total spent over the total of the full network."""
    cost_interval: tuple[float, float] | None
    """By bootstrap over the samples; None where there is one sample, which says nothing of others."""
    calibration_error: float
    """Expected calibration error of the answers given, 15 equal-mass bins."""
    exit_shares: tuple[float, ...]
    """Share of the samples that leave at each exit."""
    class_accuracy: tuple[float, ...]
    """Accuracy by true class; NaN for a class without samples."""
    class_change: tuple[float, ...]
    """Its change against the full network: who pays for the saving."""


def measure(
    points: Sequence[OperatingPoint], seen: Outcomes, costs: Sequence[Costs], *, seed: int = 0
) -> list[Measured]:
    """Measure operating points on outcomes.

    Args:
        points: P operating points.
        seen: Outcomes of samples that nothing was fitted on, if the figures are to be believed.
        costs: Those of each point's policy.
        seed: Of the bootstrap and of sampling policies.

    Returns:
        P measurements.
    """
    exits = simulate(points, seen, seed=seed)
    rows = torch.arange(len(seen.labels))
    classifiers = torch.tensor([point.classifier for point in points])
    correct = seen.correct[classifiers[:, None], rows, exits]
    full = seen.full_correct.expand_as(correct)
    confidence = seen.confidence[classifiers[:, None], rows, exits]
    tables = [priced.of(seen.sizes) for priced in costs]
    spent = torch.stack([t.spent(left, p.active) for p, t, left in zip(points, tables, exits, strict=True)])
    full_cost = torch.stack([table.full.expand(len(rows)) for table in tables])

    hits, gains = correct.double(), correct.double() - full.double()
    generator = torch.Generator().manual_seed(seed)
    # All points in one bootstrap: the same resampled rows serve every column.
    cheapest, dearest = bootstrap_ratio_interval(spent.T, full_cost.T, generator=generator)
    num_exits = seen.predictions.shape[-1]
    count = len(rows)
    right, gained, lost = (which.sum(1).tolist() for which in (correct, correct & ~full, ~correct & full))
    results = []
    for index in range(len(points)):
        by_class = _per_class(correct[index], seen.labels, seen.num_classes)
        results.append(
            Measured(
                accuracy=float(hits[index].mean()),
                accuracy_interval=wilson_interval(right[index], count),
                change=float(gains[index].mean()),
                change_interval=paired_interval(gained[index], lost[index], count),
                relative_cost=float(spent[index].sum() / full_cost[index].sum()),
                cost_interval=(float(cheapest[index]), float(dearest[index])) if count > 1 else None,
                calibration_error=float(calibration_error(confidence[index].clamp_max(1), correct[index])),
                exit_shares=tuple((torch.bincount(exits[index], minlength=num_exits) / len(rows)).tolist()),
                class_accuracy=tuple(by_class.tolist()),
                class_change=tuple((by_class - _per_class(full[index], seen.labels, seen.num_classes)).tolist()),
            )
        )
    return results


def _per_class(hits: Tensor, labels: Tensor, num_classes: int) -> Tensor:
    """`K` accuracies by true class; NaN (0 / 0) for a class without samples."""
    counts = torch.bincount(labels, minlength=num_classes)
    return torch.bincount(labels, weights=hits.double(), minlength=num_classes) / counts
