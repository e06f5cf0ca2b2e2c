"""Verdicts on curves whose differences are known."""

import json
import math
from typing import Any

import numpy as np
import pytest

from lab.tests.page.examples import TASKS, content
from offramp_bench.paper.appendix import appendix
from offramp_bench.paper.comparing import (
    Gap,
    Measure,
    agreed,
    at_equal_cost,
    gaps,
    improves,
    is_alike,
    is_at_most,
    noise_of_areas,
    noise_of_share,
    told,
)
from offramp_bench.paper.observations import (
    joint_training,
    learned_gates,
    observations,
    tailored_architectures,
    uncertainty,
    where_samples_leave,
)
from tests.cases import each


def line(accuracy: float, *, ece: float = 0.02, size: float = 2.0, coverage: float = 0.95, early: float = 0.3) -> Any:
    """A contestant whose figures are the same at every cost."""
    rows = [[cost, accuracy, ece, size, coverage, early] for cost in (0.1, 0.4, 1.0)]
    return {"kind": "rival", "area": accuracy, "curve": rows, "interval": [-0.003, 0.005], "below default": 0.0}


def only(**contestants: Any) -> dict[str, Any]:
    """A task with these contestants; underscores of their names are spaces or hyphens."""
    known = {"JEI": "JEI-DNN", "L2W": "L2W-DEN", "fixed": "fixed classifiers"}
    known |= {"control": "JEI-DNN's classifiers, threshold"}
    named = {known.get(name, name): row for name, row in contestants.items()}
    return {
        "kind": "image",
        "alone": None,
        "test": 10_000,
        "full accuracy": 0.9,
        "axis from": 0.1,
        "contestants": named,
    }


class TestAtEqualCost:
    def test_constant_lines_differ_by_their_difference(self) -> None:
        task = only(JEI=line(0.9), BoostedNet=line(0.87))
        assert at_equal_cost(task, "JEI-DNN", "BoostedNet", "accuracy") == pytest.approx(0.03)
        assert at_equal_cost(task, "BoostedNet", "JEI-DNN", "accuracy") == pytest.approx(-0.03)

    def test_a_line_in_the_logarithm_of_cost_is_averaged_over_it(self) -> None:
        costs = np.geomspace(0.1, 1, 200)
        one = {"curve": [[cost, 1 + math.log10(cost)] for cost in costs]}
        task = only(JEI=one, BoostedNet={"curve": [[0.1, 0.0], [1.0, 0.0]]})
        assert at_equal_cost(task, "JEI-DNN", "BoostedNet", "accuracy") == pytest.approx(0.5, abs=1e-3)

    def test_begins_where_both_do_and_the_last_point_goes_on(self) -> None:
        late = {"curve": [[0.5, 0.8], [0.6, 0.9]]}
        early = {"curve": [[0.01, 0.0], [0.5, 0.8]]}
        task = only(JEI=late, BoostedNet=early)
        task["axis from"] = 0.02
        costs = np.geomspace(0.5, 1, 65)
        expected = np.interp(costs, [0.5, 0.6], [0.0, 0.1]).mean()
        assert at_equal_cost(task, "JEI-DNN", "BoostedNet", "accuracy") == pytest.approx(expected)

    def test_not_below_what_areas_begin_at(self) -> None:
        poor = {"curve": [[0.01, 0.0], [0.0999, 0.0], [0.1, 0.9], [1.0, 0.9]]}
        task = only(JEI=poor, BoostedNet={"curve": [[0.01, 0.8], [1.0, 0.8]]})
        assert at_equal_cost(task, "JEI-DNN", "BoostedNet", "accuracy") == pytest.approx(0.1)

    def test_only_where_the_better_one_is_good_enough(self) -> None:
        rising = {"curve": [[0.1, 0.0], [0.999, 0.0], [1.0, 0.9]]}
        task = only(JEI=rising, BoostedNet={"curve": [[0.1, 0.1], [1.0, 0.1]]})
        assert at_equal_cost(task, "JEI-DNN", "BoostedNet", "accuracy", above=0.8) == pytest.approx(0.8)
        assert at_equal_cost(task, "BoostedNet", "BoostedNet", "accuracy", above=0.8) is None

    def test_what_is_missing_gives_nothing(self) -> None:
        task = only(JEI=line(0.9), L2W={"curve": [[0.3, 0.8]]}, BoostedNet={"curve": [[1.2, 0.8], [1.3, 0.9]]})
        assert at_equal_cost(task, "JEI-DNN", "nobody", "accuracy") is None
        assert at_equal_cost(task, "JEI-DNN", "L2W-DEN", "ece") is None
        assert at_equal_cost(task, "JEI-DNN", "BoostedNet", "accuracy") is None


