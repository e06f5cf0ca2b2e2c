"""Seven figures of a curve of accuracy against cost, the same for every contestant."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["FIGURES", "HALF", "Curve", "Range", "cost_of", "figures_of", "is_cost", "measure"]

Floats = npt.NDArray[np.float64]

LOST = (0.0, 0.005, 0.01)
"""Accuracy that may be lost, of which the cost is reported."""

BUDGETS = (0.25, 0.5, 0.75)
"""Relative costs at which the accuracy is reported."""

FIGURES = (
    *(f"cost at {100 * lost:g} points lost" for lost in LOST),
    *(f"accuracy at {100 * budget:g} % of the cost" for budget in BUDGETS),
    "mean accuracy",
)
"""The seven figures: three costs (less is better), four accuracies (more is better)."""


HALF = FIGURES[1]
"""Cost at half a point lost."""


def is_cost(figure: str) -> bool:
    """Return whether less is better.

    Example:
        >>> is_cost(FIGURES[0]), is_cost(FIGURES[-1])
        (True, False)
    """
    return figure.startswith("cost")


@dataclass(frozen=True)
class Curve:
    """Operating points chosen on tune, measured on test."""

    spent: npt.NDArray[np.float32]
    """`P x N` cost of each sample, in any unit."""
    correct: npt.NDArray[np.bool_]
    """`P x N`: the answer is right."""
    full: npt.NDArray[np.float32]
    """`N` costs of the full network, in the same unit."""
    full_correct: npt.NDArray[np.bool_]
    """`N`: the full network is right."""

    def costs(self) -> Floats:
        """Return the `P` relative costs on all samples."""
        return np.asarray(self.spent.sum(1, dtype=np.float64) / self.full.sum(dtype=np.float64))

    def accuracies(self) -> Floats:
        """Return the `P` accuracies on all samples."""
        return np.asarray(self.correct.mean(1))


@dataclass(frozen=True)
class Range:
    """The part of the cost axis that all contestants of a task reach."""

    start: float
    """Relative cost where the mean accuracy begins; it ends at 1."""
    first_exit: float
    """Largest cost of a contestant's cheapest point: accuracies at a smaller cost are left out for all."""

    def reported(self) -> tuple[str, ...]:
        """Return the figures that every contestant has."""
        budget_flags = [budget >= self.first_exit for budget in BUDGETS]
        flags = [True] * len(LOST) + budget_flags + [True]
        return tuple(figure for figure, is_reported in zip(FIGURES, flags, strict=True) if is_reported)


def figures_of(curve: Curve, start: float, weights: npt.NDArray[np.float32] | None = None) -> dict[str, Floats]:
    """Return the seven figures of a curve, for each of B draws of the samples.

    Args:
        curve: The curve.
        start: Relative cost where the mean accuracy begins.
        weights: `B x N` number of times each sample was drawn; every sample once if left out, B = 1.

    Returns:
        `B` numbers for each of `FIGURES`.
    """
    counts = np.ones((1, len(curve.full)), np.float32) if weights is None else weights
    total = counts.sum(1, dtype=np.float64)
    full_cost = counts @ curve.full.astype(np.float32)
    costs = (counts @ curve.spent.T).astype(np.float64) / full_cost[:, None]
    accuracies = (counts @ curve.correct.T.astype(np.float32)).astype(np.float64) / total[:, None]
    full = (counts @ curve.full_correct.astype(np.float32)).astype(np.float64) / total
    return measure(costs, accuracies, full, start)


