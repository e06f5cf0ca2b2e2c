from typing import Any

import numpy as np
import pytest

from offramp.methods import METHODS
from offramp.policy import POLICIES
from offramp_bench.paper.bars import bars
from offramp_bench.paper.cell import POLICY_OF
from offramp_bench.paper.contestants import CONTESTANTS, EXITS
from offramp_bench.paper.results import _least_cost, _mean_curve, _paired, merged
from offramp_bench.paper.tasks import TASKS
from tests.cases import each


def row(kind: str, lead: float, *, low: float = 0.01, cost: float | None = 0.4) -> dict[str, Any]:
    """A contestant that the default leads by so much."""
    return {
        "kind": kind,
        "below default": lead,
        "interval": [low, lead + 0.01],
        "cost at full": cost,
        "cost at full - .5": cost,
    }


def task(**rows: dict[str, Any]) -> dict[str, Any]:
    return {"alone": None, "contestants": {"offramp": row("default", 0, cost=0.3), **rows}}


def held(tasks: dict[str, Any], beginning: str) -> bool:
    (bar,) = (bar for bar in bars(tasks) if bar.name.startswith(beginning))
    return bar.held


class TestBars:
    def test_a_rival_above_the_default_on_one_task_is_told(self) -> None:
        tasks = {"a": task(rival=row("rival", 0.02)), "b": task(rival=row("rival", -0.001))}
        assert not held(tasks, "rival: points above")

    def test_one_task_may_be_a_tie(self) -> None:
        sure, unsure = task(rival=row("rival", 0.02)), task(rival=row("rival", 0.02, low=-0.01))
        assert held({"a": sure, "b": unsure}, "rival: tasks where")
        assert not held({"a": unsure, "b": unsure}, "rival: tasks where")

    def test_policies_are_averaged_over_tasks(self) -> None:
        tasks = {"a": task(other=row("policy", -0.003)), "b": task(other=row("policy", 0.002))}
        assert held(tasks, "other: mean points")
        assert not held({"a": tasks["a"]}, "other: mean points")

    def test_a_saving_against_the_better_of_two(self) -> None:
        rows = {"JEI-DNN": row("paper", 0, cost=0.5), "threshold": row("paper", 0, cost=0.34)}
        assert not held({str(i): task(**rows) for i in range(5)}, "tasks short of 5")
        rows["threshold"] = row("paper", 0, cost=None)  # never reaches that accuracy
        assert held({str(i): task(**rows) for i in range(5)}, "tasks short of 5")

    def test_a_cascade_counts_for_its_last_network(self) -> None:
        dear = task()
        dear["contestants"]["offramp"]["cost at full"] = 0.9
        cascade = {**task(), "alone": "a"}
        cheap = {name: task() for name in "bcd"}
        assert held({"a": dear, "a-cascade": cascade, **cheap}, "tasks short of 4")
        assert not held({"a": dear, **cheap}, "tasks short of 4")


class TestOverSeeds:
    RULES: tuple[dict[str, Any], ...] = (
        {"curve": [[0.2, 0.8], [0.4, 0.9]], "points": [{"cost": 0.2, "accuracy": 0.8}, {"cost": 0.4, "accuracy": 0.9}]},
        {"curve": [[0.2, 0.7], [0.4, 0.9]], "points": [{"cost": 0.1, "accuracy": 0.7}, {"cost": 0.5, "accuracy": 0.9}]},
    )

    def test_where_the_mean_gets_there(self) -> None:
        assert _least_cost(list(self.RULES), 0.825) == pytest.approx(0.3, rel=0.01)  # .85 and .8

    def test_what_the_mean_never_reaches_has_no_cost(self) -> None:
        assert _least_cost(list(self.RULES), 0.91) is None

    def test_curves_are_averaged_where_all_have_points(self) -> None:
        rules = [
            {"points": [{**p, "ece": 0.0, "set size": 1.0, "coverage": 0.9, "early": 0.5} for p in rule["points"]]}
            for rule in self.RULES
        ]
        curve = np.array(_mean_curve(rules))
        assert curve[0, 0] == pytest.approx(0.2)
        assert curve[-1, 0] == pytest.approx(0.4)
        assert curve[0, 1] == pytest.approx((0.8 + 0.75) / 2)

    def test_a_paired_difference_has_an_interval_around_it(self) -> None:
        found = _paired(np.random.default_rng(0).normal(0.1, 1, 2000))
        low, high = found["interval"]
        assert low < found["below default"] < high
        assert high - low == pytest.approx(2 * 1.96 / 2000**0.5, rel=0.15)


