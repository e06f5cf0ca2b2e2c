"""From operating points on a test set to one curve, and from a curve to one number that can be paired."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["Curve", "accuracies_at", "area_rows", "axis", "chosen", "cost_of", "weights_at"]

Floats = npt.NDArray[np.float64]

GRID = 65
"""Costs at which accuracies are averaged."""

NOISE = 0.2
"""Standard error of the difference of two accuracies, times the root of the number of samples: that of two points who
disagree on one sample in twenty-five."""


@dataclass(frozen=True)
class Curve:
    """Points in ascending order of cost, chosen on tune, measured on test."""

    costs: Floats
    """`P` relative costs on test."""
    correct: npt.NDArray[np.bool_]
    """`P x N`: who is answered right."""


def chosen(costs: Sequence[float], accuracies: Sequence[float], budgets: Floats, *, samples: int) -> list[int]:
    """Points that somebody would take on tune for one budget or another, in ascending order of cost.

    For each budget, of the points that cost no more, the dearest that is within noise of the most accurate: taking the
    most accurate itself would stop at whichever early point was lucky on tune. The cheapest point is always among them:
    what is cheap enough on tune may be a little too dear on test.

    Args:
        costs: Of each point, on tune.
        accuracies: The same.
        budgets: Relative costs to spend.
        samples: How many the tune split has.

    Example:
        >>> chosen([0.5, 0.2, 0.4], [0.899, 0.9, 0.7], np.array([0.3, 0.45, 1.0]), samples=2000)
        [1, 0]
    """
    spent, right = np.asarray(costs), np.asarray(accuracies)
    kept = {int(spent.argmin())}
    for budget in [*budgets.tolist(), np.inf]:
        paid = np.flatnonzero(spent <= budget)
        if len(paid):
            good = paid[right[paid] >= right[paid].max() - NOISE / samples**0.5]
            kept.add(int(good[spent[good].argmax()]))
    return sorted(kept, key=lambda index: spent[index])


def axis(first_cost: float) -> Floats:
    """Costs from the first exit's, .02 at least, to 1, evenly spread on a logarithmic scale.

    Args:
        first_cost: What leaving at the first exit costs.
    """
    return np.geomspace(max(0.02, first_cost), 1.0, GRID)


def weights_at(costs: Floats, asked: Floats) -> Floats:
    """Shares of the points in the mixture of two neighbours that costs exactly what is asked, `G x P`.

    Who sends a share of the samples to one point and the rest to the next pays the mixture of their costs and gets the
    mixture of their accuracies: the curve between two points can be had. Below the first point there is nothing, above
    the last there is that.

    Args:
        costs: `P` costs of the points, in any order.
        asked: `G` costs.

    Example:
        >>> weights_at(np.array([0.2, 0.6]), np.array([0.1, 0.3, 0.9])).round(2).tolist()
        [[0.0, 0.0], [0.75, 0.25], [0.0, 1.0]]
    """
    order = np.argsort(costs, kind="stable")
    ascending = costs[order]
    above = np.searchsorted(ascending, asked, side="right")
    found = np.zeros((len(asked), len(costs)))
    for row, (cost, right) in enumerate(zip(asked.tolist(), above.tolist(), strict=True)):
        if right == 0:
            continue
        if right == len(ascending):
            found[row, order[-1]] = 1
            continue
        low, high = ascending[right - 1], ascending[right]
        share = (cost - low) / (high - low)
        found[row, order[right - 1]], found[row, order[right]] = 1 - share, share
    return found


def area_rows(curve: Curve, asked: Floats, *, nothing: npt.NDArray[np.bool_]) -> Floats:
    """What each sample adds to the mean accuracy over costs: its mean over samples is the area.

    Args:
        curve: The curve.
        asked: Costs to average over.
        nothing: `N`, who is answered right where no point is cheap enough: by the commonest class.

    Returns:
        `N` numbers in [0, 1]; those of two curves can be subtracted, sample by sample.
    """
    weights = weights_at(curve.costs, asked)
    unpaid = 1 - weights.sum(1)
    return np.asarray((weights.mean(0) @ curve.correct) + unpaid.mean() * nothing)


def accuracies_at(costs: Floats, accuracies: Floats, asked: Floats) -> Floats:
    """Accuracies along a curve, NaN below its first point.

    Args:
        costs: `P` costs of the points.
        accuracies: `P` accuracies.
        asked: `G` costs.
    """
    weights = weights_at(costs, asked)
    return np.where(weights.sum(1) > 0, weights @ accuracies, np.nan)


def cost_of(costs: Floats, accuracies: Floats, wanted: float) -> float:
    """The least cost of some from which on an accuracy is kept; infinite if the dearest does not have it.

    Not where it is first reached: on a test set that is wherever the curve is lucky first.

    Args:
        costs: `G` costs in ascending order.
        accuracies: `G` accuracies, NaN where there is none.
        wanted: The accuracy.

    Example:
        >>> cost_of(np.array([0.1, 0.2, 0.4, 0.6]), np.array([np.nan, 0.86, 0.8, 0.9]), 0.85)
        0.6
    """
    kept = np.logical_and.accumulate((accuracies >= wanted)[::-1])[::-1]
    return float(costs[kept.argmax()]) if kept.any() else float("inf")
