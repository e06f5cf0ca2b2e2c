"""From candidates to the operating points of a frontier: pruned exits, thinned points, prediction sets."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from offramp.cost import Costs
from offramp.methods import FittedExits
from offramp.model._frontier import Contribution, area
from offramp.model._outcomes import Outcomes, exit_shares, simulate
from offramp.policy import OperatingPoint, Tuning
from offramp.policy._threshold import threshold_candidates
from offramp.uncertainty import conformal_thresholds
from offramp.uncertainty._conformal import ConformalVariant, class_thresholds

__all__ = ["COST_STEP", "LEVELS", "paying_exits", "thin", "tuning_of", "with_sets"]

COST_STEP = 0.005
"""Distance between points, in relative cost."""

AT_ONCE = 256
"""Points simulated together."""

LEVELS = 128
"""Thresholds tried for each set of exits: less than a point of cost apart on average, fine enough to rank sets."""


def thin(points: Sequence[OperatingPoint], answers: Outcomes, costs: Costs) -> list[OperatingPoint]:
    """Keep the most accurate point of each interval of cost, and the cheapest of all, with their figures on tune.

    Args:
        points: Candidates of one policy.
        answers: Outcomes on the tune split.
        costs: Costs of the policy.

    Returns:
        Points in ascending order of cost, with `cost` and `accuracy` in `tune_metrics`, and the shares that leave at
        each exit.
    """
    best_points = _best_by_cost(points, answers, costs)
    leaving = exit_shares(simulate(best_points, answers), answers, powers=len(costs.tables))
    return [replace(point, leaving=shares) for point, shares in zip(best_points, leaving, strict=True)]


def _best_by_cost(points: Sequence[OperatingPoint], answers: Outcomes, costs: Costs) -> list[OperatingPoint]:
    """Return the points that `thin` keeps, with `cost` and `accuracy` in `tune_metrics`."""
    best: dict[int, _Measured] = {}
    cheapest: _Measured | None = None
    rows = torch.arange(len(answers.labels))
    table = costs.of(answers.sizes)
    for point, left in _simulated(points, answers):
        cost = float(table.relative_cost(left, point.active))
        accuracy = float(answers.correct[point.classifier, rows, left].double().mean())
        measured = _Measured(accuracy, -cost, point)
        if cheapest is None or cost < -cheapest.minus_cost:
            cheapest = measured
        step = int(cost / COST_STEP)
        if step not in best or measured[:2] > best[step][:2]:
            best[step] = measured
    best_points = [best[step] for step in sorted(best)]
    if cheapest is not None and cheapest.minus_cost > best_points[0].minus_cost:
        best_points = [cheapest, *best_points]  # the smallest budget can be met, though a little more buys much
    return [
        replace(point, tune_metrics={"cost": -minus_cost, "accuracy": accuracy})
        for accuracy, minus_cost, point in best_points
    ]


class _Measured(NamedTuple):
    """A point with its figures on tune, ranked by accuracy, then by cost."""

    accuracy: float
    minus_cost: float
    point: OperatingPoint


def _simulated(points: Sequence[OperatingPoint], answers: Outcomes) -> Iterator[tuple[OperatingPoint, Tensor]]:
    """Yield each point with the exits of all samples, some points at a time: there may be thousands."""
    for start in range(0, len(points), AT_ONCE):
        some = points[start : start + AT_ONCE]
        yield from zip(some, simulate(some, answers), strict=True)


def paying_exits(
    answers: Outcomes, temperatures: Tensor, classifier: int, costs: Costs, *, needed: Collection[int]
) -> tuple[tuple[int, ...], list[Contribution]]:
    """Drop the exits that do not raise the accuracy of a global threshold.

    Args:
        answers: Outcomes on the tune split.
        temperatures: `W x L`.
        classifier: Place of the set of classifiers.
        costs: Costs of thresholds.
        needed: Exits that must stay, whatever their gain.

    Returns:
        The exits that stay, the final one among them, and the gain of each early exit.
    """

    def curve_area(active: Sequence[int]) -> float:
        points = threshold_candidates(
            answers.confidence[classifier], temperatures[classifier], classifier, active=tuple(active), levels=LEVELS
        )
        return area(_best_by_cost(points, answers, costs))

    active = list(range(answers.predictions.shape[-1]))
    best_area = curve_area(active)
    gains = {exit: best_area - curve_area([other for other in active if other != exit]) for exit in active[:-1]}
    for exit in sorted(gains, key=lambda exit: gains[exit]):
        if gains[exit] > 0 or exit in needed:
            continue
        fewer = [other for other in active if other != exit]
        trial_area = curve_area(fewer)
        if trial_area >= best_area:
            active, best_area = fewer, trial_area
    return tuple(active), [Contribution(str(exit), gain, exit in active) for exit, gain in gains.items()]


def tuning_of(
    fitted: FittedExits,
    answers: Outcomes,
    temperatures: Tensor,
    costs: Costs,
    *,
    classifier: int,
    active: tuple[int, ...],
    seed: int = 0,
) -> Tuning:
    """Return the view of the tune split from which a policy offers operating points.

    Args:
        fitted: Exits and gates.
        answers: Outcomes on the tune split; with probabilities if the policy reads them.
        temperatures: `W x L`.
        costs: Costs of the policy.
        classifier: Place of the set of classifiers that answers.
        active: The exits in use, the final one last.
        seed: Seed of random draws.
    """
    table = costs.average(answers.sizes)
    gates = fitted.gates
    return Tuning(
        labels=answers.labels,
        predictions=answers.predictions[classifier],
        confidence=answers.confidence[classifier],
        margin=answers.margin[classifier],
        evidence=answers.evidence[classifier],
        all_probabilities=None if answers.probabilities is None else answers.probabilities[classifier],
        temperatures=temperatures,
        classifier=classifier,
        active=active,
        relative_costs=(table.cumulative_costs(active) / table.full)[list(active)],
        gate_weight=None if gates is None else gates.weight.detach(),
        gate_bias=None if gates is None else gates.bias.detach(),
        seed=seed,
    )


def with_sets(
    points: Sequence[OperatingPoint],
    answers: Outcomes,
    variant: ConformalVariant,
    miscoverages: Sequence[float],
    *,
    by_class: bool,
) -> list[OperatingPoint]:
    """Return points with conformal thresholds.

    Args:
        points: Operating points, their classifiers as the outcomes have them.
        answers: Outcomes of calibrate samples, with true labels.
        variant: Way to calibrate sets: docs/reference/prediction-sets.md.
        miscoverages: Levels.
        by_class: Calibrate sets within each class.
    """

    def thresholds(scores: Tensor, left: Tensor, miscoverage: float) -> Tensor:
        if not by_class:
            return conformal_thresholds(variant, scores, left, miscoverage=miscoverage)
        return class_thresholds(
            variant, scores, left, answers.labels, num_classes=answers.num_classes, miscoverage=miscoverage
        )

    return [
        replace(
            point,
            conformal_thresholds={
                miscoverage: thresholds(answers.conformal_scores[point.classifier], left, miscoverage)
                for miscoverage in miscoverages
            },
        )
        for point, left in zip(points, simulate(points, answers), strict=True)
    ]
