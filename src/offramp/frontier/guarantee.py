"""Promises: what points lose against the full network, and the cheapest that keeps a promise."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import get_args

import torch
from torch import Tensor

from offramp.errors import BudgetError, InputError
from offramp.frontier.outcomes import Outcomes
from offramp.frontier.simulate import simulate
from offramp.policy import Guarantee, OperatingPoint, PointLosses
from offramp.registry import unknown_name
from offramp.runtime import undominated
from offramp.uncertainty import LOSSES, RiskBound, RiskLoss, last_passed, samples_needed, smoothed, walk

__all__ = ["Shortfall", "is_calibrated", "losses_at", "promise", "seek_promise", "unpromised", "with_losses"]

AGAIN = (
    "A promise asked for after seeing which ones this split gives is not covered by its confidence: decide beforehand, "
    "or calibrate on new samples"
)
"""What errors add."""


@dataclass(frozen=True)
class Shortfall:
    """The reason why a promise cannot be made, and what to do about it."""

    finding: str
    advice: str


def losses_at(points: Sequence[OperatingPoint], seen: Outcomes, *, labelled: bool = True) -> dict[str, Tensor]:
    """What points lose against the full network, sample by sample.

    Args:
        points: P operating points, their classifiers as the outcomes have them.
        seen: Outcomes of N samples.
        labelled: Whether the labels are true; if not, only what needs none.

    Returns:
        `P x N` losses by their names, in the smallest type that holds them. Brier gaps are rounded up to half
        precision: a promise of them holds of the exact ones.

    Example:
        >>> sure = torch.tensor([[[0.9, 0.9], [0.4, 0.9]]])  # W x N x L: one set, two samples, two exits
        >>> said = torch.tensor([[[0, 0], [1, 0]]])
        >>> answers = {"predictions": said, "confidence": sure, "margin": sure, "conformal_scores": 1 - sure}
        >>> seen = Outcomes(2, torch.tensor([0, 0]), torch.ones(2), said[0, :, 1], evidence=sure, **answers)
        >>> points = [
        ...     OperatingPoint("threshold", {"threshold": torch.tensor(level)}, (0, 1), torch.ones(2))
        ...     for level in (0.3, 0.5)
        ... ]
        >>> losses_at(points, seen, labelled=False)["disagreement"].tolist()
        [[0, 1], [0, 0]]
    """
    exits, rows = simulate(points, seen), torch.arange(len(seen.labels))
    classifiers = torch.tensor([point.classifier for point in points])[:, None]
    differ = seen.predictions[classifiers, rows, exits] != seen.full
    found = {"disagreement": differ.to(torch.int8)}
    if labelled:
        right = seen.correct[classifiers, rows, exits].to(torch.int8)
        found["accuracy"] = seen.full_correct.to(torch.int8) - right
        if seen.brier_gaps is None:
            raise InputError(
                "expected outcomes with Brier gaps, got some made by hand; make them with offramp.frontier.outcomes"
            )
        found["brier"] = _rounded_up(seen.brier_gaps[classifiers, rows, exits].clamp(-2, 2))
    return {name: found[name] for name in sorted(found)}


def with_losses(
    points: Sequence[OperatingPoint], calibrate: Outcomes, tune: Outcomes | None = None, *, labelled: bool = True
) -> list[OperatingPoint]:
    """Points that promises can be made of.

    Args:
        points: P operating points.
        calibrate: Outcomes of samples that nothing was fitted on, in any order: they are shuffled.
        tune: Outcomes that decide the order of tests; what the points know of their tune split if left out.
        labelled: Whether the labels of calibrate are true; if not, agreement alone is promised.

    Returns:
        The points, each with its losses; of those that need labels where there are none, only what tune says.

    Raises:
        InputError: If tune is left out, and the points do not know of it what is asked for.
    """
    order = torch.randperm(len(calibrate.labels), generator=torch.Generator().manual_seed(0))
    measured = {name: rows[:, order] for name, rows in losses_at(points, calibrate, labelled=labelled).items()}
    tuned = {} if tune is None else losses_at(points, tune)
    found = []
    for index, point in enumerate(points):
        before = point.losses
        if tune is not None:
            before = {name: _tuned(LOSSES[name], rows[index]) for name, rows in tuned.items()}
        missing = sorted(set(measured) - set(before))
        if missing:
            raise InputError(
                f"expected points that know what they lost on their tune split, got none of {', '.join(missing)}; fit "
                "again, or calibrate without labels for promises of disagreement"
            )
        losses = {
            name: replace(known, samples=measured[name][index].clone() if name in measured else known.samples[:0])
            for name, known in before.items()
        }
        found.append(replace(point, losses=losses))
    return found


def unpromised(point: OperatingPoint) -> OperatingPoint:
    """A point without its promise, nor losses to make one from; what the tune split says of those stays.

    Args:
        point: The point.

    Example:
        >>> known = {"disagreement": PointLosses(torch.zeros(9, dtype=torch.int8), 0.1, 0.09)}
        >>> parameters = {"threshold": torch.tensor(0.9)}
        >>> point = unpromised(OperatingPoint("threshold", parameters, (0,), torch.ones(1), losses=known))
        >>> len(point.losses["disagreement"].samples), point.losses["disagreement"].tune_mean
        (0, 0.1)
    """
    losses = {name: replace(known, samples=known.samples[:0]) for name, known in point.losses.items()}
    return replace(point, losses=losses, guarantee=None)


def promise(
    points: Sequence[OperatingPoint], *, max_drop: float, confidence: float, loss: str, bound: RiskBound
) -> OperatingPoint:
    """The cheapest point that keeps a promise.

    Points are tested on the calibrate split in an order that the tune split has fixed, from the dearest, up to the
    first that does not pass: however many points there are, a promise is made and broken with probability
    1 - confidence at most. That is of one promise, decided on before the split was asked. Points that cost no less than
    another and lost no less on the tune split are not tested.

    Args:
        points: Points of one policy, with their losses.
        max_drop: What may be lost at most on average, in the loss's own unit.
        confidence: How sure to be.
        loss: "accuracy", "disagreement" or "brier": `offramp.uncertainty.LOSSES`.
        bound: "ltt" or "wsr": `offramp.uncertainty.passes`.

    Returns:
        The point, with its guarantee.

    Raises:
        BudgetError: If the calibrate split is too small for the promise, or no point cheaper than the network keeps it.

    Example:
        >>> def point(cost: float, failures: int) -> OperatingPoint:
        ...     samples = torch.zeros(1000, dtype=torch.int8)
        ...     samples[:failures] = 1
        ...     losses = {"disagreement": PointLosses(samples, failures / 1000, 0.01)}
        ...     parameters, promised = {"threshold": torch.tensor(0.9)}, {"cost": cost, "accuracy": 0.9}
        ...     return OperatingPoint("threshold", parameters, (0,), torch.ones(1), promised=promised, losses=losses)
        >>> points = [point(0.3, 40), point(0.5, 10), point(0.9, 0)]
        >>> chosen = promise(points, max_drop=0.02, confidence=0.95, loss="disagreement", bound="ltt")
        >>> chosen.promised["cost"], chosen.guarantee.measured
        (0.5, 0.01)
    """
    found = seek_promise(points, max_drop=max_drop, confidence=confidence, loss=loss, bound=bound)
    if isinstance(found, Shortfall):
        raise BudgetError(f"{found.finding}: {found.advice}. {AGAIN}")
    return found


def seek_promise(
    points: Sequence[OperatingPoint], *, max_drop: float, confidence: float, loss: str, bound: RiskBound
) -> OperatingPoint | Shortfall:
    """Make a promise as `promise` does, and return the reason where none can be made.

    Args:
        points: As for `promise`, and so all that follows.
        max_drop: What may be lost.
        confidence: How sure to be.
        loss: Which loss.
        bound: Which bound.
    """
    wanted = _checked(max_drop, confidence, loss, bound)
    _check_known(points, loss)
    places = undominated(
        [point.promised["cost"] for point in points], [-point.losses[loss].tune_mean for point in points]
    )
    tested = [points[place] for place in places]
    known = [point.losses[loss] for point in tested]
    costs = torch.tensor([point.promised["cost"] for point in tested], dtype=torch.float64)
    means = torch.tensor([one.tune_mean for one in known], dtype=torch.float64)
    variances = torch.tensor([one.tune_variance for one in known], dtype=torch.float64)
    samples = len(known[0].samples)
    order = walk(costs, means, variances, wanted, most=max_drop, samples=samples, confidence=confidence)
    drawn = torch.stack([known[place].samples for place in order.tolist()])
    step = last_passed(drawn, wanted, most=max_drop, confidence=confidence, bound=bound, variances=variances[order])
    if step is None or costs[order[step]] >= 1:  # the network itself keeps any promise for 1
        cheaper = [point for point in points if point.promised["cost"] < 1]
        return _shortfall(cheaper, wanted, max_drop=max_drop, confidence=confidence, samples=samples)
    measured = float(drawn[step].double().mean())
    return replace(tested[int(order[step])], guarantee=Guarantee(loss, max_drop, confidence, bound, samples, measured))


def is_calibrated(points: Sequence[OperatingPoint], loss: str) -> bool:
    """Tell whether all points know what they lose on a calibrate split.

    Args:
        points: Operating points.
        loss: The loss's name.
    """
    return all(loss in point.losses and len(point.losses[loss].samples) > 0 for point in points)


def _tuned(loss: RiskLoss, values: Tensor) -> PointLosses:
    """Mean and variance of a point's losses on the tune split."""
    variance = loss.unit(values).var(unbiased=False)
    mean = float(values.double().mean())
    return PointLosses(values[:0], mean, float(smoothed(variance, len(values))))