def test_noise_is_that_of_independent_differences_and_never_nothing() -> None:
    task = only(JEI=line(0.9), BoostedNet=line(0.9))
    assert noise_of_areas(task, "JEI-DNN", "BoostedNet") == pytest.approx(0.004 * math.sqrt(2))
    task = only(JEI=line(0.9), BoostedNet={"curve": []})
    task["contestants"]["JEI-DNN"]["interval"] = [0.0, 0.0]
    assert noise_of_areas(task, "JEI-DNN", "BoostedNet") == 0.002
    assert noise_of_share(task, 0.9) == pytest.approx(1.96 * 0.003)
    assert noise_of_share(task, 1.0) == 0.002


def test_gaps_leave_out_tasks_without_a_figure() -> None:
    found = gaps({"a": {"x": 0.01}, "b": {"x": None}}, lambda task: task["x"], lambda task: 0.002)
    assert found == {"a": Gap(1.0, 0.2)}


@each(
    ("figures", "better", "same", "at_most"),
    [
        ((), "not tested", "not tested", "not tested"),
        ((3, 0.5, 3), "holds", "does not hold", "does not hold"),
        ((3, 0.5, 0.5), "mixed", "mixed", "mixed"),
        ((3, 3, -3), "mixed", "does not hold", "does not hold"),
        ((3, -3, -3), "does not hold", "does not hold", "mixed"),
        ((0.5, 0.5), "not shown", "holds", "holds"),
        ((-3, -3), "does not hold", "does not hold", "holds"),
    ],
)
def test_what_figures_say_of_a_claim(figures: tuple[float, ...], better: str, same: str, at_most: str) -> None:
    by_task = {str(index): Gap(figure, 1.0) for index, figure in enumerate(figures)}
    assert improves("x", by_task).verdict == better
    assert improves("x", by_task).against == tuple(name for name, gap in by_task.items() if gap.figure == -3)
    assert is_alike("x", by_task).against == tuple(name for name, gap in by_task.items() if abs(gap.figure) == 3)
    assert is_at_most("x", by_task).against == tuple(name for name, gap in by_task.items() if gap.figure == 3)
    assert is_alike("x", by_task).verdict == same
    assert is_at_most("x", by_task).verdict == at_most


def test_parts_of_a_claim_must_agree() -> None:
    def parts(*verdicts: str) -> list[Measure]:
        return [Measure("x", {}, (), verdict) for verdict in verdicts]

    assert agreed(parts("holds", "not tested", "holds")) == "holds"
    assert agreed(parts("holds", "does not hold")) == "mixed"
    assert agreed(parts("does not hold")) == agreed(parts("not shown", "does not hold")) == "does not hold"
    assert agreed(parts("holds", "not shown")) == "mixed"
    assert agreed(parts("not tested")) == agreed([]) == "not tested"


def test_figures_in_words() -> None:
    by_task = {"a": Gap(2.0, 1.0), "b": Gap(-4.0, 1.0), "c": Gap(0.5, 1.0)}
    assert told([improves("points more", by_task), improves("none", {})]) == (
        "Points more: \N{MINUS SIGN}0.50 on average, beyond noise on 2 of 3 tasks, against the claim on b. "
        "None: not measured."
    )


