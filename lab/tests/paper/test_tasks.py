"""The samples of a tiny task: which of them are for what."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from offramp import Backbone
from offramp.features import ArraySource
from offramp_bench.paper import tasks
from offramp_bench.paper.tasks import Task, splits_of


def network() -> Backbone:
    torch.manual_seed(0)
    stages = [nn.Sequential(nn.Linear(6, 512), nn.Tanh(), nn.Linear(512, 6)) for _ in range(4)]
    return Backbone("tiny", stages, {3: nn.Linear(6, 3)}, num_classes=3).eval().requires_grad_(False)


def source(name: str, count: int, seed: int) -> ArraySource:
    inputs = np.random.default_rng(seed).normal(size=(count, 6)).astype(np.float32)
    return ArraySource(inputs, inputs[:, :3].argmax(1), name=name)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Task]:
    """Tasks with features under a folder of their own; those with another name share nothing."""
    monkeypatch.setattr(tasks, "CACHE", tmp_path)
    for function in (tasks._backbone, tasks._store, tasks.prices_of):
        function.cache_clear()

    def make(name: str) -> Task:
        task = Task(
            name=name,
            kind="image",
            num_classes=3,
            backbone=network,
            seen=lambda: source("seen", 240, 0),
            unseen=lambda: source("unseen", 120, 1),
            test=lambda: source("test", 90, 2),
            shares=(0.25, 0.5, 0.25),
        )
        monkeypatch.setitem(tasks.TASKS, name, task)
        return task

    return make


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
