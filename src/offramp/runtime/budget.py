"""Keeping an average budget on a stream, whatever comes."""

import math
from bisect import bisect_left
from collections.abc import Sequence
from typing import SupportsFloat

from torch import Tensor

from offramp.errors import InputError
from offramp.runtime.dial import check_reachable

__all__ = ["WINDOW", "BudgetController", "check_settings", "nearest_setting"]

WINDOW = 100
"""Samples over which a debt is paid back: fewer follow a change faster, and follow chance as fast."""


class BudgetController:
    r"""Says what to ask the dial for next, so that a stream costs a budget on average.

    What was spent beyond the budget is a debt $Q_t = \sum_{s \le t} (c_s - n_s b)$, negative if less was spent: the
    virtual queue of [Neely2010]. The next batch is asked to pay it back over the next W samples, or over two batches as
    large as the largest so far if that is longer, at the setting whose cost is nearest:

    $$u_{t+1} = \mathop{\mathrm{argmin}}_{u \in U} |u - (b - Q_t / W_t)|, \quad W_t = \max(W, 2 n_1, \dots, 2 n_t)$$

    with the budget $b$ and the costs U of the settings, from $a$ to $d$, $a \le b \le d$. Between two settings it
    moves from one to the other and back.

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
        budget: What a sample may cost on average, as a share of the full network's cost.
        settings: What the settings cost on the tune split, ascending: `Dial.costs`. More than the last is not spent.
        window: W, the samples over which a debt is paid back, two batches at least.

    Attributes:
        budget: As above.
        debt: What was spent beyond the budget so far, in costs of the full network.
        count: Samples so far.

    Example:
        >>> controller = BudgetController(0.5, settings=(0.2, 0.4, 0.5, 1.0), window=10)
        >>> controller.asked
        0.5
        >>> controller.record([0.5, 1.0, 1.0])  # 1 beyond the budget of 3 samples: 0.1 per sample for ten
        >>> controller.asked
        0.4
    """

    def __init__(self, budget: float, *, settings: Sequence[float], window: int = WINDOW) -> None:
        if not isinstance(budget, SupportsFloat) or not (math.isfinite(budget) and budget > 0):
            raise InputError(f"expected a budget as a share of the network's cost, such as 0.6, got {budget!r}")
        if window < 1:
            raise InputError(f"expected a window of at least 1 sample, got {window}")
        check_settings(settings)
        check_reachable(budget, settings[0])
        self.budget = budget
        self.debt = 0.0
        self.count = 0
        self._settings = tuple(settings)
        self._window = window

    @property
    def asked(self) -> float:
        """What to ask the dial for next: the cost of one of its settings."""
        return nearest_setting(self._settings, self.budget - self.debt / self._window)

    @property
    def average(self) -> float:
        """What a sample has cost on average so far; the budget before the first."""
        return self.budget + self.debt / max(1, self.count)

    def record(self, costs: Tensor | Sequence[float]) -> None:
        """Note what the samples of a batch have cost.

        Args:
            costs: `n` shares of the full network's cost: `answer.relative_cost`.
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


def check_settings(settings: Sequence[float]) -> None:
    """Refuse what are no costs of settings.

    Args:
        settings: Costs, ascending.
    """
    ascending = list(settings) == sorted(settings)
    if not settings or not ascending or not 0 <= settings[0] <= settings[-1] < math.inf:
        raise InputError(f"expected the costs of settings in ascending order, such as dial.costs, got {list(settings)}")


def nearest_setting(settings: Sequence[float], cost: float) -> float:
    """The cost of the setting nearest to a cost, of two as near the cheaper.

    Args:
        settings: Costs, ascending.
        cost: Any number.

    Example:
        >>> [nearest_setting((0.2, 0.4, 1.0), cost) for cost in (-1.0, 0.29, 0.3, 0.69, 0.71, 9.0)]
        [0.2, 0.2, 0.2, 0.4, 1.0, 1.0]
    """
    place = bisect_left(settings, cost)
    return min(settings[max(0, place - 1) : place + 1], key=lambda setting: abs(setting - cost))
