"""The harness on a tiny task: who sees which samples, and what a cell says."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from offramp import Backbone
from offramp.features import ArraySource
from offramp.methods._settings import DEFAULT, PAPER
from offramp_bench.paper import tasks
from offramp_bench.paper.cell import Cell, identity, run_cell
from offramp_bench.paper.contestants import EXITS
from offramp_bench.paper.tasks import Task, splits_of
from tests.cases import each

QUICK = {"cost_weights": (0.1, 1.0, 3.0), "warmup_epochs": 2, "epochs": 1, "ladder_width": 8}


def network() -> Backbone:
    torch.manual_seed(0)
    stages = [nn.Sequential(nn.Linear(6, 512), nn.Tanh(), nn.Linear(512, 6)) for _ in range(4)]
    return Backbone("tiny", stages, {3: nn.Linear(6, 3)}, num_classes=3).eval().requires_grad_(False)


def source(name: str, count: int, seed: int, *, shuffled: bool = False) -> ArraySource:
    generator = np.random.default_rng(seed)
    inputs = generator.normal(size=(count, 6)).astype(np.float32)
    labels = inputs[:, :3].argmax(1)
    return ArraySource(inputs, generator.permutation(labels) if shuffled else labels, name=name)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Task]:
    """Tasks with features under a folder of their own; those with another name share nothing."""
    monkeypatch.setattr(tasks, "CACHE", tmp_path)
    for function in (tasks._backbone, tasks._store, tasks._widths, tasks.prices_of):
        function.cache_clear()

    def make(name: str, *, shuffled: bool = False) -> Task:
        task = Task(
            name=name,
            kind="image",
            num_classes=3,
            backbone=network,
            seen=lambda: source("seen", 240, 0),
            unseen=lambda: source("unseen", 120, 1),
            test=lambda: source("test", 90, 2, shuffled=shuffled),
            shares=(0.25, 0.5, 0.25),
            paper=replace(PAPER, **QUICK),  # type: ignore[arg-type]
            default=replace(DEFAULT, **QUICK),  # type: ignore[arg-type]
        )
        monkeypatch.setitem(tasks.TASKS, name, task)
        return task

    return make


def curves(cell: Cell) -> dict[str, list[float]]:
    return {rule: [cost for cost, _ in found["curve"]] for rule, found in cell.figures["rules"].items()}


class TestSplits:
    def test_seeds_change_all_but_the_test_samples(self, made: Callable[..., Task]) -> None:
        one, other = (splits_of(made("tiny"), "paper", seed) for seed in (0, 1))
        assert set(one.test.ids()) == set(other.test.ids())
        assert set(one.tune.ids()) != set(other.tune.ids())
        assert (one.fit.num_samples, one.tune.num_samples, one.calibrate.num_samples) == (270, 60, 30)

    def test_what_is_left_of_the_unseen_is_the_test(self, made: Callable[..., Task]) -> None:
        task = replace(made("tiny"), test=None, shares=(0, 0.25, 0.25))
        splits = splits_of(task, "default", 0)
        assert (splits.fit.num_samples, splits.test.num_samples) == (240, 60)


class TestCell:
    @each("exits", ["ladder", "linear", "weighted", "boosted", "diff branch"])
    def test_every_rule_has_an_area(self, made: Callable[..., Task], exits: str) -> None:
        cell = run_cell(made("tiny"), EXITS[exits], 0)
        assert set(EXITS[exits].rules) <= set(cell.figures["rules"])
        for rule, rows in cell.areas.items():
            assert rows.shape == (90,)
            assert rows.mean() == pytest.approx(cell.figures["rules"][rule]["area"])
            assert 0.1 < rows.mean() < 1
        assert cell.figures["test"] == 90

    def test_test_samples_choose_nothing(self, made: Callable[..., Task]) -> None:
        """With other labels on the same test samples the same points are chosen."""
        honest, shuffled = (
            run_cell(made(name, shuffled=name == "shuffled"), EXITS["ladder"], 0) for name in ("tiny", "shuffled")
        )
        assert curves(honest) == curves(shuffled)
        assert honest.figures["rules"]["threshold"]["area"] > shuffled.figures["rules"]["threshold"]["area"] + 0.05

    def test_other_settings_are_another_cell(self, made: Callable[..., Task]) -> None:
        task = made("tiny")
        other = replace(task, default=replace(task.default, dropout=0.5))
        assert identity(task, EXITS["ladder"]) == identity(task, EXITS["ladder"])
        assert identity(task, EXITS["ladder"]) != identity(other, EXITS["ladder"])
        assert identity(task, EXITS["linear"]) == identity(other, EXITS["linear"])
