"""Guarantees: losses of points against the full network, and the cheapest point with a guarantee."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import get_args

import torch
from torch import Tensor

from offramp._registry import unknown_name
from offramp.errors import BudgetError, InputError
from offramp.model._outcomes import Outcomes, simulate
from offramp.policy import Guarantee, OperatingPoint
from offramp.policy._point import PointLosses
from offramp.runtime._dial import find_pareto_front
from offramp.uncertainty._risk import (
    LOSSES,
    RiskBound,
    RiskLoss,
    last_passing,
    order_candidates,
    samples_needed,
    smooth_variances,
)

__all__ = [
    "Shortfall",
    "guarantee",
    "is_calibrated",
    "list_guaranteed",
    "losses_at",
    "seek_guarantee",
    "with_losses",
    "with_tuned_losses",
    "without_guarantee",
]

DEARER_STEP = 0.1
"""Distance in relative cost between tested points that cost more than those no cheaper point beats."""

DECIDE_FIRST = (
    "A guarantee requested after seeing which ones this split gives is not covered by its confidence: decide "
    "beforehand, or calibrate on new samples"
)
"""Last sentence of errors."""


@dataclass(frozen=True)
class Shortfall:
    """The reason why there is no guarantee, and what to do about it."""

    finding: str
    advice: str


def losses_at(points: Sequence[OperatingPoint], answers: Outcomes, *, labelled: bool = True) -> dict[str, Tensor]:
    """Return the losses of points against the full network, sample by sample.

    Args:
        points: P operating points, their classifiers as the outcomes have them.
        answers: Outcomes of N samples.
        labelled: True if the labels are true; otherwise only losses that need none are returned.

    Returns:
        `P x N` losses by their names, in the smallest type that holds them. Brier gaps are rounded up to half
        precision, so that a bound on them holds for the exact ones.

    Example:
        >>> sure = torch.tensor([[[0.9, 0.9], [0.4, 0.9]]])  # W x N x L: one set, two samples, two exits
        >>> said = torch.tensor([[[0, 0], [1, 0]]])
        >>> answers = {"predictions": said, "confidence": sure, "margin": sure, "conformal_scores": 1 - sure}
        >>> answers = Outcomes(2, torch.tensor([0, 0]), torch.ones(2), said[0, :, 1], evidence=sure, **answers)
        >>> points = [
        ...     OperatingPoint("threshold", {"threshold": torch.tensor(level)}, (0, 1), torch.ones(2))
        ...     for level in (0.3, 0.5)
        ... ]
        >>> losses_at(points, answers, labelled=False)["disagreement"].tolist()
        [[0, 1], [0, 0]]
    """
    exits, rows = simulate(points, answers), torch.arange(len(answers.labels))
    classifiers = torch.tensor([point.classifier for point in points])[:, None]
    differ = answers.predictions[classifiers, rows, exits] != answers.full
    losses_by_name = {"disagreement": differ.to(torch.int8)}
    if labelled:
        right = answers.correct[classifiers, rows, exits].to(torch.int8)
        losses_by_name["accuracy"] = answers.full_correct.to(torch.int8) - right
        if answers.brier_gaps is None:
            raise InputError(
                expected="outcomes with Brier gaps",
                got="outcomes without",
                hint="pass cached features to model.recalibrate(...) instead",
            )
        losses_by_name["brier"] = _rounded_up(answers.brier_gaps[classifiers, rows, exits].clamp(-2, 2))
    return {name: losses_by_name[name] for name in sorted(losses_by_name)}


def with_tuned_losses(points: Sequence[OperatingPoint], tune: Outcomes) -> list[OperatingPoint]:
    """Return points with mean and variance of their losses on the tune split, which decide the order of tests.

    Args:
        points: P operating points.
        tune: Outcomes of the tune split.
    """
    tuned = losses_at(points, tune)
    return [
        replace(point, losses={name: _tuned(LOSSES[name], rows[index]) for name, rows in tuned.items()})
        for index, point in enumerate(points)
    ]


def with_losses(
    points: Sequence[OperatingPoint], calibrate: Outcomes, *, labelled: bool = True
) -> list[OperatingPoint]:
    """Return points with their losses on a calibrate split, from which guarantees are made.

    Args:
        points: P operating points that know their losses on the tune split.
        calibrate: Outcomes of samples that nothing was fitted on, in any order: they are shuffled.
        labelled: True if the labels of calibrate are true; otherwise only agreement can be guaranteed.

    Returns:
        The points, each with its losses; without labels, losses that need them have their tune figures only.

    Raises:
        InputError: If the points do not know their losses on the tune split.
    """
    order = torch.randperm(len(calibrate.labels), generator=torch.Generator().manual_seed(0))
    measured = {name: rows[:, order] for name, rows in losses_at(points, calibrate, labelled=labelled).items()}
    calibrated = []
    for index, point in enumerate(points):
        before = point.losses
        missing = sorted(set(measured) - set(before))
        if missing:
            raise InputError(
                expected="points with losses on the tune split",
                got=f"none of {', '.join(missing)}",
                hint="fit again, or calibrate without labels for guarantees of disagreement",
            )
        losses = {
            name: replace(known, samples=measured[name][index].clone() if name in measured else known.samples[:0])
            for name, known in before.items()
        }
        calibrated.append(replace(point, losses=losses))
    return calibrated


def without_guarantee(point: OperatingPoint) -> OperatingPoint:
    """Return a point without its guarantee and calibrate losses; its tune figures stay.

    Args:
        point: The point.

    Example:
        >>> known = {"disagreement": PointLosses(torch.zeros(9, dtype=torch.int8), 0.1, 0.09)}
        >>> parameters = {"threshold": torch.tensor(0.9)}
        >>> point = without_guarantee(OperatingPoint("threshold", parameters, (0,), torch.ones(1), losses=known))
        >>> len(point.losses["disagreement"].samples), point.losses["disagreement"].tune_mean
        (0, 0.1)
    """
    losses = {name: replace(known, samples=known.samples[:0]) for name, known in point.losses.items()}
    return replace(point, losses=losses, guarantee=None)


def guarantee(
    points: Sequence[OperatingPoint], *, max_drop: float, confidence: float, loss: str, bound: RiskBound
) -> OperatingPoint:
    """Return the cheapest point for which a bound on the loss can be guaranteed.

    Points are tested on the calibrate split in an order that the tune split has fixed, from the dearest, up to the
    first that does not pass: however many points there are, the guarantee is given and violated with probability
    1 - confidence at most. That holds for one guarantee, decided on before the split was used. Points that cost no less
    than another and lost no less on the tune split are not tested, except the dearest of each tenth of the cost above
    those that are.

    Args:
        points: Points of one policy, with their losses.
        max_drop: Largest mean loss, in the loss's own unit.
        confidence: Confidence of the guarantee.
        loss: "accuracy", "disagreement" or "brier": `offramp.uncertainty.LOSSES`.
        bound: "ltt" or "wsr": `offramp.uncertainty.passes`.

    Returns:
        The point, with its guarantee.

    Raises:
        BudgetError: If the calibrate split is too small, or no point cheaper than the network passes.

    Example:
        >>> def point(cost: float, failures: int) -> OperatingPoint:
        ...     samples = torch.zeros(1000, dtype=torch.int8)
        ...     samples[:failures] = 1
        ...     losses = {"disagreement": PointLosses(samples, failures / 1000, 0.01)}
        ...     parameters, metrics = {"threshold": torch.tensor(0.9)}, {"cost": cost, "accuracy": 0.9}
        ...     return OperatingPoint("threshold", parameters, (0,), torch.ones(1), tune_metrics=metrics, losses=losses)
        >>> points = [point(0.3, 40), point(0.5, 10), point(0.9, 0)]
        >>> chosen = guarantee(points, max_drop=0.02, confidence=0.95, loss="disagreement", bound="ltt")
        >>> chosen.tune_metrics["cost"], chosen.guarantee.measured
        (0.5, 0.01)
    """
    result = seek_guarantee(points, max_drop=max_drop, confidence=confidence, loss=loss, bound=bound)
    if isinstance(result, Shortfall):
        raise BudgetError(result.finding, hint=f"{result.advice}. {DECIDE_FIRST}")
    return result


def seek_guarantee(
    points: Sequence[OperatingPoint], *, max_drop: float, confidence: float, loss: str, bound: RiskBound
) -> OperatingPoint | Shortfall:
    """Return what `guarantee` returns, or the reason why there is no such point; the arguments are the same."""
    passing = list_guaranteed(points, max_drop=max_drop, confidence=confidence, loss=loss, bound=bound)
    return passing if isinstance(passing, Shortfall) else passing[-1]


def list_guaranteed(
    points: Sequence[OperatingPoint], *, max_drop: float, confidence: float, loss: str, bound: RiskBound
) -> list[OperatingPoint] | Shortfall:
    """Return all points that pass the test of `guarantee`, in its order; the arguments are the same.

    The bound holds for all of them together with the confidence: the first that breaks it passes with probability
    1 - confidence at most, and none is tested after one that does not pass.
    """
    wanted = _checked(max_drop, confidence, loss, bound)
    _check_known(points, loss)
    tested = _choose_tested(points, loss)
    known = [point.losses[loss] for point in tested]
    costs = torch.tensor([point.tune_metrics["cost"] for point in tested], dtype=torch.float64)
    means = torch.tensor([losses.tune_mean for losses in known], dtype=torch.float64)
    variances = torch.tensor([losses.tune_variance for losses in known], dtype=torch.float64)
    samples = len(known[0].samples)
    order = order_candidates(costs, means, variances, wanted, max_loss=max_drop, samples=samples, confidence=confidence)
    drawn = torch.stack([known[place].samples for place in order.tolist()])
    step = last_passing(
        drawn, wanted, max_loss=max_drop, confidence=confidence, bound=bound, variances=variances[order]
    )
    if step is None or costs[order[step]] >= 1:  # the full network meets any bound at cost 1
        cheaper = [point for point in points if point.tune_metrics["cost"] < 1]
        return _shortfall(cheaper, wanted, max_drop=max_drop, confidence=confidence, samples=samples)
    measured = drawn[: step + 1].double().mean(1).tolist()
    return [
        replace(tested[place], guarantee=Guarantee(loss, max_drop, confidence, bound, samples, mean))
        for place, mean in zip(order[: step + 1].tolist(), measured, strict=True)
    ]


def _choose_tested(points: Sequence[OperatingPoint], loss: str) -> list[OperatingPoint]:
    """Return the points to test: those that no cheaper point beats on the tune split, and some dearer ones.

    Where an early exit is as good as the full network, it beats every dearer point on tune; but dearer points differ
    from the network on fewer samples, so that a small split suffices to guarantee them. The dearest of each tenth of
    the cost is tested: each point more is one more at which the sequence may stop.
    """
    costs = [point.tune_metrics["cost"] for point in points]
    unbeaten = find_pareto_front(costs, [-point.losses[loss].tune_mean for point in points])
    dearest = max(costs[place] for place in unbeaten)
    ascending = sorted(range(len(costs)), key=costs.__getitem__)
    dearer = {int(costs[place] / DEARER_STEP): place for place in ascending if costs[place] > dearest}
    return [points[place] for place in dict.fromkeys((*unbeaten, *dearer.values()))]


def is_calibrated(points: Sequence[OperatingPoint], loss: str) -> bool:
    """Tell whether all points know their losses on a calibrate split.

    Args:
        points: Operating points.
        loss: The loss's name.
    """
    return all(loss in point.losses and len(point.losses[loss].samples) > 0 for point in points)


def _tuned(loss: RiskLoss, values: Tensor) -> PointLosses:
    """Return mean and variance of a point's losses on the tune split."""
    variance = loss.to_unit(values).var(unbiased=False)
    mean = float(values.double().mean())
    return PointLosses(values[:0], mean, float(smooth_variances(variance, len(values))))


