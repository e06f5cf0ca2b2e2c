"""Claims on results whose verdicts are known by construction."""

import json
from typing import Any

import pytest

from lab.tests.paper.examples import details, everybody, row, task
from offramp_bench.paper.claims import judge_claims
from tests.cases import each

NAMES = [
    "1. Joint training",
    "2. Learned gates",
    "3. Where samples leave",
    "4. Uncertainty",
    "5. Tailored architectures",
    "Calibration",
    "Set size",
    "Coverage",
    "Ablation",
    "DiffBranch",
    "Conformal variants",
    "Calibration by depth",
    "Full gradient",
    "Exit if min",
    "Easy stays easy",
    "Graphs",
    "Training time",
]


def claims(tasks: dict[str, Any], found: dict[str, Any] | None = None) -> dict[str, Any]:
    return {claim["name"]: claim for claim in judge_claims(tasks, found or {})}


def figures(claim: dict[str, Any], name: str = "a") -> list[float]:
    return [measure["by_task"][name]["figure"] for measure in claim["figures"]]


def test_results_that_bear_out_the_paper() -> None:
    found = claims({"a": task("graph", **everybody())}, {"a": details()})
    assert list(found) == NAMES
    assert {name: claim["verdict"] for name, claim in found.items()} == {
        name: "not tested" if name.startswith("5.") else "holds" for name in NAMES
    }


def test_contestants_that_are_all_alike() -> None:
    rows = {name: row(0.9) for name in everybody()}
    found = claims({"a": task("graph", **rows)})
    shown = ("1. Joint training", "2. Learned gates", "4. Uncertainty", "Ablation", "DiffBranch", "Graphs")
    assert {found[name]["verdict"] for name in shown} == {"not shown"}
    assert found["Exit if min"]["verdict"] == found["Training time"]["verdict"] == "holds"


@each(
    ("name", "changes", "opening"),
    [
        ("1. Joint training", {"JEI": row(0.8)}, "On average, training the classifiers jointly brings \u22128.00"),
        ("2. Learned gates", {"JEI": row(0.8, early=0.6)}, "Gates see four statistics of the same answer"),
        ("3. Where samples leave", {"JEI": row(0.9, exits=(0.5, 0.7, 0.9))}, "Trained on the samples that leave"),
        ("4. Uncertainty", {"JEI": row(0.9, ece=0.2, size=4.0, coverage=0.8)}, "Calibration errors after"),
        ("Calibration", {"JEI": row(0.9, ece=0.2)}, "Calibration errors after temperature scaling are 20.00 points"),
        ("Set size", {"JEI": row(0.9, size=4.0)}, "Sets of 95 % hold 4.00 classes with JEI-DNN"),
        ("Coverage", {"JEI": row(0.9, coverage=0.85)}, "Coverage differs from the requested 95 % by 10.00 points"),
        ("Ablation", {"JEI": row(0.8), "gates": row(0.8)}, "On average, joint training brings \u22128.00"),
        ("DiffBranch", {"JEI": row(0.5)}, "Most against it: \u221210.00 points more than DiffBranch"),
        ("Exit if min", {"if_min": row(0.85)}, "Most against it: +5.00"),
        ("Graphs", {"JEI": row(0.8)}, "JEI-DNN has 80.00 % against 87.00 % on a"),
        ("Training time", {"JEI": row(0.9, seconds=90, parameters=1100)}, "On a, JEI-DNN takes 90.0 s"),
    ],
)
def test_claim_that_does_not_hold_says_why(name: str, changes: dict[str, Any], opening: str) -> None:
    claim = claims({"a": task("graph", **everybody(**changes))})[name]
    assert claim["verdict"] == "does not hold"
    assert claim["why"].startswith(opening)


@each(
    ("name", "changes", "verdict"),
    [
        ("3. Where samples leave", {"leavers": 0.7}, "mixed"),
        ("Coverage", {"off": 0.2}, "mixed"),
        ("Conformal variants", {"apart": 0.05}, "mixed"),
        ("Calibration by depth", {"late_error": 0.2}, "does not hold"),
        ("Calibration by depth", {"late_error": 0.05}, "not shown"),
        ("Full gradient", {"slower": -2}, "mixed"),
        ("Easy stays easy", {"success": 0.7}, "mixed"),
    ],
)
def test_claim_about_exits(name: str, changes: dict[str, Any], verdict: str) -> None:
    claim = claims({"a": task(**everybody())}, {"a": details(**changes)})[name]
    assert claim["verdict"] == verdict
    assert claim["why"]


def test_figures_by_hand() -> None:
    found = claims({"a": task("graph", **everybody())}, {"a": details(off=0.01)})
    assert figures(found["1. Joint training"]) == pytest.approx([3.0, 2.0, 2.0])
    assert figures(found["2. Learned gates"]) == pytest.approx([2.0, 20.0])
    assert figures(found["3. Where samples leave"]) == pytest.approx([15.0, 0.0, 0.0, 0.0])
    assert figures(found["Calibration"]) == pytest.approx([2.0] * 3)
    assert figures(found["Set size"]) == pytest.approx([25.0] * 3)
    assert figures(found["Coverage"]) == pytest.approx([0.9, 0.9, 0.9, 2.0])
    assert figures(found["Full gradient"]) == pytest.approx([0.0, 5.0])
    assert figures(found["Easy stays easy"]) == pytest.approx([7.0, 15.0])
    assert figures(found["Training time"]) == pytest.approx([20.0, 20.0, 0.0])


def test_some_tasks_for_and_some_against_are_mixed() -> None:
    good, bad = everybody(), everybody(JEI=row(0.8))
    found = claims({"a": task(**good), "b": task(**good), "c": task(**bad)})["1. Joint training"]
    assert found["verdict"] == "mixed"
    assert found["figures"][0]["against"] == ("c",)


def test_graphs_are_those_tasks_alone() -> None:
    found = claims({"a": task(**everybody()), "b": task("graph", **everybody())})["Graphs"]
    assert list(found["figures"][0]["by_task"]) == ["b"]


def test_convergence_counts_from_where_the_accuracy_stays() -> None:
    lucky = details()
    lucky["convergence"]["JEI-DNN, full gradient"][0]["accuracy"] = [0.95, 0.95]
    found = claims({"a": task(**everybody())}, {"a": lucky})["Full gradient"]
    assert figures(found)[1] == pytest.approx(5.0)


def test_nothing_is_tested_without_results() -> None:
    assert {claim["verdict"] for claim in judge_claims({}, {})} == {"not tested"}


@each("missing", list(everybody()))
def test_missing_contestants_are_no_error(missing: str) -> None:
    rows = everybody()
    del rows[missing]
    found = judge_claims({"a": task("graph", **rows)}, {"a": details()})
    assert json.loads(json.dumps(found, allow_nan=False))[0].keys() == {"name", "claim", "verdict", "why", "figures"}
    assert [claim["name"] for claim in found] == NAMES


def test_details_of_some_tasks_only() -> None:
    found = claims({"a": task(**everybody()), "b": task(**everybody())}, {"b": details()})["3. Where samples leave"]
    assert [list(measure["by_task"]) for measure in found["figures"]] == [["b"], *[["a", "b"]] * 3]
