"""A budget for a whole job whose blocks end late and in any order."""

from collections.abc import Sequence

from offramp.runtime._budget import check_budget, pick_nearest

__all__ = ["JobBudget"]


class JobBudget:
    r"""A target cost for each block of a job, so that the whole job costs its budget.

    `BudgetController` knows the cost of a batch before the next begins. Here D blocks still run when the next one
    starts, and they end in any order. The cost that finished blocks spent beyond the budget is a debt. The cost of
    running blocks is estimated: their target, times the ratio of cost to target over all finished blocks, clipped to
    the range of the points:

    $$\hat Q = \sum_{finished} (c_k - n_k b) + \sum_{running} n_k (\hat u_k - b),
      \qquad \hat u_k = \min(d, \max(a, r u_k)), \quad r = \frac{\sum_{finished} c_k}{\sum_{finished} n_k u_k}$$

    with the budget $b$, the costs of the cheapest point $a$ and of the most expensive $d$, $a \le b \le d$, and for
    each block its rows $n_k$, its cost $c_k$ and its target per sample $u_k$. The next block of n rows pays the debt
    back over twice the rows then running (F of the others and its own), or over the R rows that are not started if
    these are fewer. Its target is the point whose cost is nearest to

    $$u = b - \hat Q / W, \qquad W = \min(2 (F + n), R)$$

    **Theorem.** Let every sample cost from $l \le a$ to $h \ge d$, no block have more than n rows, and no more than D
    blocks run when the next one starts. If blocks with target $a$ cost at most $b$ per sample, and blocks with target
    $d$ at least $b$, then Q, the cost beyond the budget once all blocks started so far have ended, satisfies

    $$-2 (D + 1) n (d - b) - D n (d - l) - n (b - l) \le Q \le 2 (D + 1) n (b - a) + D n (h - a) + n (h - b)$$

    at any time, and so at the end. The bound does not grow with the job: the average is off by at most the bound over
    the rows of the job. Nothing else is assumed of the samples, their order, or the order in which blocks end.

    *Proof*, of the right side; the left is its mirror. Let Q be of the blocks started before the next. It differs
    from $\hat Q$ by the running ones: $Q - \hat Q = \sum (c_k - n_k \hat u_k) \le D n (h - a)$. If
    $\hat Q \ge 2 (D + 1) n (b - a)$, then $\hat Q \ge W (b - a)$: the next block has target $a$, costs at most $b$ per
    sample, and Q does not grow. Otherwise $Q < 2 (D + 1) n (b - a) + D n (h - a)$, and the next block adds at most
    $n (h - b)$. ∎

    The bound is for an adversary who knows the rule and chooses each sample. If costs differ from targets by a constant
    factor, as with samples harder than the tune split, the ratio $r$ learns the factor, and only chance remains:
    tests/scale/test_budget.py has figures.

    Args:
        budget: The average cost per sample, as a share of the full network's cost.
        costs: Tune costs of the points of the dial, ascending: `Dial.costs`. No more than the last is spent.
        rows: Rows of the whole job.

    Attributes:
        spent: The cost of finished blocks, in costs of the full network.
        finished_rows: Their rows.

    Example:
        >>> job = JobBudget(0.5, costs=(0.2, 0.45, 0.5, 1.0), rows=1000)
        >>> job.start(0, 100)
        0.5
        >>> job.record(0, rows=100, target=0.5, spent=60.0)  # 10 beyond the budget, to pay back over 200 rows
        >>> job.start(1, 100)
        0.45
    """

    def __init__(self, budget: float, *, costs: Sequence[float], rows: int) -> None:
        check_budget(budget, costs)
        self.spent = 0.0
        self.finished_rows = 0
        self._budget, self._costs = budget, tuple(costs)
        self._unstarted_rows = rows
        self._targets = 0.0  # of finished blocks, times their rows
        self._running: dict[int, tuple[int, float]] = {}

    def start(self, block: int, rows: int) -> float:
        """Start a block, and return its target cost per sample.

        Args:
            block: Its number.
            rows: Its rows.
        """
        running = self._running.values()
        debt = self.spent - self._budget * self.finished_rows
        debt += sum(count * (self._estimate(target) - self._budget) for count, target in running)
        window = min(2 * (rows + sum(count for count, _ in running)), self._unstarted_rows)
        target = pick_nearest(self._costs, self._budget - debt / window)
        self._running[block] = rows, target
        self._unstarted_rows -= rows
        return target

    def record(self, block: int, *, rows: int, target: float, spent: float) -> None:
        """Add a finished block, of this run or of an earlier one.

        Args:
            block: Its number.
            rows: Its rows.
            target: Its target cost per sample.
            spent: The cost of all its rows, in costs of the full network.
        """
        if self._running.pop(block, None) is None:
            self._unstarted_rows -= rows
        self._targets += rows * target
        self.spent += spent
        self.finished_rows += rows

    def _estimate(self, target: float) -> float:
        """Estimate the cost per sample of a running block, by the finished ones."""
        if not self._targets:
            return target
        return min(self._costs[-1], max(self._costs[0], target * self.spent / self._targets))
