"""The operating points of one network in order of cost, and the one that a budget is spent at."""

from collections.abc import Sequence
from decimal import ROUND_CEILING, Context

import torch
from torch import Tensor

from offramp.errors import BudgetError, InputError
from offramp.policy import OperatingPoint

__all__ = ["AS_GOOD_ON_TUNE", "Dial", "affordable", "check_reachable", "same_setting"]

AS_GOOD_ON_TUNE = 0.01
"""Accuracies on the tune split that differ by less do not keep a budget from being spent: of two points that answer one
sample in fifty differently, a thousand samples do not tell the better one."""

ROUNDING = 1e-6
"""By which a point may be dearer than what was asked for: a cost that was told, asked for again in single precision, is
enough."""


class Dial:
    """Settings of a network from cheap to dear, for budgets to pick from.

    A budget is aimed at: it picks the setting whose cost on the tune split was nearest. Points that were dearer than
    another and clearly less accurate are no settings. What other samples cost differs from the budget by half the
    distance between settings, by chance, and by as much as those samples are harder or easier: `BudgetController`
    keeps it where it must be kept.

    Args:
        points: Operating points with their tune `cost` and `accuracy` in `promised`, in any order.

    Attributes:
        points: As above; rows are numbers of these.

    Example:
        >>> cheap, dear = (
        ...     OperatingPoint("threshold", {}, (0, 1), torch.ones(2), promised={"cost": cost, "accuracy": 0.9})
        ...     for cost in (0.4, 0.8)
        ... )
        >>> Dial([dear, cheap]).rows(torch.tensor([0.7, 0.5]))
        tensor([0, 1])
    """

    def __init__(self, points: Sequence[OperatingPoint]) -> None:
        if not all({"cost", "accuracy"} <= set(point.promised) for point in points) or not points:
            raise InputError(
                "expected operating points with their cost and accuracy on the tune split in `promised`, got some "
                "without, or none; take them of a frontier"
            )
        self.points = tuple(points)
        by_cost = sorted(range(len(points)), key=lambda row: points[row].promised["cost"])
        kept: list[int] = []
        best = 0.0
        for row in by_cost:
            accuracy = points[row].promised["accuracy"]
            if not kept or accuracy >= best - AS_GOOD_ON_TUNE:
                kept.append(row)
            best = max(best, accuracy)
        self._rows = torch.tensor(kept)
        self._costs = torch.tensor([points[row].promised["cost"] for row in kept], dtype=torch.float64)
        self._between = (self._costs[1:] + self._costs[:-1]) / 2

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def cheapest(self) -> float:
        """What the cheapest setting cost on the tune split."""
        return float(self._costs[0])

    @property
    def dearest(self) -> float:
        """What the dearest setting cost on the tune split."""
        return float(self._costs[-1])

    def rows(self, budgets: Tensor) -> Tensor:
        """The setting for each budget.

        Args:
            budgets: `N` shares of the bare network's cost; more than the dearest setting costs is not spent.

        Returns:
            `N` rows of `points`.
        """
        budgets = budgets.double()
        wrong = budgets[~(budgets.isfinite() & (budgets > 0))]
        if len(wrong):
            raise InputError(f"expected a budget as a share of the network's cost, such as 0.6, got {float(wrong[0])}")
        if len(budgets):
            check_reachable(float(budgets.min()), self.cheapest)
        return self._rows[torch.searchsorted(self._between, budgets)]


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


def affordable(
    points: Sequence[OperatingPoint], cost: float, *, bare: float = 1.0, unit: str = ""
) -> Sequence[OperatingPoint]:
    """Those of some points that cost no more than what is asked for.

    Args:
        points: Points in ascending order of their cost on the tune split.
        cost: The most they may cost, as a share of the bare network's.
        bare: The bare network's cost in the unit that messages tell costs in.
        unit: Its name, after a space.

    Raises:
        BudgetError: If even the first costs more.

    Example:
        >>> point = OperatingPoint("threshold", {}, (0, 1), torch.ones(2), promised={"cost": 0.4})
        >>> len(affordable([point], 0.5))
        1
    """
    check_reachable(cost, points[0].promised["cost"], bare=bare, unit=unit)
    return [point for point in points if point.promised["cost"] <= cost * (1 + ROUNDING)]


def check_reachable(cost: float, cheapest: float, *, bare: float = 1.0, unit: str = "") -> None:
    """Refuse a budget that no point meets.

    Args:
        cost: The budget, as a share of the bare network's cost.
        cheapest: What the cheapest point costs.
        bare: The bare network's cost in the unit that messages tell costs in.
        unit: Its name, after a space.

    Raises:
        BudgetError: If the budget is lower than that.
    """
    if cheapest > cost * (1 + ROUNDING):
        least = _rounded_up(bare * cheapest)
        raise BudgetError(
            f"no point costs {bare * cost:.4g}{unit} or less; the cheapest costs {least:.4g}{unit}: ask for that or "
            "more, or fit smaller exits, such as the paper's"
        )


def _rounded_up(cost: float) -> float:
    """To four digits, as messages show it: what they tell to ask for is then enough."""
    return float(Context(prec=4, rounding=ROUND_CEILING).create_decimal(repr(cost)))
