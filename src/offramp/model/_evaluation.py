"""Operating points measured on samples that nothing was fitted on."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from offramp._notebook import html_table
from offramp.cost import Costs
from offramp.data._labelled import LabelledData
from offramp.features import BatchSource
from offramp.features._splits import remove_overlap
from offramp.model._extraction import extracted
from offramp.model._guessing import check_not_guessing
from offramp.model._outcomes import Outcomes, simulate
from offramp.policy import OperatingPoint
from offramp.uncertainty import calibration_error
from offramp.uncertainty._intervals import bootstrap_ratio_interval, paired_interval, wilson_interval

if TYPE_CHECKING:
    from offramp.model._model import EarlyExitModel

__all__ = ["Evaluation", "Measured", "evaluate", "measure"]


@dataclass(frozen=True)
class Measured:
    """An operating point on one split, with 95 % intervals over its samples."""

    accuracy: float
    """Share of right answers."""
    accuracy_interval: tuple[float, float]
    """Wilson's interval."""
    change: float
    """Accuracy minus the full network's on the same samples."""
    change_interval: tuple[float, float]
    """Bonett and Price's interval of the paired difference."""
    relative_cost: float
    """Total spent over the total of the full network."""
    cost_interval: tuple[float, float] | None
    """Bootstrap interval over the samples; None if there is only one sample."""
    calibration_error: float
    """Expected calibration error of the answers given, 15 equal-mass bins."""
    exit_shares: tuple[float, ...]
    """Share of the samples that leave at each exit."""
    class_accuracy: tuple[float, ...]
    """Accuracy by true class; NaN for a class without samples."""
    class_change: tuple[float, ...]
    """Change of each class's accuracy against the full network."""


@dataclass(frozen=True)
class Evaluation:
    """Operating points on one set of samples."""

    samples: int
    """Number of samples."""
    full_accuracy: float
    """Accuracy of the full network on them."""
    points: tuple[OperatingPoint, ...]
    """The operating points."""
    rows: tuple[Measured, ...]
    """Measurements, one per point."""

    def __repr__(self) -> str:
        return f"Evaluation({self.samples:,} samples, {len(self.points)} points)"

    def __str__(self) -> str:
        lines = [self._title()]
        for point, row in zip(self.points, self.rows, strict=True):
            low, high = row.change_interval
            lines.append(
                f"{point.policy}: relative cost {row.relative_cost:.3f}, accuracy {100 * row.accuracy:.2f} % "
                f"({100 * row.change:+.2f} points, 95 % interval {100 * low:+.2f} to {100 * high:+.2f})"
            )
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        columns = ("policy", "relative cost", "accuracy", "change", "95 % interval")
        rows = [
            (
                point.policy,
                f"{row.relative_cost:.3f}",
                f"{100 * row.accuracy:.2f}",
                f"{100 * row.change:+.2f}",
                "{:+.2f} to {:+.2f}".format(*(100 * end for end in row.change_interval)),
            )
            for point, row in zip(self.points, self.rows, strict=True)
        ]
        return html_table(self._title(), columns, rows)

    def _title(self) -> str:
        return f"{self.samples:,} samples, full network {100 * self.full_accuracy:.2f} % right"


def evaluate(
    model: "EarlyExitModel",
    data: "LabelledData | BatchSource",
    points: Sequence[OperatingPoint],
    *,
    store: str | Path | None,
    seed: int,
    anyway: bool,
    progress: bool,
) -> Evaluation:
    """Measure operating points of a model; `EarlyExitModel.evaluate` describes the arguments."""
    with extracted(model, data, "test", store=store, progress=progress) as source:
        source = remove_overlap(source, model.splits, name="test")
        placed, answers = model.outcomes_at(points, source)
    check_not_guessing(answers.labels, answers.full, split="test", classes=model.classes, anyway=anyway)
    rows = measure(placed, answers, [model.costs[point.policy] for point in points], seed=seed)
    full_accuracy = float(answers.full_correct.double().mean())
    return Evaluation(len(answers.labels), full_accuracy, tuple(points), tuple(rows))


def measure(
    points: Sequence[OperatingPoint], answers: Outcomes, costs: Sequence[Costs], *, seed: int = 0
) -> list[Measured]:
    """Measure operating points on outcomes.

    Args:
        points: P operating points.
        answers: Outcomes of samples that nothing was fitted on.
        costs: Costs of each point's policy.
        seed: Seed of the bootstrap and of sampling policies.

    Returns:
        P measurements.
    """
    exits = simulate(points, answers, seed=seed)
    rows = torch.arange(len(answers.labels))
    classifiers = torch.tensor([point.classifier for point in points])
    correct = answers.correct[classifiers[:, None], rows, exits]
    full = answers.full_correct.expand_as(correct)
    confidence = answers.confidence[classifiers[:, None], rows, exits]
    tables = [priced.of(answers.sizes) for priced in costs]
    spent = torch.stack([t.spent(left, p.active) for p, t, left in zip(points, tables, exits, strict=True)])
    full_cost = torch.stack([table.full.expand(len(rows)) for table in tables])

    hits, gains = correct.double(), correct.double() - full.double()
    generator = torch.Generator().manual_seed(seed)
    # All points in one bootstrap: the same resampled rows serve every column.
    cheapest, dearest = bootstrap_ratio_interval(spent.T, full_cost.T, generator=generator)
    num_exits = answers.predictions.shape[-1]
    count = len(rows)
    right, gained, lost = (which.sum(1).tolist() for which in (correct, correct & ~full, ~correct & full))
    results = []
    for index in range(len(points)):
        by_class = _per_class(correct[index], answers.labels, answers.num_classes)
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
                class_change=tuple((by_class - _per_class(full[index], answers.labels, answers.num_classes)).tolist()),
            )
        )
    return results


def _per_class(hits: Tensor, labels: Tensor, num_classes: int) -> Tensor:
    """Return `K` accuracies by true class; NaN (0 / 0) for a class without samples."""
    counts = torch.bincount(labels, minlength=num_classes)
    return torch.bincount(labels, weights=hits.double(), minlength=num_classes) / counts
