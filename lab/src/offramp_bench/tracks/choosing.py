"""Choice of operating points on the tune split."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

__all__ = ["choose_points"]

NOISE = 0.2
"""Standard error of the difference of two accuracies, times the root of the number of samples: that of two points that
disagree on one sample in twenty-five."""


def choose_points(
    costs: Sequence[float], accuracies: Sequence[float], budgets: npt.NDArray[np.float64], *, samples: int
) -> list[int]:
    """Return the points chosen for some budgets, in ascending order of cost.

    For each budget: of the points within it, the most expensive one whose accuracy is within noise of the best. Taking
    the best itself would stop at whichever early point was lucky on tune. The cheapest point is always among them.

    Args:
        costs: Relative cost of each point on tune.
        accuracies: Accuracy of each point on tune.
        budgets: Relative costs.
        samples: Number of tune samples.

    Example:
        >>> choose_points([0.5, 0.2, 0.4], [0.899, 0.9, 0.7], np.array([0.3, 0.45, 1.0]), samples=2000)
        [1, 0]
    """
    point_costs, point_accuracies = np.asarray(costs), np.asarray(accuracies)
    indices = {int(point_costs.argmin())}
    for budget in [*budgets.tolist(), np.inf]:
        affordable = np.flatnonzero(point_costs <= budget)
        if len(affordable):
            near_best = affordable[
                point_accuracies[affordable] >= point_accuracies[affordable].max() - NOISE / samples**0.5
            ]
            indices.add(int(near_best[point_costs[near_best].argmax()]))
    return sorted(indices, key=lambda index: point_costs[index])