def _rounded_up(values: Tensor) -> Tensor:
    half = values.half()
    upward = torch.nextafter(half, torch.full_like(half, torch.inf))
    return torch.where(half.to(values.dtype) < values, upward, half)


def _checked(max_drop: float, confidence: float, loss: str, bound: str) -> RiskLoss:
    for name, wish, example in (("max_drop", max_drop, "0.01 for a point"), ("confidence", confidence, "0.95")):
        if not isinstance(wish, Real) or not 0 < wish < 1:
            raise InputError(expected=f"{name} above 0 and below 1, such as {name}={example}", got=repr(wish))
    if loss not in LOSSES:
        raise unknown_name("loss", loss, LOSSES)
    if bound not in get_args(RiskBound):
        raise unknown_name("bound", bound, get_args(RiskBound))
    return LOSSES[loss]


def _check_known(points: Sequence[OperatingPoint], loss: str) -> None:
    if is_calibrated(points, loss):
        return
    if is_calibrated(points, "disagreement"):
        raise InputError(
            expected=f"points calibrated with labels for a guarantee of {loss}",
            got="points calibrated without",
            hint="ask for loss='disagreement', which needs no labels and bounds the drop of accuracy too",
        )
    raise InputError(
        expected="points with losses on a calibrate split",
        got="points without: built directly, or moved to another network",
        hint="fit again, or calibrate again (model.recalibrate in Python, offramp recalibrate in a shell)",
    )


