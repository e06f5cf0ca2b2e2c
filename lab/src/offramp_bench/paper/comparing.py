"""Two contestants at equal cost, task by task, and what the differences say of a claim."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from offramp_bench.page.results import Gap, Measure, Observation

__all__ = [
    "LEVEL",
    "Gap",
    "Measure",
    "Observation",
    "agreed",
    "at_equal_cost",
    "gaps",
    "improves",
    "is_alike",
    "is_at_most",
    "noise_of_areas",
    "noise_of_share",
    "told",
]

Floats = npt.NDArray[np.float64]

LEVEL = 0.002
"""Accuracies closer than two tenths of a point are level, however many samples there are."""

_COLUMNS = {"accuracy": 1, "ece": 2, "set size": 3, "coverage": 4, "early": 5}
"""Of a curve as `assembled` gives it."""

_GRID = 65
"""Costs at which two curves are compared."""


def at_equal_cost(
    task: Mapping[str, Any],
    one: str,
    other: str,
    shown: str,
    *,
    above: float = 0.0,
    seen_as: Callable[[Floats], Floats] = np.asarray,
) -> float | None:
    """How much more one contestant has of something than another, both spending the same; None if one is missing.

    The mean over costs from where the area and both curves begin to the full network's, evenly on a logarithmic scale.
    Past its last point a curve stays what it is there: who may spend more need not.

    Args:
        task: As `assembled` gives it.
        one: Name of a contestant.
        other: Of another.
        shown: Which column of their curves.
        above: Only costs where the better of the two is right at least this share of what the full network is.
        seen_as: What is made of the column before it is compared.
    """
    rows = [task["contestants"].get(name, {}).get("curve", ()) for name in (one, other)]
    if any(len(row) == 0 or len(row[0]) <= _COLUMNS[shown] for row in rows):
        return None
    curves = [np.array(sorted(row)) for row in rows]
    begins = max(task["axis from"], *(curve[0, 0] for curve in curves))
    if begins >= 1:
        return None
    costs = np.geomspace(begins, 1.0, _GRID)
    better = np.maximum(*(np.interp(costs, curve[:, 0], curve[:, 1]) for curve in curves))
    kept = better >= above * task["full accuracy"]
    if not kept.any():
        return None
    ours, theirs = (np.interp(costs, curve[:, 0], seen_as(curve[:, _COLUMNS[shown]])) for curve in curves)
    return float((ours - theirs)[kept].mean())


def noise_of_areas(task: Mapping[str, Any], one: str, other: str) -> float:
    """Up to which a difference of two contestants may be chance, half of a 95 % interval.

    The results hold intervals of paired differences to offramp alone. Variances add where two such differences are not
    correlated; these are, as offramp is in both, so that the noise of their difference is at most this.

    Args:
        task: As `assembled` gives it.
        one: Name of a contestant.
        other: Of another.
    """
    ends = [task["contestants"][name].get("interval", (0.0, 0.0)) for name in (one, other)]
    return max(LEVEL, math.hypot(*((high - low) / 2 for low, high in ends)))


def noise_of_share(task: Mapping[str, Any], share: float) -> float:
    """Half of the 95 % interval of a share of the test samples.

    Args:
        task: As `assembled` gives it.
        share: The share.
    """
    return max(LEVEL, 1.96 * math.sqrt(share * (1 - share) / task["test"]))


def gaps(
    tasks: Mapping[str, Any],
    figure: Callable[[Mapping[str, Any]], float | None],
    noise: Callable[[Mapping[str, Any]], float],
    *,
    scale: float = 100.0,
) -> dict[str, Gap]:
    """A figure of every task that has it.

    Args:
        tasks: As `assembled` gives them.
        figure: Of one task; None where it cannot be had.
        noise: Of one task, asked only where there is a figure.
        scale: What both are multiplied with: 100 for points.
    """
    found = {name: figure(task) for name, task in tasks.items()}
    return {
        name: Gap(round(scale * one, 3), round(scale * noise(tasks[name]), 3))
        for name, one in found.items()
        if one is not None
    }


def improves(what: str, by_task: Mapping[str, Gap]) -> Measure:
    """Judge a claim that something is better.

    It holds if it is better on half of the tasks at least and worse on none; it is not shown if all tasks are level; it
    does not hold if it is worse on more tasks than better.

    Args:
        what: The figure in words.
        by_task: Positive where it is better.
    """
    better = sum(gap.figure > gap.noise for gap in by_task.values())
    worse = tuple(name for name, gap in by_task.items() if gap.figure < -gap.noise)
    verdict: str = "mixed"
    if not by_task:
        verdict = "not tested"
    elif not better and not worse:
        verdict = "not shown"
    elif len(worse) > better:
        verdict = "does not hold"
    elif not worse and 2 * better >= len(by_task):
        verdict = "holds"
    return Measure(what, dict(by_task), worse, verdict)


def is_alike(what: str, by_task: Mapping[str, Gap]) -> Measure:
    """Judge a claim that two things are the same: beyond noise on no task, it holds; on half of them, it does not.

    Args:
        what: The figure in words.
        by_task: Differences.
    """
    return _unless(what, by_task, tuple(name for name, gap in by_task.items() if abs(gap.figure) > gap.noise))


def is_at_most(what: str, by_task: Mapping[str, Gap]) -> Measure:
    """Judge a claim that something is no more than the noise, which stands for what is allowed; less is as good.

    Args:
        what: The figure in words.
        by_task: What there is more.
    """
    return _unless(what, by_task, tuple(name for name, gap in by_task.items() if gap.figure > gap.noise))


def _unless(what: str, by_task: Mapping[str, Gap], against: tuple[str, ...]) -> Measure:
    verdict: str = "mixed"
    if not by_task:
        verdict = "not tested"
    elif not against:
        verdict = "holds"
    elif 2 * len(against) >= len(by_task):
        verdict = "does not hold"
    return Measure(what, dict(by_task), against, verdict)


def agreed(measures: Iterable[Measure]) -> str:
    """The verdict of all measures together: mixed unless those that could be taken agree.

    Where some are against the claim and the others level, it does not hold.

    Args:
        measures: Parts of one claim.
    """
    verdicts = {measure.verdict for measure in measures} - {"not tested"}
    if not verdicts:
        return "not tested"
    if verdicts == {"not shown", "does not hold"}:
        return "does not hold"
    return verdicts.pop() if len(verdicts) == 1 else "mixed"


def told(measures: Sequence[Measure]) -> str:
    """Where the figures of measures lie, in words.

    Args:
        measures: Parts of one claim.
    """
    return " ".join(f"{measure.what[0].upper()}{measure.what[1:]}: {_counts(measure)}." for measure in measures)


def _counts(measure: Measure) -> str:
    gaps = measure.by_task
    if not gaps:
        return "not measured"
    signed = f"{sum(gap.figure for gap in gaps.values()) / len(gaps):+.2f}".replace("-", "\N{MINUS SIGN}")
    beyond = sum(abs(gap.figure) > gap.noise for gap in gaps.values())
    told = f"{signed} on average, beyond noise on {beyond} of {len(gaps)} tasks"
    return f"{told}, against the claim on {', '.join(measure.against)}" if measure.against else told
