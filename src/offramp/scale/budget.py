"""A budget for a whole job whose blocks end late and in any order."""

import math
from collections.abc import Sequence

from offramp.errors import InputError
from offramp.runtime.budget import check_settings, nearest_setting
from offramp.runtime.dial import check_reachable

__all__ = ["JobBudget"]


class JobBudget:
    r"""Says what to ask of each block of a job, so that all of it together costs a budget.

    `BudgetController` is told what a batch has cost before the next begins. Here D blocks are under way when the next
    is asked for, and they end in any order. What those that ended have spent beyond the budget is a debt; those under
    way are counted at what they will cost if they are to what they were asked for as those that ended were to theirs,
    within the settings there are:

    $$\hat Q = \sum_{ended} (c_k - n_k b) + \sum_{under\ way} n_k (\hat u_k - b),
      \qquad \hat u_k = \min(d, \max(a, r u_k)), \quad r = \frac{\sum_{ended} c_k}{\sum_{ended} n_k u_k}$$

    with the budget $b$, the cheapest setting's cost $a$ and the dearest's $d$, $a \le b \le d$, of a block its rows
    $n_k$, its cost $c_k$ and what it was asked for a sample, $u_k$. The next block of n rows is asked to pay back over
    twice the rows that are then under way, F and its own, or over the R rows that nobody was asked for if they are
    fewer, at the setting whose cost is nearest to

    $$u = b - \hat Q / W, \qquad W = \min(2 (F + n), R)$$

    **Theorem.** Let every sample cost from $l \le a$ to $h \ge d$, no block have more than n rows and no more than D be
    under way when the next is asked for. If blocks that are asked for $a$ cost at most $b$ a sample, and those that are
    asked for $d$ at least $b$, then what was spent beyond the budget once all asked so far have ended, Q, is

    $$-2 (D + 1) n (d - b) - D n (d - l) - n (b - l) \le Q \le 2 (D + 1) n (b - a) + D n (h - a) + n (h - b)$$

    at any moment, and so at the end. It does not grow with the job: the average is off by at most that over its rows.
    Nothing else is assumed of the samples, of their order or of the order in which blocks end.

    *Proof*, of the right side; the left is its mirror. Let Q be of the blocks asked for before the next. It differs
    from $\hat Q$ by those under way: $Q - \hat Q = \sum (c_k - n_k \hat u_k) \le D n (h - a)$. If
    $\hat Q \ge 2 (D + 1) n (b - a)$, then $\hat Q \ge W (b - a)$: the next block is asked for $a$, costs at most $b$ a
    sample, and Q does not grow. Otherwise $Q < 2 (D + 1) n (b - a) + D n (h - a)$, and the next block adds at most
    $n (h - b)$. ∎

    That is the worst somebody could do who knows every rule here and chooses each sample. Where the dial is off by a
    factor that stays, as when samples are harder than those it was set on, the factor is known by the end, and what
    remains is chance: tests/scale/test_budget.py has figures.

    Args:
        budget: What a sample may cost on average, as a share of the full network's cost.
        settings: What the settings cost on the tune split, ascending: `Dial.costs`. More than the last is not spent.
        rows: Rows of the whole job.

    Attributes:
        spent: What the blocks that ended have cost, in costs of the full network.
        ended: Their rows.

    Example:
        >>> job = JobBudget(0.5, settings=(0.2, 0.45, 0.5, 1.0), rows=1000)
        >>> job.ask(0, 100)
        0.5
        >>> job.record(0, rows=100, asked=0.5, spent=60.0)  # 10 beyond the budget, to pay back over 200 rows
        >>> job.ask(1, 100)
        0.45
    """

    def __init__(self, budget: float, *, settings: Sequence[float], rows: int) -> None:
        if not (math.isfinite(budget) and budget > 0):
            raise InputError(f"expected a budget as a share of the network's cost, such as 0.4, got {budget}")
        check_settings(settings)
        check_reachable(budget, settings[0])
        self.spent = 0.0
        self.ended = 0
        self._budget, self._settings = budget, tuple(settings)
        self._left = rows
        self._asked = 0.0
        self._under_way: dict[int, tuple[int, float]] = {}

    def ask(self, block: int, rows: int) -> float:
        """What a block is to cost a sample; it counts as under way from now on.

        Args:
            block: What to know it by.
            rows: Its rows.
        """
        under_way = self._under_way.values()
        debt = self.spent - self._budget * self.ended
        debt += sum(count * (self._expected(asked) - self._budget) for count, asked in under_way)
        window = min(2 * (rows + sum(count for count, _ in under_way)), self._left)
        asked = nearest_setting(self._settings, self._budget - debt / window)
        self._under_way[block] = rows, asked
        self._left -= rows
        return asked

    def record(self, block: int, *, rows: int, asked: float, spent: float) -> None:
        """Note that a block has ended, one of this run or of an earlier one.

        Args:
            block: What to know it by.
            rows: Its rows.
            asked: What it was asked to cost a sample.
            spent: What all of them cost together, in costs of the full network.
        """
        if self._under_way.pop(block, None) is None:
            self._left -= rows
        self._asked += rows * asked
        self.spent += spent
        self.ended += rows

    def _expected(self, asked: float) -> float:
        """What a sample under way costs, going by those that ended."""
        if not self._asked:
            return asked
        return min(self._settings[-1], max(self._settings[0], asked * self.spent / self._asked))
