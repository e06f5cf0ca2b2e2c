"""Keeping an average budget on a stream, whatever comes."""

import math
from collections.abc import Sequence
from typing import SupportsFloat

from torch import Tensor

from offramp.errors import InputError
from offramp.runtime.dial import check_reachable

__all__ = ["WINDOW", "BudgetController"]

WINDOW = 100
"""Samples over which a debt is paid back: fewer follow a change faster, and follow chance as fast."""


class BudgetController:
    r"""Says what to ask the dial for next, so that a stream costs a budget on average.

    What was spent beyond the budget is a debt $Q_t = \sum_{s \le t} (c_s - n_s b)$, negative if less was spent: the
    virtual queue of [Neely2010]. The next batch is asked to pay it back over the next W samples, or over two batches as
    large as the largest so far if that is longer, within the settings there are:

    $$u_{t+1} = \min(d, \max(a, b - Q_t / W_t)), \quad W_t = \max(W, 2 n_1, \dots, 2 n_t)$$

    with the budget $b$, the cheapest setting's cost $a$ and the dearest's $d$, $a \le b \le d$.

    **Theorem.** Let every sample cost from $l$ to $h$, with $l \le b \le h$, no batch have more than n samples, and
    $H = \max(W, 2n)$. If batches that are asked for $a$ cost at most $b$ a sample, and batches that are asked for $d$
    at least $b$, then after every batch

    $$-H (d - b) - n (b - l) \le Q_t \le H (b - a) + n (h - b)$$

    and after T samples the average is within the larger of these two distances over T of the budget. Nothing else is
    assumed of the stream: it may turn harder, be sorted, or be chosen by somebody who knows the controller.

    *Proof*, of the right side; the left is its mirror. It holds before the first batch, as $Q_0 = 0$. If
    $Q_t \ge H (b - a)$, then $b - Q_t / W_t \le a$, as $W_t \le H$: the next batch is asked for $a$, costs at most $b$
    a sample, and $Q$ does not grow. Otherwise it grows by at most $n (h - b)$ from below $H (b - a)$. ∎

    Where even the cheapest setting costs more than the budget, as samples are so hard, the debt grows and is paid back
    when they are easier again. [Neely2010] is Neely: Stochastic Network Optimization with Application to Communication
    and Queueing Systems, Morgan & Claypool 2010.

    Args:
        budget: What a sample may cost on average, as a share of the bare network's cost.
        cheapest: What the cheapest setting costs by its promise.
        dearest: What the dearest setting costs; a budget above that is not spent.
        window: W, the samples over which a debt is paid back, two batches at least.

    Attributes:
        budget: As above.
        debt: What was spent beyond the budget so far, in costs of the bare network.
        count: Samples so far.

    Example:
        >>> controller = BudgetController(0.5, cheapest=0.2, dearest=1.0, window=10)
        >>> controller.asked
        0.5
        >>> controller.record([0.5, 1.0, 1.0])  # 1 beyond the budget of 3 samples: 0.1 a sample for ten
        >>> round(controller.asked, 3)
        0.4
    """

    def __init__(self, budget: float, *, cheapest: float, dearest: float, window: int = WINDOW) -> None:
        if not isinstance(budget, SupportsFloat) or not (math.isfinite(budget) and budget > 0):
            raise InputError(f"expected a budget as a share of the network's cost, such as 0.6, got {budget!r}")
        if not 0 <= cheapest <= dearest < math.inf:
            raise InputError(f"expected the cheapest setting's cost and a dearest no lower, got {cheapest}, {dearest}")
        if window < 1:
            raise InputError(f"expected a window of at least 1 sample, got {window}")
        check_reachable(budget, cheapest)
        self.budget = budget
        self.debt = 0.0
        self.count = 0
        self._ends = cheapest, dearest
        self._window = window

    @property
    def asked(self) -> float:
        """What to ask the dial for next: between the cheapest setting's cost and the dearest's."""
        cheapest, dearest = self._ends
        return min(dearest, max(cheapest, self.budget - self.debt / self._window))

    @property
    def average(self) -> float:
        """What a sample has cost on average so far; the budget before the first."""
        return self.budget + self.debt / max(1, self.count)

    def record(self, costs: Tensor | Sequence[float]) -> None:
        """Note what the samples of a batch have cost.

        Args:
            costs: `n` shares of the bare network's cost: `answer.relative_cost`.
        """
        try:
            listed = costs.tolist() if isinstance(costs, Tensor) else list(costs)
            spent = math.fsum(listed)
        except TypeError as error:
            raise InputError(
                f"expected what each sample of a batch has cost, answer.relative_cost, got {type(costs).__name__}"
            ) from error
        if not math.isfinite(spent):
            raise InputError(f"expected finite costs of {len(listed)} samples, got some that add up to {spent}")
        self.debt += spent - self.budget * len(listed)
        self.count += len(listed)
        # Over a single batch a debt would be paid back twice where costs rise faster than what is asked for.
        self._window = max(self._window, 2 * len(listed))
