"""The dial of a model: the points on its Pareto front, and the rule by which a budget picks one."""

from collections.abc import Sequence
from decimal import ROUND_CEILING, Context

import torch
from torch import Tensor

from offramp.errors import BudgetError, InputError
from offramp.policy import OperatingPoint

__all__ = ["Dial", "check_reachable", "find_pareto_front", "same_decisions"]

ROUNDING = 1e-6
"""Relative tolerance of a budget: the cost of a point, rounded to single precision, must be enough to pick it."""


class Dial:
    """The operating points on the Pareto front of cost and accuracy, and the rule by which budgets pick among them.

    The rule: the best accuracy on the tune split within the cost; the cheapest of equals. A dominated point, which
    costs no less than another and is no more accurate, is never picked. Costs on other samples differ from those on
    the tune split; where an average cost must be kept, use `BudgetController`.

    Args:
        points: Operating points with their tune `cost` and `accuracy` in `tune_metrics`, in any order.

    Attributes:
        points: As above; `pick_rows` returns indices into them.
        front: The points that are not dominated, ascending in cost and in accuracy.
        costs: The tune cost of each point of `front`.

    Example:
        >>> cheap, dominated, dear = (
        ...     OperatingPoint("threshold", {}, (0, 1), torch.ones(2), tune_metrics={"cost": cost, "accuracy": right})
        ...     for cost, right in ((0.4, 0.8), (0.6, 0.7), (0.8, 0.9))
        ... )
        >>> Dial([dear, dominated, cheap]).pick_rows(torch.tensor([0.7, 0.8, 2.0]))
        tensor([2, 0, 0])
    """

    def __init__(self, points: Sequence[OperatingPoint]) -> None:
        if not points or not all({"cost", "accuracy"} <= set(point.tune_metrics) for point in points):
            raise InputError(
                "operating points",
                expected="cost and accuracy on the tune split for each, in `tune_metrics`",
                got="points without them" if points else "no points",
                hint="take the points of a frontier",
            )
        self.points = tuple(points)
        rows = find_pareto_front(
            [point.tune_metrics["cost"] for point in points], [_accuracy(point) for point in points]
        )
        self.front = tuple(points[row] for row in rows)
        self.costs = tuple(point.tune_metrics["cost"] for point in self.front)
        self._rows = torch.tensor(rows)
        self._limits = torch.tensor(self.costs, dtype=torch.float64)

    def __len__(self) -> int:
        return len(self.front)

    @property
    def cheapest(self) -> float:
        """The tune cost of the cheapest point."""
        return self.costs[0]

    @property
    def most_expensive(self) -> float:
        """The tune cost of the most expensive point of `front`, which is the most accurate."""
        return self.costs[-1]

    def pick_rows(self, budgets: Tensor) -> Tensor:
        """Pick a point for each budget.

        Args:
            budgets: `N` shares of the full network's cost; more than the most expensive point costs is not spent.

        Returns:
            `N` indices into `points`.

        Raises:
            BudgetError: If a budget is lower than the cost of the cheapest point.
        """
        budgets = budgets.double()
        wrong = budgets[~(budgets.isfinite() & (budgets > 0))]
        if len(wrong):
            raise InputError(
                "budget", expected="a share of the full network's cost, such as 0.6", got=f"{float(wrong[0])}"
            )
        if len(budgets):
            check_reachable(float(budgets.min()), self.cheapest)
        places = torch.searchsorted(self._limits, budgets * (1 + ROUNDING), right=True) - 1
        return self._rows[places]

    def pick_by_cost(self, cost: float, *, full: float = 1.0, unit: str = "") -> OperatingPoint:
        """Pick the most accurate point within a cost.

        Args:
            cost: The highest cost, as a share of the full network's.
            full: The full network's cost in the unit of error messages.
            unit: The name of that unit, after a space.

        Raises:
            BudgetError: If even the cheapest point costs more.
        """
        check_reachable(cost, self.cheapest, full=full, unit=unit)
        return self.points[int(self.pick_rows(torch.tensor([cost], dtype=torch.float64)))]

    def pick_by_accuracy(self, accuracy: float) -> OperatingPoint | None:
        """Pick the cheapest point that reaches an accuracy on the tune split, if any does.

        Args:
            accuracy: A share of right answers.
        """
        return next((point for point in self.front if _accuracy(point) >= accuracy), None)


def find_pareto_front(costs: Sequence[float], accuracies: Sequence[float]) -> list[int]:
    """Find the points that no other point dominates by costing no more and being no less accurate.

    Of equal points the first is kept.

    Args:
        costs: P costs.
        accuracies: P accuracies, or any other figures of which more is better.

    Returns:
        Indices of the points, ascending in cost and in accuracy.
    """
    front: list[int] = []
    for row in sorted(range(len(costs)), key=lambda row: (costs[row], -accuracies[row])):
        if not front or accuracies[row] > accuracies[front[-1]]:
            front.append(row)
    return front


def same_decisions(point: OperatingPoint, other: OperatingPoint) -> bool:
    """Return True if two points of one frontier make the same samples leave, whatever their figures and guarantees."""
    return point.parameters is other.parameters and point.active == other.active


def check_reachable(cost: float, cheapest: float, *, full: float = 1.0, unit: str = "") -> None:
    """Raise `BudgetError` if a budget is below the cheapest cost; the message states both times `full`, in `unit`."""
    if cheapest > cost * (1 + ROUNDING):
        raise BudgetError(
            "no operating point is within the budget",
            expected=f"{_round_up(full * cheapest):.4g}{unit} or more, the cost of the cheapest point",
            got=f"{full * cost:.4g}{unit}",
            hint="raise the budget, or fit smaller exits, such as the paper's",
        )


def _round_up(cost: float) -> float:
    """Round up to four digits, as messages show it, so that the cost in a message is enough."""
    return float(Context(prec=4, rounding=ROUND_CEILING).create_decimal(repr(cost)))


def _accuracy(point: OperatingPoint) -> float:
    return point.tune_metrics["accuracy"]
