"""The average that is kept, and the bounds that are proved: on streams at random, and on the worst there are."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from offramp.errors import BudgetError, InputError
from offramp.runtime import BudgetController
from tests.cases import each, refuses

Spend = Callable[[float, int], list[float]]
"""A function from a setting's cost and a batch size to the costs of the samples."""


def spread(cheapest: float, dearest: float) -> list[float]:
    """Settings so close to each other that any cost between the ends can be asked for."""
    return np.linspace(cheapest, dearest, 2001).tolist()  # type: ignore[no-any-return]


def bounds(
    budget: float, ends: tuple[float, float], costs: tuple[float, float], window: int, largest: int
) -> tuple[float, float]:
    """The theorem's, of the debt."""
    horizon = max(window, 2 * largest)
    (cheapest, dearest), (least, most) = ends, costs
    below = horizon * (dearest - budget) + largest * (budget - least)
    return -below, horizon * (budget - cheapest) + largest * (most - budget)


def driven(controller: BudgetController, sizes: list[int], spend: Spend) -> list[float]:
    """The debts after every batch."""
    debts = []
    for size in sizes:
        controller.record(spend(controller.next_budget, size))
        debts.append(controller.debt)
    return debts


def within_promise(mean: float, asked: float, budget: float, ends: tuple[float, float]) -> float:
    """All that the theorem assumes: the cheapest point costs no more than the budget, the most expensive no less."""
    if asked == ends[0]:
        mean = min(mean, budget)
    return max(mean, budget) if asked == ends[1] else mean


@each("seed", range(200))
def test_bounds_hold_on_any_stream(seed: int) -> None:
    draw = np.random.default_rng(seed)
    least, cheapest, budget, dearest, most = np.sort(draw.uniform(0.01, 1.3, 5)).tolist()
    window, ends = int(draw.integers(1, 300)), (cheapest, dearest)
    settings = [cheapest, *sorted(draw.uniform(cheapest, dearest, draw.integers(0, 9)).tolist()), dearest]
    sizes = draw.integers(1, draw.integers(2, 200), 400).tolist()
    runs = draw.integers(1, 60)  # batches of one kind come one after the other
    kinds = iter(np.repeat(draw.uniform(least, most, 400), runs).tolist())

    def spend(asked: float, size: int) -> list[float]:
        return [within_promise(next(kinds), asked, budget, ends)] * size

    controller = BudgetController(budget, costs=settings, window=window)
    debts = driven(controller, sizes, spend)
    low, high = bounds(budget, ends, (least, most), window, max(sizes))
    assert low - 1e-9 <= min(debts)
    assert max(debts) <= high + 1e-9
    assert abs(controller.average - budget) <= max(-low, high) / sum(sizes) + 1e-12


@each("side", ["dear", "cheap"])
@each(("window", "size"), [(100, 1), (100, 64), (10, 64), (1, 1)])
def test_the_worst_stream_comes_close_to_the_bound_and_not_beyond(side: str, window: int, size: int) -> None:
    budget, ends, costs = 0.5, (0.2, 0.9), (0.1, 1.0)
    worst = costs[1] if side == "dear" else costs[0]
    # Somebody who knows the controller: as far from the budget as may be, whatever it asks for.
    debts = driven(
        BudgetController(budget, costs=spread(*ends), window=window),
        [size] * 2000,
        lambda asked, count: [within_promise(worst, asked, budget, ends)] * count,
    )
    low, high = bounds(budget, ends, costs, window, size)
    reached, bound = (max(debts), high) if side == "dear" else (-min(debts), -low)
    step = size * abs(worst - budget) + 4e-4 * max(window, 2 * size)  # a batch, and what settings are apart
    assert bound - step - 1e-9 <= reached <= bound + 1e-9


def test_without_what_is_assumed_the_debt_grows() -> None:
    debts = driven(BudgetController(0.5, costs=(0.2, 0.9)), [10] * 500, lambda asked, count: [0.6] * count)
    assert debts[-1] == pytest.approx(0.1 * 5000)