class TestFive:
    def test_joint_training(self) -> None:
        better = only(JEI=line(0.9), BoostedNet=line(0.87), L2W=line(0.88), fixed=line(0.89))
        found = joint_training({"a": better})
        assert found.verdict == "holds"
        assert [measure.by_task["a"].figure for measure in found.figures] == pytest.approx([3.0, 2.0, 1.0])
        assert joint_training({"a": only(JEI=line(0.8), BoostedNet=line(0.85))}).verdict == "does not hold"
        mixed = only(JEI=line(0.9), BoostedNet=line(0.87), L2W=line(0.95))
        assert joint_training({"a": mixed}).verdict == "mixed"
        assert joint_training({"a": only(offramp=line(0.9))}).verdict == "not tested"

    def test_joint_training_is_judged_where_accuracy_is_high(self) -> None:
        """Behind by far where nobody is good, ahead where both are."""
        ours = {**line(0), "curve": [[0.1, 0.1], [0.5, 0.1], [0.5001, 0.9], [1.0, 0.9]]}
        theirs = {**line(0), "curve": [[0.1, 0.6], [0.5, 0.6], [0.5001, 0.85], [1.0, 0.85]]}
        found = joint_training({"a": only(JEI=ours, BoostedNet=theirs)})
        assert found.figures[0].by_task["a"].figure == pytest.approx(5.0, abs=0.01)

    def test_learned_gates(self) -> None:
        good = only(JEI=line(0.9, early=0.1), control=line(0.88, early=0.3))
        found = learned_gates({"a": good})
        assert found.verdict == "holds"
        assert [measure.by_task["a"].figure for measure in found.figures] == pytest.approx([2.0, 20.0])
        assert learned_gates({"a": only(JEI=line(0.9), control=line(0.92))}).verdict == "does not hold"

    def test_where_samples_leave(self) -> None:
        def exits(leavers: float) -> dict[str, Any]:
            rows = [(10, 0.5, 0.6), (70, leavers, 0.8), (20, 0.5, 0.9)]
            return {
                "exits": [
                    {"leave": leave, "accuracy": own, "accuracy of all": everyone} for leave, own, everyone in rows
                ]
            }

        found = where_samples_leave({"a": {**only(), "decomposition": [exits(0.95), exits(0.9)]}})
        assert found.verdict == "holds"
        assert found.figures[0].by_task["a"].figure == pytest.approx(12.5)  # neither the rare first exit nor the last
        assert where_samples_leave({"a": {**only(), "decomposition": [exits(0.7)]}}).verdict == "does not hold"
        assert where_samples_leave({"a": {**only(), "decomposition": None}}).verdict == "not tested"

    def test_exits_are_alike_on_all_samples(self) -> None:
        ours, theirs = ({**line(0.9), "exit accuracy": [one, 0.8, 0.9]} for one in (0.6, 0.55))
        found = where_samples_leave({"a": only(JEI=ours, threshold=theirs, BoostedNet=ours, L2W=line(0.9))})
        assert [measure.verdict for measure in found.figures] == [
            "not tested",
            "holds",
            "not tested",
            "does not hold",
        ]
        assert found.figures[3].by_task["a"].figure == pytest.approx(2.5)

    def test_uncertainty(self) -> None:
        good, bad = line(0.9, ece=0.01, size=1.5, coverage=0.951), line(0.9, ece=0.03, size=2.0, coverage=0.94)
        found = uncertainty({"a": only(JEI=good, BoostedNet=bad, L2W=bad, threshold=bad)})
        assert found.verdict == "holds"
        figures = [measure.by_task["a"].figure for measure in found.figures]
        assert figures == pytest.approx([2.0] * 3 + [25.0] * 3 + [0.9] * 3)
        found = uncertainty({"a": only(JEI=bad, BoostedNet=good, L2W=good, threshold=good)})
        assert found.verdict == "does not hold"

    def test_tailored_architectures_is_a_stand_in(self) -> None:
        rows = {"offramp's exits, gates": line(0.9), "offramp's exits, threshold": line(0.85)}
        found = tailored_architectures({"a": only(**rows)})
        assert found.verdict == "holds"
        assert found.why.startswith("A stand-in")


