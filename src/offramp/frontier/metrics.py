"""What a set of samples says of an operating point."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from offramp.cost import Costs
from offramp.frontier.outcomes import Outcomes
from offramp.frontier.simulate import simulate
from offramp.policy import OperatingPoint
from offramp.uncertainty import bootstrap_interval, bootstrap_ratio_interval, calibration_error

__all__ = ["Measured", "measure"]


@dataclass(frozen=True)
class Measured:
    """An operating point on one split, with 95 % bootstrap intervals over its samples."""

    accuracy: float
    """Share of right answers."""
    accuracy_interval: tuple[float, float]
    """Where it would lie on other samples of the same kind."""
    change: float
    """Accuracy minus the full network's on the same samples."""
    change_interval: tuple[float, float]
    """Of the paired difference: narrower than the accuracies' own intervals suggest."""
    relative_cost: float
    """Total spent over the total of the bare network."""
    cost_interval: tuple[float, float]
    """Of the relative cost."""
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
    bare = torch.stack([table.bare.expand(len(rows)) for table in tables])

    hits, gains = correct.double(), correct.double() - full.double()
    generator = torch.Generator().manual_seed(seed)
    # All points in one bootstrap: the same resampled rows serve every column.
    lower, upper = bootstrap_interval(torch.cat([hits, gains]).T, generator=generator)
    cheapest, dearest = bootstrap_ratio_interval(spent.T, bare.T, generator=generator)
    num_exits = seen.predictions.shape[-1]
    count = len(points)
    results = []
    for index in range(count):
        by_class = _per_class(correct[index], seen.labels, seen.num_classes)
        results.append(
            Measured(
                accuracy=float(hits[index].mean()),
                accuracy_interval=(float(lower[index]), float(upper[index])),
                change=float(gains[index].mean()),
                change_interval=(float(lower[count + index]), float(upper[count + index])),
                relative_cost=float(spent[index].sum() / bare[index].sum()),
                cost_interval=(float(cheapest[index]), float(dearest[index])),
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