def _rounded_up(values: Tensor) -> Tensor:
    half = values.half()
    upward = torch.nextafter(half, torch.full_like(half, torch.inf))
    return torch.where(half.to(values.dtype) < values, upward, half)


def _checked(max_drop: float, confidence: float, loss: str, bound: str) -> RiskLoss:
    for name, wish, example in (("max_drop", max_drop, "0.01 for a point"), ("confidence", confidence, "0.95")):
        if not isinstance(wish, Real) or not 0 < wish < 1:
            raise InputError(f"expected {name} between 0 and 1, such as {name}={example}, got {wish!r}")
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
            f"expected points calibrated with labels for a promise of {loss}, got some calibrated without; ask for a "
            "promise of disagreement, which needs none and bounds the drop of accuracy too"
        )
    raise InputError(
        "expected points that know what they lose on a calibrate split, got some without: made by hand, or put "
        "on another network; fit again, or calibrate anew (offramp.recalibrated in Python, offramp recalibrate in a "
        "shell)"
    )


def _shortfall(
    points: Sequence[OperatingPoint], loss: RiskLoss, *, max_drop: float, confidence: float, samples: int
) -> Shortfall:
    """Say how many samples would do, were losses as on tune and calibrate, whichever asks for more."""
    asked = f"a loss ({loss.name}) of at most {max_drop:g} with confidence {confidence:g}"
    needs: list[tuple[int, float]] = []
    for point in points:
        known = point.losses[loss.name]
        spread = float(smoothed(loss.unit(known.samples).var(unbiased=False), samples))
        told = ((known.tune_mean, known.tune_variance), (float(known.samples.double().mean()), spread))
        each = [samples_needed(mean, variance, loss, most=max_drop, confidence=confidence) for mean, variance in told]
        if None not in each:
            needs.append((max(one for one in each if one is not None), point.promised["cost"]))
    if not needs:
        lost = [float(point.losses[loss.name].samples.double().mean()) for point in points]
        safest = f"; the safest lost {min(lost):.4g} there" if lost else ""
        return Shortfall(
            f"no point that is cheaper than the network keeps {asked} on the {samples:,} calibrate samples{safest}",
            "use the full network, or ask for more loss or less confidence",
        )
    needed, cost = min(needs)
    if needed <= samples:  # by the formula they should have done; it does not see in which order losses come
        would = f"the point of cost {cost:.3g} came near with as many, how many more would do is not known"
    else:
        would = f"about {needed:,} would do for the point of cost {cost:.3g}, if losses stay as they are"
    return Shortfall(
        f"{samples:,} calibrate samples are too few to promise {asked}; {would}",
        "calibrate on more (fit takes half of the validation samples for that), or ask for more loss or less "
        "confidence",
    )
