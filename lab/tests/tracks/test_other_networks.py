"""Other networks beside a task's own, on made-up answers."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from lab.tests.tracks.examples import TASK as MADE_UP
from lab.tests.tracks.examples import replace_samples
from offramp import Backbone
from offramp.errors import InputError
from offramp.features._batch import MemorySource
from offramp.preprocessing import Preprocessing
from offramp_bench.paper.tasks import TASKS, Task, with_resolution
from offramp_bench.tracks import cell, other_networks, results
from offramp_bench.tracks.contestants import AGREEMENT, CONTESTANTS, TRAININGS
from offramp_bench.tracks.joining import complete_cells
from offramp_bench.tracks.other_networks import measure_agreement, with_full_network_of
from offramp_bench.tracks.samples import Look, Splits
from offramp_bench.tracks.yardstick import Curve

TASK = TASKS["cifar10"]

ANSWERS = {
    "cifar10-resnet20": [0, 1, 1, 0],
    "cifar10-resnet32": [0, 1, 0, 1],
    "cifar10-resnet44": [0, 0, 0, 0],
    "cifar10": [0, 1, 0, 0],
}
"""Answers to the test samples; to the tune samples all answer as ResNet-32 does, but ResNet-20, which is wrong."""
LABELS = [0, 1, 0, 1]
COSTS = {"cifar10-resnet20": 1.0, "cifar10-resnet32": 2.0, "cifar10-resnet44": 3.0, "cifar10": 10.0}


def _samples(answers: list[int], ids: list[int] | None = None) -> MemorySource:
    logits = torch.nn.functional.one_hot(torch.tensor(answers), 2).float()
    numbers = torch.arange(len(answers)) if ids is None else torch.tensor(ids)
    return MemorySource(torch.zeros(len(answers), 1), {0: logits}, torch.tensor(LABELS), (1,), ids=numbers)


@pytest.fixture(autouse=True)
def _made_up(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(task: Task, _look: Look, _seed: int) -> Splits:
        test = _samples(ANSWERS[task.name])
        tune = _samples([1, 0, 1, 0] if task.name == "cifar10-resnet20" else LABELS)
        return Splits(tune, tune, tune, test)

    monkeypatch.setattr(other_networks, "open_splits", load)
    monkeypatch.setattr(other_networks, "_full_cost", lambda task: COSTS[task.name])


def test_agreement_is_chosen_on_tune_and_measured_on_test() -> None:
    curve = measure_agreement(TASK, 0, np.array([0.3, 0.45, 0.6, 1.0]))
    points = {
        (round(cost, 3), tuple(right))
        for cost, right in zip(curve.costs().tolist(), curve.correct.tolist(), strict=True)
    }
    # The cheapest point: ResNet-20 and 32, of which the later one is asked where they differ. It is right on all of
    # test, and on all of tune.
    assert (0.3, (True, True, True, True)) in points
    # ResNet-20 and 44 are as good on tune, so that they are chosen for a larger budget, though worse on test.
    assert (0.4, (True, False, True, False)) in points
    assert curve.full.tolist() == [10.0] * 4
    assert curve.full_correct.tolist() == [True, True, True, False]


def test_a_curve_stands_beside_the_tasks_own_network() -> None:
    small = Curve(np.ones((1, 4), np.float32), np.ones((1, 4), bool), np.full(4, 2.0, np.float32), np.zeros(4, bool))
    curve = with_full_network_of(small, TASK, _samples([0, 0, 0, 0]), 0)
    assert curve.costs().tolist() == [0.1]
    assert curve.full_correct.tolist() == [True, True, True, False]
    np.testing.assert_array_equal(curve.correct, small.correct)


def test_other_samples_are_refused() -> None:
    curve = Curve(np.ones((1, 4), np.float32), np.ones((1, 4), bool), np.ones(4, np.float32), np.ones(4, bool))
    with pytest.raises(InputError, match="the same samples"):
        with_full_network_of(curve, TASK, _samples([0, 0, 0, 0], [4, 5, 6, 7]), 0)


def test_a_lower_resolution_is_that_of_its_preprocessing() -> None:
    steps: tuple[tuple[str, dict[str, Any]], ...] = (
        ("channels_first", {}),
        ("resize", {"size": 64, "mode": "bilinear"}),
    )
    network = Backbone("one-stage", [nn.Identity()], {0: nn.Identity()}, num_classes=2)

    def load() -> Backbone:
        network.preprocessing = Preprocessing(steps)
        return network

    task = with_resolution(replace(TASK, backbone=load, about="Digits at 64 pixels"), 48)
    assert task.backbone().preprocessing.steps == (steps[0], ("resize", {"size": 48, "mode": "bilinear"}))
    assert load().preprocessing.steps == steps
    assert (task.name, task.alone, task.about) == ("cifar10-48px", "cifar10", "Digits at 48 pixels")


def test_a_cell_of_other_networks_and_its_figures(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    late = Curve(
        np.full((1, 150), 0.9 * 3, np.float32), np.ones((1, 150), bool), np.full(150, 3, np.float32), np.ones(150, bool)
    )
    replace_samples(monkeypatch, tmp_path)
    monkeypatch.setattr(cell, "measure_agreement", lambda *_: late)
    voting = TRAININGS[AGREEMENT]
    saved = [cell.run_cell(MADE_UP, voting, "means", seed) for seed in range(2)]
    for seed, voted in enumerate(saved):
        cell.save_cell(voted, cell.cell_files(MADE_UP, voting, "means", seed))
    complete_cells(MADE_UP, replace(TRAININGS["linear"], footing=None), "means", range(2))
    chosen = {name: replace(TRAININGS[name], footing=None) for name in ("linear", AGREEMENT)}
    contestants = {name: contestant for name, contestant in CONTESTANTS.items() if name in chosen}
    monkeypatch.setattr(results, "TRAININGS", chosen)
    monkeypatch.setattr(results, "contestants_of", lambda _task: contestants)
    monkeypatch.setattr(cell, "TRAININGS", chosen)
    assembled = results.assemble(MADE_UP, range(2))
    rows = assembled["contestants"]
    # What begins at 90 % of the cost does not take the smaller costs away from everybody.
    assert assembled["range"]["first_exit"] < 0.4
    assert set(rows["linear"]["figures"]) == set(assembled["figures"])
    assert not {"accuracy at 50 % of the cost", "mean accuracy"} & set(rows[AGREEMENT]["figures"])
    assert rows[AGREEMENT]["figures"]["cost at 0.5 points lost"] == pytest.approx(0.9)
    assert rows[AGREEMENT]["uncertainty"] == []
