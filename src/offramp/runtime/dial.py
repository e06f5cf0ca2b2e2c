"""The settings of one network, and the one rule by which a budget picks among them."""

from collections.abc import Sequence
from decimal import ROUND_CEILING, Context

import torch
from torch import Tensor

from offramp.errors import BudgetError, InputError
from offramp.policy import OperatingPoint

__all__ = ["Dial", "check_reachable", "same_setting", "undominated"]

ROUNDING = 1e-6
"""By which a point may be dearer than what was asked for: a cost that was told, asked for again in single precision, is
enough."""


class Dial:
    """The operating points worth paying for, from cheap to accurate, and the rule by which budgets pick among them.

    The rule: the best accuracy on the tune split within the cost, the cheapest of equals. A point that costs no less
    than another and is no more accurate is dominated: it is no setting, and no budget picks it. What other samples
    cost differs from the tune split by chance, and by as much as those samples are harder or easier: `BudgetController`
    keeps an average where it must be kept.

    Args:
        points: Operating points with their tune `cost` and `accuracy` in `promised`, in any order.

    Attributes:
        points: As above; rows are numbers of these.
        settings: The points that are not dominated, ascending in cost and in accuracy.
        costs: What each setting cost on the tune split.

    Example:
        >>> cheap, dominated, dear = (
        ...     OperatingPoint("threshold", {}, (0, 1), torch.ones(2), promised={"cost": cost, "accuracy": accuracy})
        ...     for cost, accuracy in ((0.4, 0.8), (0.6, 0.7), (0.8, 0.9))
        ... )
        >>> Dial([dear, dominated, cheap]).rows(torch.tensor([0.7, 0.8, 2.0]))
        tensor([2, 0, 0])
    """

    def __init__(self, points: Sequence[OperatingPoint]) -> None:
        if not all({"cost", "accuracy"} <= set(point.promised) for point in points) or not points:
            raise InputError(
                "expected operating points with their cost and accuracy on the tune split in `promised`, got some "
                "without, or none; take them of a frontier"
            )
        self.points = tuple(points)
        rows = undominated([point.promised["cost"] for point in points], [_accuracy(point) for point in points])
        self.settings = tuple(points[row] for row in rows)
        self.costs = tuple(point.promised["cost"] for point in self.settings)
        self._rows = torch.tensor(rows)
        self._limits = torch.tensor(self.costs, dtype=torch.float64)

    def __len__(self) -> int:
        return len(self.settings)

    @property
    def cheapest(self) -> float:
        """What the cheapest setting cost on the tune split."""
        return self.costs[0]

    @property
    def dearest(self) -> float:
        """What the dearest setting cost on the tune split; it is the most accurate."""
        return self.costs[-1]

    def rows(self, budgets: Tensor) -> Tensor:
        """The setting for each budget.

        Args:
            budgets: `N` shares of the full network's cost; more than the dearest setting costs is not spent.

        Returns:
            `N` rows of `points`.

        Raises:
            BudgetError: If a budget is lower than the cheapest setting.
        """
        budgets = budgets.double()
        wrong = budgets[~(budgets.isfinite() & (budgets > 0))]
        if len(wrong):
            raise InputError(f"expected a budget as a share of the network's cost, such as 0.6, got {float(wrong[0])}")
        if len(budgets):
            check_reachable(float(budgets.min()), self.cheapest)
        places = torch.searchsorted(self._limits, budgets * (1 + ROUNDING), right=True) - 1
        return self._rows[places]

    def within(self, cost: float, *, full: float = 1.0, unit: str = "") -> OperatingPoint:
        """The setting for one cost.

        Args:
            cost: The most it may cost, as a share of the full network's.
            full: The full network's cost in the unit that messages tell costs in.
            unit: Its name, after a space.

        Raises:
            BudgetError: If even the cheapest setting costs more.
        """
        check_reachable(cost, self.cheapest, full=full, unit=unit)
        return self.points[int(self.rows(torch.tensor([cost], dtype=torch.float64)))]

    def reaching(self, accuracy: float) -> OperatingPoint | None:
        """The cheapest setting that reaches an accuracy on the tune split; None where none does.

        Args:
            accuracy: A share of right answers.
        """
        return next((point for point in self.settings if _accuracy(point) >= accuracy), None)


def undominated(costs: Sequence[float], accuracies: Sequence[float]) -> list[int]:
    """Find the points that no other dominates by costing no more and being no less accurate; of equals, the first.

    Args:
        costs: P costs.
        accuracies: P accuracies, or any other figures of which more is better.

    Returns:
        Places of the points, ascending in cost and in accuracy.

    Example:
        >>> undominated([0.8, 0.4, 0.6, 0.4], [0.9, 0.8, 0.8, 0.7])
        [1, 0]
    """
    places: list[int] = []
    for place in sorted(range(len(costs)), key=lambda place: (costs[place], -accuracies[place])):
        if not places or accuracies[place] > accuracies[places[-1]]:
            places.append(place)
    return places


def same_setting(one: OperatingPoint, other: OperatingPoint) -> bool:
    """Whether two points of one frontier let the same samples leave, whatever else is known or promised of them.

    Args:
        one: A point.
        other: Itself, itself with a guarantee, or another.

    Example:
        >>> from dataclasses import replace
        >>> parameters = {"threshold": torch.tensor(0.9)}
        >>> point = OperatingPoint("threshold", parameters, (0, 1), torch.ones(2), promised={"cost": 0.4})
        >>> others = replace(point, promised={"cost": 0.5}), replace(point, active=(1,))
        >>> [same_setting(point, other) for other in others]
        [True, False]
    """
    return one.parameters is other.parameters and one.active == other.active


def check_reachable(cost: float, cheapest: float, *, full: float = 1.0, unit: str = "") -> None:
    """Refuse a budget that no point meets.

    Args:
        cost: The budget, as a share of the full network's cost.
        cheapest: What the cheapest point costs.
        full: The full network's cost in the unit that messages tell costs in.
        unit: Its name, after a space.

    Raises:
        BudgetError: If the budget is lower than that.
    """
    if cheapest > cost * (1 + ROUNDING):
        least = _rounded_up(full * cheapest)
        raise BudgetError(
            f"no point costs {full * cost:.4g}{unit} or less; the cheapest costs {least:.4g}{unit}: ask for that or "
            "more, or fit smaller exits, such as the paper's"
        )


def _rounded_up(cost: float) -> float:
    """To four digits, as messages show it: what they tell to ask for is then enough."""
    return float(Context(prec=4, rounding=ROUND_CEILING).create_decimal(repr(cost)))


def _accuracy(point: OperatingPoint) -> float:
    return point.promised["accuracy"]
