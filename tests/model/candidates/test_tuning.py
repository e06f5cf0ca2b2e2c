"""The contract of every way to choose points, and what they may look at."""

from dataclasses import replace
from functools import cache

import pytest
import torch

from offramp.cost import Costs
from offramp.cost._table import CostTable
from offramp.errors import InputError
from offramp.model._frontier import area
from offramp.model._outcomes import Outcomes, simulate
from offramp.model._points import thin
from offramp.policy import POLICIES, OperatingPoint
from tests.cases import each
from tests.model.candidates.examples import CLASSES, EXITS, answers, candidates, costs, seen, tuning

NAMES = sorted({*POLICIES} - {"sampled_gates"})  # which draws
every_choice = each("name", NAMES)
SOME = (1, 2, EXITS - 1)


@cache
def tune() -> Outcomes:
    return seen(*answers(600))


@cache
def chosen(name: str, active: tuple[int, ...]) -> list[OperatingPoint]:
    return candidates(name, tuning(tune(), active=active))


class TestContract:
    @every_choice
    @each("active", [tuple(range(EXITS)), SOME])
    def test_points_are_whole(self, name: str, active: tuple[int, ...]) -> None:
        points = chosen(name, active)
        assert len({point.policy for point in points}) == 1
        for point in points:
            assert point.active == active
            assert set(point.parameters) == point.rule.parameters
            for parameter, value in point.parameters.items():
                assert value.shape == point.rule.shape(parameter, num_exits=EXITS, num_classes=CLASSES)
                assert value.dtype == torch.float32  # which artifacts hold
                assert value.isfinite().all()
                assert not value.requires_grad

    @every_choice
    def test_samples_leave_where_exits_are_in_force(self, name: str) -> None:
        assert set(simulate(chosen(name, SOME), tune()).flatten().tolist()) <= set(SOME)

    @every_choice
    def test_points_are_spread_over_the_costs(self, name: str) -> None:
        kept = thin(chosen(name, tuple(range(EXITS))), tune(), costs())
        spent = [point.tune_metrics["cost"] for point in kept]
        assert spent == sorted(spent)
        assert spent[0] < 0.35
        assert spent[-1] > 0.65
        assert len(kept) >= EXITS

    @every_choice
    def test_the_same_again(self, name: str) -> None:
        again = candidates(name, tuning(tune(), active=SOME))
        for point, other in zip(chosen(name, SOME), again, strict=True):
            assert all(torch.equal(value, other.parameters[key]) for key, value in point.parameters.items())

    @every_choice
    def test_a_network_without_early_exits(self, name: str) -> None:
        points = candidates(name, tuning(tune(), active=(EXITS - 1,)))
        assert (simulate(points, tune()) == EXITS - 1).all()

    # Gates are not trained here; waiting for others to agree says less than how sure an exit is.
    @each("name", sorted({*NAMES} - {"gates", "branch_gates", "patience"}))
    def test_better_than_an_exit_for_all(self, name: str) -> None:
        accuracy = tune().correct[0].double().mean(0)
        alone = [
            OperatingPoint("threshold", {"threshold": torch.tensor(0.0)}, tuple({exit, EXITS - 1}), torch.ones(EXITS))
            for exit in range(EXITS)
        ]
        fixed = [
            replace(point, tune_metrics={"cost": (exit + 1) / EXITS, "accuracy": float(accuracy[exit])})
            for exit, point in enumerate(alone)
        ]
        assert area(thin(chosen(name, tuple(range(EXITS))), tune(), costs())) > area(fixed)

    @each("name", ["entropy", "eenet"])
    def test_says_what_is_missing(self, name: str) -> None:
        with pytest.raises(InputError, match=r"add 'probabilities'"):
            candidates(name, tuning(replace(tune(), probabilities=None)))

    @each("name", ["gates", "branch_gates"])
    def test_says_that_gates_are_missing(self, name: str) -> None:
        with pytest.raises(InputError, match="expected exits with gates"):
            candidates(name, tuning(tune(), gated=False))


class TestTuning:
    def test_relative_costs_are_of_the_exits_in_force(self) -> None:
        # Stages cost 1, answers 0.1 at exits in force: after exits 1, 2 and 4 that makes 2.1, 3.2 and 5.3.
        ones, zero = torch.ones(EXITS, dtype=torch.float64), torch.zeros(EXITS, dtype=torch.float64)
        table = CostTable(ones, zero, 0.1 * ones, zero, full=ones.sum(), carries_state=False)
        given = tuning(tune(), active=SOME, priced=Costs((table,)))
        assert given.relative_costs.tolist() == pytest.approx([2.1 / 5, 3.2 / 5, 5.3 / 5])

    def test_relative_costs_are_those_of_the_mean_size(self) -> None:
        ones, zero = torch.ones(EXITS, dtype=torch.float64), torch.zeros(EXITS, dtype=torch.float64)
        fixed = CostTable(4 * torch.eye(EXITS, dtype=torch.float64)[0], zero, zero, zero, torch.tensor(4.0), False)
        growing = CostTable(ones, zero, zero, zero, torch.tensor(5.0), False)
        sized = replace(tune(), sizes=torch.arange(600) % 3 + 1.0)  # 2 on average
        given = tuning(sized, priced=Costs((fixed, growing)))
        assert given.relative_costs.tolist() == pytest.approx([(4 + 2 * (exit + 1)) / 14 for exit in range(EXITS)])

    def test_a_parameter_of_every_exit(self) -> None:
        given = tuning(tune(), active=SOME)
        assert given.per_exit(torch.tensor([0.3, 0.4]), 2.0).tolist() == pytest.approx([2.0, 0.3, 0.4, 2.0, 2.0])
        assert given.per_exit(torch.ones(2, 7)).sum(1).tolist() == [0, 7, 7, 0, 0]
