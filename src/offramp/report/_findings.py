"""The numbers of a report."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch

from offramp.cost._unit import CostUnit
from offramp.errors import InputError
from offramp.features import BatchSource
from offramp.features._batch import FilteredSource
from offramp.features._splits import find_overlap
from offramp.model._evaluation import Measured, measure
from offramp.model._model import EarlyExitModel
from offramp.policy import Guarantee, OperatingPoint
from offramp.report._alternatives import Alternative, alternatives, network_names
from offramp.report._answers import (
    ClassChange,
    Coverage,
    ExitUse,
    ReliabilityBin,
    Sample,
    answers_at,
    changes_by_class,
    coverages,
    exit_uses,
    leavers,
    reliability,
)
from offramp.report._frontier import FrontierPoint, list_reachable_points
from offramp.report._palette import policy_colours
from offramp.runtime._dial import same_decisions
from offramp.uncertainty._calibration import calibration_floor

__all__ = ["VERSION", "Findings", "find"]

VERSION = 1
"""Version of the format of `Findings.to_json`."""

_POINTS = 24  # per curve: closer together than their intervals are wide


@dataclass(frozen=True)
class Findings:
    """Measurements of a model and of one operating point on held-out samples."""

    name: str
    """Title of the report."""
    network: str
    """Name of the frozen network or cascade."""
    samples: int
    """N, the number of samples."""
    classes: tuple[str, ...]
    """`K` names."""
    cost_kind: str
    """The unit that costs are shares of."""
    unit: CostUnit
    """The same, with the full network's cost per sample, averaged over these samples."""
    curves: Mapping[str, tuple[Measured, ...]]
    """About two dozen points of each policy, and the frontier, in the order of their cost on the tune split."""
    frontier: tuple[FrontierPoint, ...]
    """Points of the chosen point's policy that a request gets, and the chosen point, ascending in cost."""
    alternatives: tuple[Alternative, ...]
    """Networks without early exits: the full network first, the other networks of a cascade, then each exit for all."""
    networks: tuple[str, ...]
    """`L` names, of the network that each stage belongs to; a cascade has several."""
    policy: str
    """The chosen point's policy."""
    chosen: Measured
    """The chosen point."""
    exits: tuple[ExitUse, ...]
    """The active exits there."""
    reliability: tuple[ReliabilityBin, ...]
    """Its answers by confidence, 15 bins of as many samples each."""
    calibration_floor: float
    """Expected calibration error of perfectly calibrated confidences, with as many samples."""
    by_class: tuple[ClassChange, ...]
    """Its change for each class, largest loss first."""
    guarantee: Guarantee | None
    """Its guarantee, if it was chosen for one."""
    coverage: tuple[Coverage, ...]
    """Coverage of its prediction sets; empty if it has none."""
    first: tuple[Sample, ...]
    """Samples that leave first."""
    last: tuple[Sample, ...]
    """Samples that leave last; empty if all leave at one exit."""

    @property
    def full(self) -> Alternative:
        """The full network."""
        return self.alternatives[0]

    @property
    def better(self) -> tuple[Alternative, ...]:
        """The alternatives that beat the chosen point: no more expensive, no less accurate, and not equal in both."""

        def beats(other: Alternative) -> bool:
            saving = self.chosen.relative_cost - other.relative_cost
            return saving >= 0 and other.lead >= 0 and (saving > 0 or other.lead > 0)

        return tuple(other for other in self.alternatives if beats(other))

    def to_json(self) -> dict[str, Any]:
        """Return the findings as JSON content, None for undefined numbers.

        Figures by class are included for the chosen point only.
        """
        content = asdict(self)
        curves = (point for curve in content["curves"].values() for point in curve)
        for measured in [content["chosen"], *(point["measured"] for point in content["frontier"]), *curves]:
            del measured["class_accuracy"], measured["class_change"]
        plain: dict[str, Any] = _plain({"format": "offramp findings", "version": VERSION, **content})
        return plain


