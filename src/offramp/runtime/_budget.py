"""Control of the average cost of a stream."""

import math
from bisect import bisect_left
from collections.abc import Sequence
from typing import SupportsFloat

from torch import Tensor

from offramp.errors import InputError
from offramp.runtime._dial import check_reachable

__all__ = ["WINDOW", "BudgetController", "check_budget", "pick_nearest"]

WINDOW = 100
"""Samples over which a debt is paid back. A shorter window follows changes faster, but also chance."""


class BudgetController:
    r"""A controller that keeps the average cost of a stream at a budget.

    The cost spent beyond the budget is the debt $Q_t = \sum_{s \le t} (c_s - n_s b)$, negative if less was spent: the
    virtual queue of [Neely2010]. The next batch pays it back over the next W samples, or over two batches as large as
    the largest so far if that is more, at the point whose cost is nearest:

    $$u_{t+1} = \mathop{\mathrm{argmin}}_{u \in U} |u - (b - Q_t / W_t)|, \quad W_t = \max(W, 2 n_1, \dots, 2 n_t)$$

    with the budget $b$ and the costs U of the points, from $a$ to $d$, $a \le b \le d$.

    **Theorem.** Let every sample cost from $l$ to $h$, with $l \le b \le h$, no batch have more than n samples, and
    $H = \max(W, 2n)$. If batches at the point $a$ cost at most $b$ per sample, and batches at $d$ at least $b$, then
    after every batch

    $$-H (d - b) - n (b - l) \le Q_t \le H (b - a) + n (h - b)$$

    and after T samples the average differs from the budget by at most the larger of these two distances over T.
    Nothing else is assumed of the stream: it may become harder, be sorted, or be chosen by an adversary who knows the
    controller.

    *Proof*, of the right side; the left is its mirror. It holds before the first batch, as $Q_0 = 0$. If
    $Q_t \ge H (b - a)$, then $b - Q_t / W_t \le a$, as $W_t \le H$: the next batch runs at $a$, costs at most $b$ per
    sample, and $Q$ does not grow. Otherwise it grows by at most $n (h - b)$ from below $H (b - a)$. ∎

    Where samples are so hard that even the cheapest point costs more than the budget, the debt grows, and is paid
    back when they are easier again.

    [Neely2010]: Stochastic Network Optimization with Application to Communication and Queueing Systems, Morgan &
    Claypool 2010.

    Args:
        budget: The average cost per sample, as a share of the full network's cost.
        costs: Tune costs of the points of the dial, ascending: `Dial.costs`. No more than the last is spent.
        window: W, the samples over which a debt is paid back; at least two batches are taken.

    Attributes:
        budget: As above.
        debt: The cost spent beyond the budget so far, in costs of the full network.
        count: Samples so far.

    Example:
        >>> controller = BudgetController(0.5, costs=(0.2, 0.4, 0.5, 1.0), window=10)
        >>> controller.next_budget
        0.5
        >>> controller.record([0.5, 1.0, 1.0])  # 1 beyond the budget of 3 samples: 0.1 per sample for ten
        >>> controller.next_budget
        0.4
    """

    def __init__(self, budget: float, *, costs: Sequence[float], window: int = WINDOW) -> None:
        check_budget(budget, costs)
        if window < 1:
            raise InputError("window", expected="at least 1 sample", got=f"{window}")
        self.budget = budget
        self.debt = 0.0
        self.count = 0
        self._costs = tuple(costs)
        self._window = window

    @property
    def next_budget(self) -> float:
        """The budget to give the next batch: the cost of a point of the dial."""
        return pick_nearest(self._costs, self.budget - self.debt / self._window)

    @property
    def average(self) -> float:
        """The average cost per sample so far; the budget before the first."""
        return self.budget + self.debt / max(1, self.count)

    def record(self, costs: Tensor | Sequence[float]) -> None:
        """Add the costs of a batch.

        Args:
            costs: `n` shares of the full network's cost: `answer.relative_cost`.
        """
        try:
            values = costs.tolist() if isinstance(costs, Tensor) else list(costs)
            spent = math.fsum(values)
        except TypeError as error:
            raise InputError(
                "costs", expected="one number per sample, answer.relative_cost", got=type(costs).__name__
            ) from error
        if not math.isfinite(spent):
            raise InputError("costs", expected=f"{len(values)} finite numbers", got=f"a sum of {spent}")
        self.debt += spent - self.budget * len(values)
        self.count += len(values)
        # Over a single batch a debt would be paid back twice, where costs rise faster than the budget asked for.
        self._window = max(self._window, 2 * len(values))


def check_budget(budget: float, costs: Sequence[float]) -> None:
    """Refuse a budget that is no share or below the cheapest point, and settings that are no ascending costs."""
    if not isinstance(budget, SupportsFloat) or not (math.isfinite(budget) and budget > 0):
        raise InputError("budget", expected="a share of the full network's cost, such as 0.6", got=budget)
    ascending = list(costs) == sorted(costs)
    if not costs or not ascending or not 0 <= costs[0] <= costs[-1] < math.inf:
        raise InputError("costs", expected="ascending costs, such as dial.costs", got=list(costs))
    check_reachable(budget, costs[0])


def pick_nearest(costs: Sequence[float], cost: float) -> float:
    """Pick from ascending costs the one nearest to `cost`; of two equally near, the cheaper."""
    place = bisect_left(costs, cost)
    return min(costs[max(0, place - 1) : place + 1], key=lambda near: abs(near - cost))
