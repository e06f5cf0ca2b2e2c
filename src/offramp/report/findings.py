"""All that a report shows, as plain numbers."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch

from offramp.errors import InputError
from offramp.features import BatchSource
from offramp.features.splits import find_overlap
from offramp.features.without import WithoutIds
from offramp.frontier import Frontier, Measured, measure
from offramp.policy import Guarantee, OperatingPoint
from offramp.report.alternatives import Alternative, alternatives, network_names
from offramp.report.answers import (
    ClassChange,
    Coverage,
    ExitUse,
    ReliabilityBin,
    Sample,
    answers_at,
    changes_by_class,
    coverages,
    leavers,
    reliability,
    uses_of_exits,
)
from offramp.report.palette import policy_colours
from offramp.uncertainty import calibration_floor

__all__ = ["VERSION", "Findings", "find"]

VERSION = 1
"""Of what `Findings.to_json` gives."""

_POINTS = 24  # of a curve: closer together than their intervals are wide


@dataclass(frozen=True)
class Findings:
    """What samples that nothing was fitted on say of a frontier, and of one point of it."""

    name: str
    """What the report is of."""
    network: str
    """The frozen network; of a cascade, all of it."""
    samples: int
    """N, how many samples."""
    classes: tuple[str, ...]
    """`K` names."""
    curves: Mapping[str, tuple[Measured, ...]]
    """Some two dozen points of each policy, from cheap to dear as the tune split had them."""
    alternatives: tuple[Alternative, ...]
    """What one could run instead: the full network first, the other networks of a cascade, then each exit for all."""
    policy: str
    """The chosen point's policy."""
    chosen: Measured
    """The chosen point."""
    exits: tuple[ExitUse, ...]
    """The exits in force there."""
    reliability: tuple[ReliabilityBin, ...]
    """Its answers by confidence, 15 bins of as many samples each."""
    calibration_floor: float
    """What the calibration error would read if confidences were right, from as many samples."""
    by_class: tuple[ClassChange, ...]
    """What it changes for each class, those that lose most first."""
    guarantee: Guarantee | None
    """What is promised of it, if it was chosen for a promise."""
    coverage: tuple[Coverage, ...]
    """How often its prediction sets hold the true class; empty where it offers none."""
    first: tuple[Sample, ...]
    """Samples that leave first."""
    last: tuple[Sample, ...]
    """Samples that leave last; none where all leave at one exit."""

    @property
    def full(self) -> Alternative:
        """The full network."""
        return self.alternatives[0]

    @property
    def better(self) -> tuple[Alternative, ...]:
        """The alternatives that beat the chosen point here: no dearer, no less accurate, and not equal in both."""

        def beats(one: Alternative) -> bool:
            saved = self.chosen.relative_cost - one.relative_cost
            return saved >= 0 and one.lead >= 0 and (saved > 0 or one.lead > 0)

        return tuple(one for one in self.alternatives if beats(one))

    def to_json(self) -> dict[str, Any]:
        """All of it as JSON has it: None for what cannot be said.

        The figures by class are given once, for the chosen point, not for every point of the curves.
        """
        content = asdict(self)
        for measured in [content["chosen"], *(point for curve in content["curves"].values() for point in curve)]:
            del measured["class_accuracy"], measured["class_change"]
        plain: dict[str, Any] = _plain({"format": "offramp findings", "version": VERSION, **content})
        return plain


def find(
    frontier: Frontier,
    source: BatchSource,
    *,
    point: OperatingPoint,
    classes: Sequence[str] = (),
    name: str | None = None,
    seed: int = 0,
) -> Findings:
    """Measure all that a report shows.

    Args:
        frontier: The frontier.
        source: Cached features of samples that nothing was fitted on: not the network, not the exits, not the point.
        point: The point to look at closely, `network.point` of a chosen network.
        classes: `K` names; those the frontier knows if left out, or their numbers.
        name: What the report is of; the network's name if left out.
        seed: Of the bootstrap and of sampling policies.

    Returns:
        The findings.

    Raises:
        SplitError: If more than 1 % of the samples were used to make the frontier; up to that they are left out with an
            `OverlapWarning`.
    """
    _check(frontier, source, point)
    ids = source.ids()
    shared = find_overlap(ids, frontier.splits, name="test")
    rows = np.delete(np.arange(len(ids)), shared)
    source = WithoutIds(source, ids[shared]) if len(shared) else source
    names = tuple(classes) or frontier.classes or tuple(map(str, range(source.num_classes)))
    if len(names) != source.num_classes:
        raise InputError(f"expected the names of {source.num_classes} classes, got {len(names)}: {names[:5]}")
    curves = {policy: _spread(frontier.points[policy]) for policy in policy_colours(frontier.points)}
    asked = [*(one for points in curves.values() for one in points), point]
    asked, seen = frontier.outcomes_at(asked, source)
    measured = measure(asked, seen, [frontier.costs[one.policy] for one in asked], seed=seed)
    found = iter(measured)
    given, classifier = answers_at(asked[-1], seen, seed=seed), asked[-1].classifier
    table = frontier.costs[point.policy].of(seen.sizes)
    first, last = (tuple(replace(one, row=int(rows[one.row])) for one in samples) for samples in leavers(given))
    generator = torch.Generator().manual_seed(seed)
    return Findings(
        name=frontier.backbone.name if name is None else name,
        network=frontier.backbone.name,
        samples=len(seen.labels),
        classes=names,
        curves={policy: tuple(next(found) for _ in points) for policy, points in curves.items()},
        alternatives=alternatives(frontier.backbone, source, seen, table, given, classifier=classifier),
        policy=point.policy,
        chosen=measured[-1],
        exits=uses_of_exits(given, seen.correct[classifier], point.active, network_names(frontier.backbone)),
        reliability=reliability(given),
        calibration_floor=float(calibration_floor(given.confidence, generator=generator)),
        by_class=changes_by_class(given, names),
        guarantee=point.guarantee,
        coverage=coverages(given, point.conformal_thresholds),
        first=first,
        last=last,
    )


def _check(frontier: Frontier, source: BatchSource, point: OperatingPoint) -> None:
    if not hasattr(source, "in_order"):
        raise InputError(
            f"find takes cached features, got {type(source).__name__}; extract(frontier.backbone, ...) the samples "
            "into a store and give StoreSource(store, pooling=...)"
        )
    if point.policy not in frontier.points or point.classifier >= frontier.bank.stacked:
        raise InputError(
            f"the point, of policy '{point.policy}' and classifiers {point.classifier}, is not of this frontier; give "
            "frontier.choose(...).point"
        )


def _spread(points: Sequence[OperatingPoint]) -> list[OperatingPoint]:
    """Some two dozen of the points, the first and the last among them."""
    steps = range(_POINTS)
    return [points[index] for index in sorted({round(step * (len(points) - 1) / (_POINTS - 1)) for step in steps})]


def _plain(value: Any) -> Any:
    """Lists for tuples, None for NaN."""
    if isinstance(value, Mapping):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