def find(
    model: EarlyExitModel,
    source: BatchSource,
    *,
    point: OperatingPoint,
    classes: Sequence[str] = (),
    name: str | None = None,
    seed: int = 0,
) -> Findings:
    """Measure everything that a report shows.

    Args:
        model: The model.
        source: Cached features of held-out samples, on which neither network, exits nor point were fitted.
        point: The operating point to report in detail, `model.at(...).point`.
        classes: `K` names; the model's own if left out, or numbers.
        name: Title of the report; the network's name if left out.
        seed: Seed of the bootstrap and of sampling policies.

    Returns:
        The findings.

    Raises:
        SplitError: If more than 1 % of the samples were used to fit the model; up to 1 % are left out with an
            `OverlapWarning`.
    """
    _check(model, source, point)
    ids = source.ids()
    shared = find_overlap(ids, model.splits, name="test")
    rows = np.delete(np.arange(len(ids)), shared)
    source = FilteredSource(source, ids[shared]) if len(shared) else source
    names = tuple(classes) or model.classes or tuple(map(str, range(source.num_classes)))
    if len(names) != source.num_classes:
        raise InputError("classes", expected=f"{source.num_classes} names", got=f"{len(names)}: {names[:5]}")
    reachable = list_reachable_points(model, point)
    curves = {policy: _spread(model.points[policy]) for policy in policy_colours(model.points)}
    curves[point.policy] = _merge([entry.point for entry in reachable], curves[point.policy])
    points = [member for curve in curves.values() for member in curve]
    placed, outcomes = model.outcomes_at(points, source)
    measured = measure(placed, outcomes, [model.costs[member.policy] for member in points], seed=seed)
    figures = {id(member): row for member, row in zip(points, measured, strict=True)}
    frontier = [FrontierPoint.of(entry, figures[id(entry.point)]) for entry in reachable]
    # The same point with the index of its classifiers in the outcomes.
    answering = next(other for member, other in zip(points, placed, strict=True) if member is point)
    answers, classifier = answers_at(answering, outcomes, seed=seed), answering.classifier
    table = model.costs[point.policy].of(outcomes.sizes)
    first, last = (tuple(replace(sample, row=int(rows[sample.row])) for sample in group) for group in leavers(answers))
    generator = torch.Generator().manual_seed(seed)
    return Findings(
        name=model.backbone.name if name is None else name,
        network=model.backbone.name,
        samples=len(outcomes.labels),
        classes=names,
        cost_kind=_cost_kind(model.unit),
        unit=model.unit
        if model.unit.full is None
        else replace(model.unit, full=float(model.costs[point.policy].average(outcomes.sizes).full)),
        curves={policy: tuple(figures[id(member)] for member in curve) for policy, curve in curves.items()},
        frontier=tuple(sorted(frontier, key=lambda entry: entry.measured.relative_cost)),
        alternatives=alternatives(model.backbone, source, outcomes, table, answers, classifier=classifier),
        networks=network_names(model.backbone),
        policy=point.policy,
        chosen=figures[id(point)],
        exits=exit_uses(answers, outcomes.correct[classifier], point.active, network_names(model.backbone)),
        reliability=reliability(answers),
        calibration_floor=float(calibration_floor(answers.confidence, generator=generator)),
        by_class=changes_by_class(answers, names),
        guarantee=point.guarantee,
        coverage=coverages(answers, point.conformal_thresholds),
        first=first,
        last=last,
    )


def _cost_kind(unit: CostUnit) -> str:
    if unit.is_money:
        return unit.name
    return "counted Mul-Adds" if unit.full is None else "measured time"


def _check(model: EarlyExitModel, source: BatchSource, point: OperatingPoint) -> None:
    if not hasattr(source, "in_order"):
        raise InputError(
            expected="cached features",
            got=type(source).__name__,
            hint="extract(model.feature_backbone, ...) the samples into a store, and give StoreSource(store, "
            "pooling=...)",
        )
    if point.policy not in model.points or point.classifier >= model.exits.stacked:
        raise InputError(
            expected="an operating point of this model",
            got=f"a point of policy '{point.policy}' and classifiers {point.classifier}",
            hint="give model.at(...).point",
        )


def _spread(points: Sequence[OperatingPoint]) -> list[OperatingPoint]:
    """Return about two dozen of the points, with the first and the last."""
    steps = range(_POINTS)
    return [points[index] for index in sorted({round(step * (len(points) - 1) / (_POINTS - 1)) for step in steps})]


def _merge(points: Sequence[OperatingPoint], others: Sequence[OperatingPoint]) -> list[OperatingPoint]:
    """Return points and those of the others that decide otherwise, ascending in cost on the tune split."""
    more = [other for other in others if not any(same_decisions(other, point) for point in points)]
    return sorted([*points, *more], key=lambda point: point.tune_metrics.get("cost", 0.0))


def _plain(value: Any) -> Any:
    """Replace tuples by lists and NaN by None."""
    if isinstance(value, Mapping):
        return {key: _plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
