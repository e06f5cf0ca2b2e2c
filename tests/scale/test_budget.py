"""A budget for a whole job: the proved bounds in the worst case, and the cost of typical jobs."""

from collections.abc import Callable

import numpy as np
import pytest

from offramp.errors import BudgetError, InputError
from offramp.scale._budget import JobBudget
from tests.cases import each, refuses

Spend = Callable[[int, float], float]
"""The cost per sample of a block, given its target."""


def overspent(job: JobBudget, sizes: list[int], at_most: int, spend: Spend, *, seed: int, budget: float) -> list[float]:
    """Return the cost beyond the budget of all blocks started so far, after each; they end in any order."""
    draw = np.random.default_rng(seed)
    running: list[tuple[int, float, float]] = []
    debts, debt = [], 0.0
    for block, size in enumerate(sizes):
        while len(running) > at_most or (running and draw.random() < 0.2):
            ended, target, spent = running.pop(int(draw.integers(len(running))))
            job.record(ended, rows=sizes[ended], target=target, spent=spent)
        target = job.start(block, size)
        spent = size * spend(block, target)
        running.append((block, target, spent))
        debt += spent - size * budget
        debts.append(debt)
    return debts


@each("seed", range(100))
def test_bounds_hold_whatever_blocks_cost_and_whenever_they_end(seed: int) -> None:
    draw = np.random.default_rng(seed)
    least, cheapest, budget, dearest, most = np.sort(draw.uniform(0.01, 1.3, 5)).tolist()
    at_most, sizes = int(draw.integers(0, 12)), draw.integers(1, draw.integers(2, 200), 300).tolist()
    kinds = np.repeat(draw.choice([least, most, *draw.uniform(least, most, 4)], 300), draw.integers(1, 60))

    def spend(block: int, target: float) -> float:
        """All that the theorem assumes: the cheapest point costs at most the budget, the most expensive at least it."""
        cost = float(kinds[block])
        if target == cheapest:
            cost = min(cost, budget)
        return max(cost, budget) if target == dearest else cost

    settings = [cheapest, *sorted(draw.uniform(cheapest, dearest, draw.integers(0, 9)).tolist()), dearest]
    job = JobBudget(budget, costs=settings, rows=sum(sizes))
    debts = overspent(job, sizes, at_most, spend, seed=seed, budget=budget)
    rows, window = max(sizes), 2 * (at_most + 1) * max(sizes)
    high = window * (budget - cheapest) + at_most * rows * (most - cheapest) + rows * (most - budget)
    low = window * (dearest - budget) + at_most * rows * (dearest - least) + rows * (budget - least)
    assert -low - 1e-9 <= min(debts)
    assert max(debts) <= high + 1e-9


def test_somebody_who_knows_the_rules_comes_near_the_bound() -> None:
    """So the bound is not much wider than it must be."""
    budget, cheapest, at_most, rows = 0.4, 0.2, 4, 100

    def spend(block: int, target: float) -> float:
        return budget if target == cheapest else 1.2

    job = JobBudget(budget, costs=np.linspace(cheapest, 1.0, 801).tolist(), rows=400 * rows)
    debts = overspent(job, [rows] * 400, at_most, spend, seed=0, budget=budget)
    high = 10 * rows * (budget - cheapest) + at_most * rows * (1.2 - cheapest) + rows * (1.2 - budget)
    assert 0.3 * high < max(debts) <= high


HARDER: dict[str, Spend] = {
    "as they are": lambda block, target: target,
    "harder": lambda block, target: 1.2 * target,
    "easier": lambda block, target: 0.8 * target,
    "ever harder": lambda block, target: (0.8 + block / 240) * target,
    "suddenly harder near the end": lambda block, target: (1.0 if block < 108 else 1.4) * target,
    "in stretches": lambda block, target: (0.7 if block // 20 % 2 else 1.3) * target,
    "by settings far apart": lambda block, target: target,
}


@each("kind", HARDER)
def test_a_job_of_thirty_blocks_for_each_running_spends_two_percent_more_at_most(kind: str) -> None:
    budget, blocks, rows = 0.4, 120, 256
    noise = np.random.default_rng(0)

    def spend(block: int, target: float) -> float:
        return float(np.clip(HARDER[kind](block, target) + noise.normal(scale=0.3 / rows**0.5), 0.15, 1.1))

    settings = np.linspace(0.2, 1.0, 8 if kind == "by settings far apart" else 1601).tolist()
    for seed in range(10):
        job = JobBudget(budget, costs=settings, rows=blocks * rows)
        spent = overspent(job, [rows] * blocks, 4, spend, seed=seed, budget=budget)[-1]
        share = spent / (budget * blocks * rows)
        # Some is left unspent where the last are suddenly easy: nothing is left to spend it on.
        assert -0.03 <= share <= 0.02


def test_blocks_of_an_earlier_run_count() -> None:
    job = JobBudget(0.5, costs=(0.2, 0.4, 0.5, 1.0), rows=1000)
    job.record(0, rows=100, target=0.5, spent=70.0)
    assert job.start(1, 100) == pytest.approx(0.5 - 20 / 200)
    assert (job.spent, job.finished_rows) == (70.0, 100)


def test_the_last_block_gets_the_rest_of_the_budget() -> None:
    job = JobBudget(0.5, costs=(0.2, 0.4, 0.5, 1.0), rows=300)
    for block, spent in ((0, 60.0), (1, 50.0)):
        job.record(block, rows=100, target=0.5, spent=spent)
    assert job.start(2, 100) == pytest.approx(0.4)  # 150 in all


def test_what_cannot_be_kept_is_refused() -> None:
    with refuses(BudgetError, expected="0.2", got="0.1"):
        JobBudget(0.1, costs=(0.2, 0.4, 0.5, 1.0), rows=10)
    for budget in (0.0, float("nan"), float("inf")):
        with refuses(InputError, problem="budget"):
            JobBudget(budget, costs=(0.2, 0.4, 0.5, 1.0), rows=10)
