"""The setting that a budget selects."""

import math
from dataclasses import replace

import torch

from offramp.errors import BudgetError, InputError
from offramp.policy import Guarantee, OperatingPoint
from offramp.runtime import Dial
from offramp.runtime._dial import find_pareto_front, same_decisions
from tests.cases import each, refuses


def point(cost: float, accuracy: float = 0.9) -> OperatingPoint:
    tune_metrics = {"cost": cost, "accuracy": accuracy}
    return OperatingPoint(
        "threshold", {"threshold": torch.tensor(cost)}, (0, 1), torch.ones(2), tune_metrics=tune_metrics
    )


def picked(dial: Dial, budget: float) -> float:
    row = int(dial.pick_rows(torch.tensor([budget]))[0])
    return dial.points[row].tune_metrics["cost"]


class TestDial:
    def test_the_best_within_the_budget_is_picked_the_cheapest_of_equals(self) -> None:
        generator = torch.Generator().manual_seed(0)
        costs = torch.rand(40, generator=generator, dtype=torch.float64).tolist()
        accuracies = (torch.randint(10, (40,), generator=generator) / 10).tolist()
        dial = Dial([point(cost, accuracy) for cost, accuracy in zip(costs, accuracies, strict=True)])
        budgets = (min(costs) + (1.5 - min(costs)) * torch.rand(500, generator=generator, dtype=torch.float64)).tolist()
        for budget, row in zip(
            budgets, dial.pick_rows(torch.tensor(budgets, dtype=torch.float64)).tolist(), strict=True
        ):
            within = [place for place in range(40) if costs[place] <= budget]
            best = max(accuracies[place] for place in within)
            assert row == min((p for p in within if accuracies[p] == best), key=lambda place: costs[place])
            assert dial.pick_by_cost(budget) is dial.points[row]

    def test_budgets_beyond_the_dearest_are_not_spent(self) -> None:
        dial = Dial([point(0.4, 0.8), point(0.8, 0.9)])
        assert (dial.cheapest, dial.most_expensive, len(dial)) == (0.4, 0.8, 2)
        assert dial.costs == (0.4, 0.8)
        assert picked(dial, 0.4) == 0.4
        assert picked(dial, 0.79) == 0.4
        assert picked(dial, 9.0) == 0.8

    def test_dominated_points_are_not_on_the_front(self) -> None:
        points = [point(0.2, 0.8), point(0.3, 0.9), point(0.4, 0.889), point(0.5, 0.9), point(0.6, 0.95)]
        dial = Dial(points)
        assert list(dial.front) == [points[0], points[1], points[4]]
        assert {picked(dial, budget / 100) for budget in range(20, 70)} == {0.2, 0.3, 0.6}

    def test_of_equal_costs_the_more_accurate_is_a_setting_and_of_equal_points_the_first(self) -> None:
        points = [point(0.3, 0.7), point(0.3, 0.9), point(0.3, 0.9)]
        assert Dial(points).front == (points[1],)
        assert Dial(points).pick_rows(torch.tensor([0.3])).tolist() == [1]

    def test_a_cost_in_single_precision_is_enough(self) -> None:
        generator = torch.Generator().manual_seed(0)
        costs = torch.rand(200, generator=generator, dtype=torch.float64).sort().values
        dial = Dial([point(cost, 0.5 + place / 1000) for place, cost in enumerate(costs.tolist())])
        assert dial.pick_rows(costs.float()).tolist() == list(range(200))
        assert picked(dial, float(costs[7]) * (1 - 1e-5)) == float(costs[6])

    def test_the_cheapest_that_reaches_an_accuracy(self) -> None:
        points = [point(0.5, 0.9), point(0.2, 0.8), point(0.4, 0.9)]
        dial = Dial(points)
        assert [dial.pick_by_accuracy(one) for one in (0.1, 0.8, 0.85, 0.9)] == [
            points[1],
            points[1],
            points[2],
            points[2],
        ]
        assert dial.pick_by_accuracy(0.91) is None

    def test_what_the_message_tells_to_ask_for_is_enough(self) -> None:
        dial = Dial([point(0.123456)])
        with refuses(BudgetError, expected="0.247 ms", got="0.1 ms") as raised:
            dial.pick_by_cost(0.05, full=2.0, unit=" ms")
        enough = float(raised.value.expected.partition(" ")[0])
        assert dial.pick_by_cost(enough / 2.0) is dial.points[0]

    def test_one_point_serves_every_budget_from_its_cost_on(self) -> None:
        dial = Dial([point(0.4)])
        assert dial.pick_rows(torch.tensor([0.4, 0.5, 2.0])).tolist() == [0, 0, 0]
        assert dial.pick_rows(torch.zeros(0)).tolist() == []

    @each("budget", [0.0, -0.5, math.nan, math.inf])
    def test_what_is_no_share_is_refused(self, budget: float) -> None:
        with refuses(InputError, problem="budget", got=str(budget)):
            Dial([point(0.4)]).pick_rows(torch.tensor([0.5, budget]))

    def test_budgets_below_the_cheapest_name_it(self) -> None:
        with refuses(BudgetError, expected="0.4", got="0.3"):
            Dial([point(0.4), point(0.8)]).pick_rows(torch.tensor([0.5, 0.3]))

    def test_points_that_promise_nothing_are_refused(self) -> None:
        full = OperatingPoint("threshold", {"threshold": torch.tensor(0.5)}, (0, 1), torch.ones(2))
        for points in ([], [point(0.4), full]):
            with refuses(InputError, expected="cost and accuracy on the tune split"):
                Dial(points)


def test_a_setting_is_the_same_whatever_is_promised_of_it() -> None:
    one, other = point(0.4), point(0.4)
    guarantee = Guarantee("accuracy", 0.01, 0.95, "ltt", 1000, 0.002)
    assert same_decisions(one, replace(one, guarantee=guarantee, tune_metrics={}))
    assert not same_decisions(one, other)  # as good, and made apart: nobody knows
    assert not same_decisions(one, replace(one, active=(1,)))


def test_undominated_against_all_pairs() -> None:
    generator = torch.Generator().manual_seed(0)
    for _ in range(200):
        count = int(torch.randint(1, 30, (1,), generator=generator))
        costs, accuracies = (torch.randint(12, (2, count), generator=generator) / 10).tolist()
        expected = [
            one
            for one in range(count)
            if not any(
                costs[other] <= costs[one]
                and accuracies[other] >= accuracies[one]
                and ((costs[other], accuracies[other]) != (costs[one], accuracies[one]) or other < one)
                for other in range(count)
                if other != one
            )
        ]
        assert find_pareto_front(costs, accuracies) == sorted(expected, key=lambda place: costs[place])
