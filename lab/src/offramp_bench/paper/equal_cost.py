"""Two contestants of a track at equal cost: differences, levels and noise, from the results of a task."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from offramp_bench.paper.verdicts import LEVEL, Gap, differences

__all__ = ["Floats", "Results", "accuracy_gaps", "at_equal_cost", "mean_lead", "mean_level", "noise_of_lead"]

Floats = npt.NDArray[np.float64]
Results = Mapping[str, Any]
"""The results of one task, as `tracks.results.assemble` gives them."""

FIGURE = "mean accuracy"
"""Figure of the yardstick that claims are judged by: the mean over costs on a linear axis, in the task's range."""

GRID = 65
"""Costs at which two curves are compared."""


def _lead_of(task: Results, contestant: str, other: str) -> float | None:
    """Return how much more accurate a contestant is than another on average over costs; None if one is missing.

    Args:
        task: Results of a task.
        contestant: Name of a contestant.
        other: Name of another.
    """
    rows = task["contestants"]
    if contestant not in rows or other not in rows:
        return None
    return float(rows[contestant]["figures"][FIGURE] - rows[other]["figures"][FIGURE])


def noise_of_lead(task: Results, contestant: str, other: str) -> float | None:
    """Return half of the 95 % interval of the difference of two contestants, at least `LEVEL`; None if unknown.

    Results hold simultaneous intervals of the differences to some contestants only. If one of the two is among these,
    it is that interval. Otherwise both are compared with a third, and variances are added: as the third is in both
    differences, they are positively correlated, and the noise is at most this.

    Args:
        task: Results of a task.
        contestant: Name of a contestant.
        other: Name of another.
    """
    halves = []
    for reference, leads in task["leads"].items():
        names = [name for name in (contestant, other) if name != reference]
        if all(name in leads for name in names):
            ends = [leads[name][FIGURE] for name in names]
            halves.append((len(names), math.hypot(*((high - low) / 2 for _, low, high in ends))))
    return max(LEVEL, min(halves)[1]) if halves else None


def accuracy_gaps(tasks: Mapping[str, Results], contestant: str, other: str) -> dict[str, Gap]:
    """Return how many points a contestant is ahead of another, by task.

    Args:
        tasks: Results by task.
        contestant: Name of a contestant.
        other: Name of another.
    """
    return differences(
        tasks, lambda task: _lead_of(task, contestant, other), lambda task: noise_of_lead(task, contestant, other)
    )


def mean_lead(tasks: Mapping[str, Results], contestant: str, other: str) -> float | None:
    """Return the mean lead in points over the tasks that have both; None if none has.

    Args:
        tasks: Results by task.
        contestant: Name of a contestant.
        other: Name of another.
    """
    leads = [lead for task in tasks.values() if (lead := _lead_of(task, contestant, other)) is not None]
    return 100 * sum(leads) / len(leads) if leads else None


def _level_of(
    task: Results, contestant: str, column: str, start: float, transform: Callable[[Floats], Floats]
) -> float | None:
    """Return the mean of a column over costs from `start` to 1."""
    rows = task["contestants"].get(contestant, {}).get("uncertainty", ())
    if not rows or start >= 1:
        return None
    costs = np.linspace(start, 1.0, GRID)
    curve = np.array(sorted([row["cost"], row[column]] for row in rows))
    return float(np.interp(costs, curve[:, 0], transform(curve[:, 1])).mean())


def at_equal_cost(
    task: Results,
    contestant: str,
    other: str,
    column: str,
    *,
    transform: Callable[[Floats], Floats] = np.asarray,
) -> float | None:
    """Return how much more of something a contestant has than another at equal cost; None if one is missing.

    The mean over costs on a linear axis, from where the task's range and both curves begin to the full network's.

    Args:
        task: Results of a task.
        contestant: Name of a contestant.
        other: Name of another.
        column: "ece", "set size", "coverage" or "early".
        transform: Function of the column that is compared.
    """
    curves = [task["contestants"].get(name, {}).get("uncertainty", ()) for name in (contestant, other)]
    if not all(curves):
        return None
    start = max(task["range"]["start"], *(min(row["cost"] for row in curve) for curve in curves))
    levels = [_level_of(task, name, column, start, transform) for name in (contestant, other)]
    return None if levels[0] is None or levels[1] is None else levels[0] - levels[1]


def mean_level(
    tasks: Mapping[str, Results],
    contestant: str,
    column: str,
    *,
    transform: Callable[[Floats], Floats] = np.asarray,
) -> float | None:
    """Return the mean of something over costs and tasks; None if no task has the contestant.

    Args:
        tasks: Results by task.
        contestant: Name of a contestant.
        column: "ece", "set size", "coverage" or "early".
        transform: Function of the column that is averaged.
    """
    levels = [_level_of(task, contestant, column, task["range"]["start"], transform) for task in tasks.values()]
    values = [level for level in levels if level is not None]
    return sum(values) / len(values) if values else None