class TestAppendix:
    @pytest.fixture
    def found(self) -> dict[str, Any]:
        return {one.name: one for one in appendix(content("cifar10", "nci1")["tasks"])}

    def test_areas(self, found: dict[str, Any]) -> None:
        rows = content("cifar10")["tasks"]["cifar10"]["contestants"]
        expected = 100 * (rows["JEI-DNN"]["area"] - rows["DiffBranch"]["area"])
        assert found["DiffBranch"].figures[0].by_task["cifar10"].figure == pytest.approx(expected, abs=1e-3)
        assert found["DiffBranch"].verdict == "holds"
        assert found["Exit if min"].verdict == "holds"

    def test_graphs_are_those_tasks_alone(self, found: dict[str, Any]) -> None:
        assert list(found["Graphs"].figures[0].by_task) == ["nci1"]

    def test_variants(self, found: dict[str, Any]) -> None:
        assert found["Conformal variants"].figures[0].by_task["cifar10"].figure == pytest.approx(2.2)
        assert found["Conformal variants"].verdict == "does not hold"

    def test_convergence(self, found: dict[str, Any]) -> None:
        """Loss .55 + .4 exp(-rate epoch): within 1 % of the least, .55005, where the exponential is below .0139."""
        target = 1.01 * (0.55 + 0.4 * math.exp(-9))
        epochs = {rate: math.ceil(-math.log((target - 0.55) / 0.4) / rate) + 1 for rate in (1.0, 0.4)}
        expected = min(epochs[0.4], 11) - epochs[1.0]
        assert found["Full gradient"].figures[1].by_task["cifar10"].figure == expected

    def test_by_depth(self, found: dict[str, Any]) -> None:
        assert found["Calibration by depth"].verdict == "holds"
        assert found["Calibration by depth"].figures[0].by_task["cifar10"].figure > 1

    def test_time_and_parameters(self, found: dict[str, Any]) -> None:
        time, _, parameters = found["Training time"].figures
        assert time.by_task["cifar10"].figure == pytest.approx(100 * (75 / 52.6 - 1), abs=1e-3)
        assert parameters.by_task["cifar10"].figure == pytest.approx(0.5)
        assert parameters.by_task["nci1"].figure == pytest.approx(2.5)  # more than allowed
        assert (time.verdict, parameters.verdict) == ("holds", "does not hold")


def test_all_of_it_is_json_and_missing_cells_are_no_error() -> None:
    told = content()["observations"]
    assert [one["name"] for one in told[:5]] == [
        "1. Joint training",
        "2. Learned gates",
        "3. Where samples leave",
        "4. Uncertainty",
        "5. Tailored architectures",
    ]
    assert json.loads(json.dumps(told, allow_nan=False)) == told
    assert {one["verdict"] for one in observations({})} == {"not tested"}
    tasks = content("cifar10", "cifar10-cascade")["tasks"]
    for name in list(tasks["cifar10"]["contestants"]):
        del tasks["cifar10"]["contestants"][name]
        observations(tasks)
    assert set(TASKS) >= set(tasks)


def test_no_verdict_is_given_while_contestants_have_not_had_the_same_training() -> None:
    task = only(JEI=line(0.9), BoostedNet=line(0.87), L2W=line(0.8))
    assert joint_training({"a": task}).verdict == "holds"
    claim = next(claim for claim in observations({"a": task}) if claim["name"] == "1. Joint training")
    assert claim["verdict"] == "not yet tested fairly"
    assert {measure["verdict"] for measure in claim["figures"]} == {"not yet tested fairly"}
    assert claim["why"].startswith("JEI-DNN was trained for 5 + 10 epochs")
    assert claim["figures"][0]["by_task"]["a"]["figure"] > 0  # the figures stay