@each("size", [1, 16, 64])
@each("budget", [0.3, 0.5, 0.7])
def test_a_stream_that_turns_harder_half_way_costs_the_budget(size: int, budget: float) -> None:
    draw, count = np.random.default_rng(0), 10_000
    hardness = np.concatenate([draw.beta(1, 3, count // 2), draw.beta(3, 1, count // 2)])
    place = iter(range(count))

    def spend(asked: float, batch: int) -> list[float]:
        # The sample goes on where it is harder than the setting lets pass; on tune hardness is uniform.
        hard = hardness[[next(place) for _ in range(batch)]]
        return [1.0 if goes_on else 0.1 for goes_on in hard > 1 - (asked - 0.1) / 0.9]

    controller = BudgetController(budget, costs=spread(0.1, 1.0))
    driven(controller, [size] * (count // size), spend)
    assert controller.average == pytest.approx(budget, rel=0.02)


@each("settings", [(0.2, 1.0), (0.2, 0.3, 0.9), (0.1, 0.45, 0.55, 1.0)])
@each("budget", [0.3, 0.5, 0.7])
def test_settings_far_apart_are_mixed_to_the_budget(settings: tuple[float, ...], budget: float) -> None:
    controller = BudgetController(budget, costs=settings)
    asked = set()
    for _ in range(2000):
        asked.add(controller.next_budget)
        controller.record([controller.next_budget])  # on samples like those of the tune split
    assert asked <= set(settings)
    assert controller.average == pytest.approx(budget, abs=0.02)


def test_what_is_asked_for_next() -> None:
    controller = BudgetController(0.5, costs=spread(0.2, 0.9), window=10)
    assert (controller.average, controller.count) == (0.5, 0)
    assert controller.next_budget == pytest.approx(0.5, abs=4e-4)
    controller.record(torch.tensor([1.0, 1.0]))
    assert controller.debt == pytest.approx(1.0)
    assert controller.next_budget == pytest.approx(0.5 - 1.0 / 10, abs=4e-4)
    controller.record([])
    assert controller.next_budget == pytest.approx(0.4, abs=4e-4)
    controller.record([1.0] * 20)  # a debt of 11; over 40 samples, two batches of this size
    assert controller.next_budget == pytest.approx(0.5 - 11 / 40, abs=4e-4)
    assert controller.average == pytest.approx(1.0)
    controller.record([1.0] * 10)
    assert controller.next_budget == 0.2
    controller.record([0.0] * 100)
    assert controller.next_budget == pytest.approx(0.5 + 34 / 200, abs=4e-4)
    controller.record([0.0] * 100)
    assert controller.next_budget == 0.9


def test_a_budget_beyond_the_dearest_is_not_spent() -> None:
    controller = BudgetController(2.0, costs=(0.2, 0.9))
    for _ in range(3):
        assert controller.next_budget == 0.9
        controller.record([0.9] * 10)


def test_a_budget_below_the_cheapest_names_it() -> None:
    with refuses(BudgetError, expected="0.2", got="0.1"):
        BudgetController(0.1, costs=(0.2, 0.9))
    assert BudgetController(0.2, costs=(0.2, 0.9)).next_budget == 0.2


@each("budget", [0.0, -1.0, math.nan, math.inf, None, "0.6"])
def test_what_is_no_share_is_refused(budget: Any) -> None:
    with refuses(InputError, problem="budget", expected="a share"):
        BudgetController(budget, costs=(0.2, 0.9))


@each("costs", [object(), 0.5, None, ["much"], torch.tensor(0.5)])
def test_what_is_no_costs_is_refused(costs: Any) -> None:
    controller = BudgetController(0.5, costs=(0.2, 0.9))
    with refuses(InputError, expected="answer.relative_cost", got=type(costs).__name__):
        controller.record(costs)
    assert (controller.count, controller.debt) == (0, 0)


def test_ends_windows_and_costs_are_checked() -> None:
    for settings in ((0.9, 0.2), (), (0.2, math.inf), (-0.1, 0.9), (0.2, math.nan)):
        with refuses(InputError, problem="costs", expected="ascending costs, such as dial.costs"):
            BudgetController(1.0, costs=settings)
    with refuses(InputError, problem="window", expected="at least 1", got="0"):
        BudgetController(0.5, costs=(0.2, 0.9), window=0)
    with refuses(InputError, expected="2 finite numbers", got="nan"):
        BudgetController(0.5, costs=(0.2, 0.9)).record([0.5, math.nan])
