"""A budget for a whole job: the bounds that are proved, on the worst there is, and what jobs like real ones come to."""

from collections.abc import Callable

import numpy as np
import pytest

from offramp.errors import BudgetError, InputError
from offramp.scale.budget import JobBudget
from tests.cases import each

Spend = Callable[[int, float], float]
"""What a sample of a block costs that was asked for so much."""


def overspent(job: JobBudget, sizes: list[int], at_most: int, spend: Spend, *, seed: int, budget: float) -> list[float]:
    """What was spent beyond the budget by all blocks asked so far, after each; they end in any order."""
    draw = np.random.default_rng(seed)
    under_way: list[tuple[int, float, float]] = []
    debts, debt = [], 0.0
    for block, size in enumerate(sizes):
        while len(under_way) > at_most or (under_way and draw.random() < 0.2):
            ended, asked, spent = under_way.pop(int(draw.integers(len(under_way))))
            job.record(ended, rows=sizes[ended], asked=asked, spent=spent)
        asked = job.ask(block, size)
        spent = size * spend(block, asked)
        under_way.append((block, asked, spent))
        debt += spent - size * budget
        debts.append(debt)
    return debts


@each("seed", range(100))
def test_bounds_hold_whatever_blocks_cost_and_whenever_they_end(seed: int) -> None:
    draw = np.random.default_rng(seed)
    least, cheapest, budget, dearest, most = np.sort(draw.uniform(0.01, 1.3, 5)).tolist()
    at_most, sizes = int(draw.integers(0, 12)), draw.integers(1, draw.integers(2, 200), 300).tolist()
    kinds = np.repeat(draw.choice([least, most, *draw.uniform(least, most, 4)], 300), draw.integers(1, 60))

    def spend(block: int, asked: float) -> float:
        """All that the theorem assumes: the cheapest setting costs no more than the budget, the dearest no less."""
        cost = float(kinds[block])
        if asked == cheapest:
            cost = min(cost, budget)
        return max(cost, budget) if asked == dearest else cost

    settings = [cheapest, *sorted(draw.uniform(cheapest, dearest, draw.integers(0, 9)).tolist()), dearest]
    job = JobBudget(budget, settings=settings, rows=sum(sizes))
    debts = overspent(job, sizes, at_most, spend, seed=seed, budget=budget)
    rows, window = max(sizes), 2 * (at_most + 1) * max(sizes)
    high = window * (budget - cheapest) + at_most * rows * (most - cheapest) + rows * (most - budget)
    low = window * (dearest - budget) + at_most * rows * (dearest - least) + rows * (budget - least)
    assert -low - 1e-9 <= min(debts)
    assert max(debts) <= high + 1e-9


def test_somebody_who_knows_the_rules_comes_near_the_bound() -> None:
    """So the bound is not much wider than it must be."""
    budget, cheapest, at_most, rows = 0.4, 0.2, 4, 100

    def spend(block: int, asked: float) -> float:
        return budget if asked == cheapest else 1.2

    job = JobBudget(budget, settings=np.linspace(cheapest, 1.0, 801).tolist(), rows=400 * rows)
    debts = overspent(job, [rows] * 400, at_most, spend, seed=0, budget=budget)
    high = 10 * rows * (budget - cheapest) + at_most * rows * (1.2 - cheapest) + rows * (1.2 - budget)
    assert 0.3 * high < max(debts) <= high


HARDER: dict[str, Spend] = {
    "as they are": lambda block, asked: asked,
    "harder": lambda block, asked: 1.2 * asked,
    "easier": lambda block, asked: 0.8 * asked,
    "ever harder": lambda block, asked: (0.8 + block / 240) * asked,
    "suddenly harder near the end": lambda block, asked: (1.0 if block < 108 else 1.4) * asked,
    "in stretches": lambda block, asked: (0.7 if block // 20 % 2 else 1.3) * asked,
    "by settings far apart": lambda block, asked: asked,
}


@each("kind", HARDER)
def test_a_job_of_thirty_blocks_for_each_under_way_spends_two_percent_more_at_most(kind: str) -> None:
    budget, blocks, rows = 0.4, 120, 256
    noise = np.random.default_rng(0)

    def spend(block: int, asked: float) -> float:
        return float(np.clip(HARDER[kind](block, asked) + noise.normal(scale=0.3 / rows**0.5), 0.15, 1.1))

    settings = np.linspace(0.2, 1.0, 8 if kind == "by settings far apart" else 1601).tolist()
    for seed in range(10):
        job = JobBudget(budget, settings=settings, rows=blocks * rows)
        spent = overspent(job, [rows] * blocks, 4, spend, seed=seed, budget=budget)[-1]
        share = spent / (budget * blocks * rows)
        # Some is left unspent where the last are suddenly easy: nothing is left to spend it on.
        assert -0.03 <= share <= 0.02


def test_blocks_of_an_earlier_run_count() -> None:
    job = JobBudget(0.5, settings=(0.2, 0.4, 0.5, 1.0), rows=1000)
    job.record(0, rows=100, asked=0.5, spent=70.0)
    assert job.ask(1, 100) == pytest.approx(0.5 - 20 / 200)
    assert (job.spent, job.ended) == (70.0, 100)


def test_at_the_end_what_is_left_is_asked_for() -> None:
    job = JobBudget(0.5, settings=(0.2, 0.4, 0.5, 1.0), rows=300)
    for block, spent in ((0, 60.0), (1, 50.0)):
        job.record(block, rows=100, asked=0.5, spent=spent)
    assert job.ask(2, 100) == pytest.approx(0.4)  # 150 in all


def test_what_cannot_be_kept_is_refused() -> None:
    with pytest.raises(BudgetError, match=r"the cheapest costs 0\.2"):
        JobBudget(0.1, settings=(0.2, 0.4, 0.5, 1.0), rows=10)
    for budget in (0.0, float("nan"), float("inf")):
        with pytest.raises(InputError, match="expected a budget as a share"):
            JobBudget(budget, settings=(0.2, 0.4, 0.5, 1.0), rows=10)