def _shortfall(
    points: Sequence[OperatingPoint], loss: RiskLoss, *, max_drop: float, confidence: float, samples: int
) -> Shortfall:
    """Say how many samples would do if losses were as on tune and calibrate, whichever needs more."""
    request = f"a loss ({loss.name}) of at most {max_drop:g} with confidence {confidence:g}"
    needs: list[tuple[int, float]] = []
    for point in points:
        known = point.losses[loss.name]
        spread = float(smooth_variances(loss.to_unit(known.samples).var(unbiased=False), samples))
        estimates = ((known.tune_mean, known.tune_variance), (float(known.samples.double().mean()), spread))
        each = [
            samples_needed(mean, variance, loss, max_loss=max_drop, confidence=confidence)
            for mean, variance in estimates
        ]
        if None not in each:
            needs.append((max(count for count in each if count is not None), point.tune_metrics["cost"]))
    if not needs:
        lost = [float(point.losses[loss.name].samples.double().mean()) for point in points]
        safest = f"; the smallest loss was {min(lost):.4g}" if lost else ""
        return Shortfall(
            f"no point cheaper than the full network keeps {request} on the {samples:,} calibrate samples{safest}",
            "use the full network, or allow more loss or less confidence",
        )
    needed, cost = min(needs)
    if needed <= samples:  # by the formula they should have done; it does not see in which order losses come
        would = f"the point of cost {cost:.3g} nearly passed; how many samples would suffice cannot be estimated"
    else:
        would = f"about {needed:,} would suffice for the point of cost {cost:.3g}, if losses stay as they are"
    return Shortfall(
        f"{samples:,} calibrate samples are too few to guarantee {request}; {would}",
        "calibrate on more (fit takes half of the validation samples for that), or allow more loss or less confidence",
    )