def measure(costs: Floats, accuracies: Floats, full: Floats, start: float) -> dict[str, Floats]:
    """Return the seven figures of B curves.

    Between two points a curve is linear: sending a share of the samples to one point and the rest to the other gives
    exactly that. The full network is the last point of every curve; points that cost more are left out. No hull is
    taken: a point chosen on tune stays, however it does here.

    Args:
        costs: `B x P` relative costs.
        accuracies: `B x P` accuracies.
        full: `B` accuracies of the full network.
        start: Relative cost where the mean accuracy begins; below its first point, a curve is what it is there.

    Returns:
        `B` numbers for each of `FIGURES`. A cost is the least from which on the accuracy is kept, not the first at
        which it is reached: that is wherever the curve happens to be lucky first. An accuracy below the first point is
        NaN.

    Example:
        >>> curve = np.array([[0.2, 0.6]]), np.array([[0.8, 0.9]]), np.array([0.92])
        >>> figures = measure(*curve, start=0.2)
        >>> [round(float(figures[name][0]), 3) for name in FIGURES[1:5]]
        [0.9, 0.8, 0.812, 0.875]
    """
    # A point that costs more than the full network is moved onto it.
    beyond = costs >= 1
    costs = np.concatenate([np.where(beyond, 1.0, costs), np.ones((len(costs), 1))], axis=1)
    accuracies = np.concatenate([np.where(beyond, full[:, None], accuracies), full[:, None]], axis=1)
    order = np.argsort(costs, axis=1, kind="stable")
    costs, accuracies = (np.take_along_axis(values, order, axis=1) for values in (costs, accuracies))
    at_costs = [cost_of(costs, accuracies, full - lost) for lost in LOST]
    at_budgets = [_accuracy_at(costs, accuracies, budget) for budget in BUDGETS]
    return dict(zip(FIGURES, [*at_costs, *at_budgets, _mean_from(costs, accuracies, start)], strict=True))


def cost_of(costs: Floats, accuracies: Floats, targets: Floats) -> Floats:
    """Return the least cost from which on an accuracy is kept.

    Args:
        costs: `B x P` relative costs, ascending.
        accuracies: `B x P` accuracies.
        targets: `B` accuracies to keep; the last point of each curve must have it.

    Returns:
        `B` costs.
    """
    rows = np.arange(len(costs))
    short = accuracies < targets[:, None] - 1e-12
    last_short = np.where(short.any(1), short.shape[1] - 1 - short[:, ::-1].argmax(1), -1)
    low, high = np.maximum(last_short, 0), np.minimum(last_short + 1, costs.shape[1] - 1)
    rise = accuracies[rows, high] - accuracies[rows, low]
    share = np.where(rise > 0, (targets - accuracies[rows, low]) / np.where(rise > 0, rise, 1), 1.0)
    crossing = costs[rows, low] + np.clip(share, 0, 1) * (costs[rows, high] - costs[rows, low])
    return np.where(last_short < 0, costs[:, 0], crossing)


def _accuracy_at(costs: Floats, accuracies: Floats, budget: float) -> Floats:
    """Return the accuracy at a cost, NaN below the first point."""
    rows = np.arange(len(costs))
    low = (costs <= budget).sum(1) - 1
    below, low = low < 0, np.clip(low, 0, costs.shape[1] - 2)
    width = costs[rows, low + 1] - costs[rows, low]
    share = np.where(width > 0, (budget - costs[rows, low]) / np.where(width > 0, width, 1), 0.0)
    accuracy = accuracies[rows, low] + np.clip(share, 0, 1) * (accuracies[rows, low + 1] - accuracies[rows, low])
    return np.where(below, np.nan, accuracy)


def _mean_from(costs: Floats, accuracies: Floats, start: float) -> Floats:
    """Return the mean accuracy over costs from `start` to 1."""
    left, right = np.maximum(costs[:, :-1], start), np.maximum(costs[:, 1:], start)
    width = costs[:, 1:] - costs[:, :-1]
    rise = accuracies[:, 1:] - accuracies[:, :-1]
    slope = np.where(width > 0, rise / np.where(width > 0, width, 1), 0.0)
    at_left = accuracies[:, :-1] + slope * (left - costs[:, :-1])
    at_right = accuracies[:, :-1] + slope * (right - costs[:, :-1])
    before = np.maximum(costs[:, 0] - start, 0) * accuracies[:, 0]
    return np.asarray((before + ((at_left + at_right) / 2 * (right - left)).sum(1)) / (1 - start))
