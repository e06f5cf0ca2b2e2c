"""Which setting a budget picks."""

import math
from dataclasses import replace

import pytest
import torch

from offramp.errors import BudgetError, InputError
from offramp.policy import Guarantee, OperatingPoint
from offramp.runtime import Dial, affordable, same_setting


def point(cost: float, accuracy: float = 0.9) -> OperatingPoint:
    promised = {"cost": cost, "accuracy": accuracy}
    return OperatingPoint("threshold", {"threshold": torch.tensor(cost)}, (0, 1), torch.ones(2), promised=promised)


def picked(dial: Dial, budget: float) -> float:
    row = int(dial.rows(torch.tensor([budget]))[0])
    return dial.points[row].promised["cost"]


class TestDial:
    def test_the_nearest_setting_is_picked(self) -> None:
        generator = torch.Generator().manual_seed(0)
        costs = torch.rand(40, generator=generator, dtype=torch.float64)
        dial = Dial([point(cost) for cost in costs.tolist()])
        budgets = costs.min() + (1.5 - costs.min()) * torch.rand(500, generator=generator, dtype=torch.float64)
        expected = (budgets[:, None] - costs).abs().argmin(1)  # in the order the points came in
        assert dial.rows(budgets).tolist() == expected.tolist()

    def test_budgets_beyond_the_dearest_are_not_spent(self) -> None:
        dial = Dial([point(0.4), point(0.8)])
        assert (dial.cheapest, dial.dearest, len(dial)) == (0.4, 0.8, 2)
        assert picked(dial, 0.4) == 0.4
        assert picked(dial, 9.0) == 0.8

    def test_dearer_and_clearly_less_accurate_points_are_no_settings(self) -> None:
        points = [point(0.2, 0.8), point(0.3, 0.9), point(0.4, 0.889), point(0.5, 0.891), point(0.6, 0.95)]
        dial = Dial(points)
        assert len(dial) == 4
        assert {picked(dial, budget / 100) for budget in range(20, 70)} == {0.2, 0.3, 0.5, 0.6}

    def test_one_point_serves_every_budget_from_its_cost_on(self) -> None:
        dial = Dial([point(0.4)])
        assert dial.rows(torch.tensor([0.4, 0.5, 2.0])).tolist() == [0, 0, 0]
        assert dial.rows(torch.zeros(0)).tolist() == []

    @pytest.mark.parametrize("budget", [0.0, -0.5, math.nan, math.inf])
    def test_what_is_no_share_is_refused(self, budget: float) -> None:
        with pytest.raises(InputError, match=r"expected a budget as a share of the network's cost, .* got"):
            Dial([point(0.4)]).rows(torch.tensor([0.5, budget]))

    def test_budgets_below_the_cheapest_name_it(self) -> None:
        with pytest.raises(BudgetError, match=r"no point costs 0.3 or less; the cheapest costs 0.4: ask for that"):
            Dial([point(0.4), point(0.8)]).rows(torch.tensor([0.5, 0.3]))

    def test_points_that_promise_nothing_are_refused(self) -> None:
        bare = OperatingPoint("threshold", {"threshold": torch.tensor(0.5)}, (0, 1), torch.ones(2))
        for points in ([], [point(0.4), bare]):
            with pytest.raises(InputError, match="with their cost and accuracy on the tune split"):
                Dial(points)


def test_a_setting_is_the_same_whatever_is_promised_of_it() -> None:
    one, other = point(0.4), point(0.4)
    guarantee = Guarantee("accuracy", 0.01, 0.95, "ltt", 1000, 0.002)
    assert same_setting(one, replace(one, guarantee=guarantee, promised={}))
    assert not same_setting(one, other)  # as good, and made apart: nobody knows
    assert not same_setting(one, replace(one, active=(1,)))


class TestAffordable:
    def test_those_that_cost_no_more(self) -> None:
        points = [point(0.1), point(0.2), point(0.3)]
        assert affordable(points, 0.2) == points[:2]
        assert affordable(points, 0.2 * (1 - 1e-7)) == points[:2]
        assert affordable(points, 0.2 * (1 - 1e-5)) == points[:1]

    def test_what_the_message_tells_to_ask_for_is_enough(self) -> None:
        points = [point(0.123456)]
        with pytest.raises(BudgetError, match=r"no point costs 0.1 ms or less; the cheapest costs 0.247 ms") as told:
            affordable(points, 0.05, bare=2.0, unit=" ms")
        named = float(str(told.value).partition("the cheapest costs ")[2].partition(" ")[0])
        assert affordable(points, named / 2.0) == points