class TestMerged:
    """What was not asked for stays as it was committed."""

    @staticmethod
    def told(*, epochs: list[int] | None, axis: float = 0.1, **areas: float) -> dict[str, Any]:
        rows = {name: {"areas": [area]} for name, area in areas.items()}
        return {"axis from": axis, "contestants": rows, "decomposition": epochs, "epochs": {"weighted": epochs}}

    def test_tasks_that_were_not_asked_for(self) -> None:
        before, now = self.told(epochs=[1], offramp=0.1), self.told(epochs=[2], offramp=0.2)
        assert merged({"nci1": before}, {"cifar10": now}, ["ladder"]) == {"cifar10": now, "nci1": before}

    def test_exits_that_were_not_asked_for(self) -> None:
        before = {"nci1": self.told(epochs=[1], offramp=0.1, **{"JEI-DNN": 0.3, "ladder, weighted": 0.4})}
        now = {"nci1": self.told(epochs=None, offramp=0.1001, **{"ladder, paper's look": 0.5})}
        found = merged(before, now, ["ladder", "ladder, weighted", "ladder, paper's look"])["nci1"]
        rows = {name: row["areas"][0] for name, row in found["contestants"].items()}
        assert rows == {
            "offramp": 0.1001,
            "JEI-DNN": 0.3,
            "ladder, paper's look": 0.5,
        }  # "weighted" was not found again
        assert list(rows) == sorted(rows, key=list(CONTESTANTS).index)
        assert found["decomposition"] == found["epochs"]["weighted"] == [1]

    @each("other", [{"offramp": 0.2}, {"offramp": 0.1, "axis": 0.2}])
    def test_nobody_is_kept_beside_another_default(self, other: dict[str, float]) -> None:
        before = {"nci1": self.told(epochs=None, offramp=0.1, **{"JEI-DNN": 0.3})}
        now = {"nci1": self.told(epochs=None, **other)}
        with pytest.raises(ValueError, match="expected the default of nci1 as it was committed, for JEI-DNN were"):
            merged(before, now, ["ladder"])
        assert merged(before, now, ["ladder", "weighted"])["nci1"]["contestants"].keys() == {"offramp"}

    def test_who_is_no_longer_compared_is_not_kept(self) -> None:
        before, now = self.told(epochs=None, offramp=0.2, nobody=0.1), self.told(epochs=None, offramp=0.2)
        assert "nobody" not in merged({"nci1": before}, {"nci1": now}, [])["nci1"]["contestants"]


class TestWidths:
    def test_of_a_task_whose_width_follows_its_classes(self) -> None:
        half, twice = (EXITS[f"ladder, {name} as wide"].settings(TASKS["cifar100lt"]) for name in ("half", "twice"))
        assert (half.ladder_width, twice.ladder_width) == (100, 400)

    @pytest.mark.data
    def test_classes_are_those_of_the_network(self) -> None:
        for name in ("cifar10", "superpixels", "nci1"):
            assert TASKS[name].backbone().num_classes == TASKS[name].num_classes


class TestNames:
    def test_everything_that_is_compared_is_there(self) -> None:
        for exits in EXITS.values():
            assert exits.method in {*METHODS, "joint"}
            assert {POLICY_OF.get(rule, rule) for rule in exits.rules} <= set(POLICIES)
        for contestant in CONTESTANTS.values():
            assert contestant.rule in EXITS[contestant.exits].rules

    def test_cascades_name_the_network_they_end_with(self) -> None:
        assert all(task.alone in TASKS for task in TASKS.values() if task.alone is not None)
