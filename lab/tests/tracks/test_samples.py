"""Samples and costs of a task, with exits after some of its stages."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from offramp import Backbone
from offramp.errors import InputError
from offramp.features import ArraySource, BatchSource
from offramp_bench import places
from offramp_bench.paper.tasks import TASKS, Task
from offramp_bench.tracks import samples
from offramp_bench.tracks.samples import LARGEST_SHARE, load_splits, open_splits, prices_of, spacing_of, widest_ladder

TASK = TASKS["nci1"]
"""The smallest: its features take a second."""


@pytest.fixture(autouse=True)
def _own_stores(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    cached = (
        samples._backbone,
        samples.fingerprint_of,
        samples.store_of,
        samples._count_stages,
        prices_of,
        spacing_of,
        widest_ladder,
        load_splits,
    )
    monkeypatch.setattr(places, "STORES", tmp_path)
    for function in cached:
        function.cache_clear()
    yield
    for function in cached:
        function.cache_clear()


def _features(source: BatchSource) -> torch.Tensor:
    return torch.cat([batch.features for batch in source.in_order(batch_size=1000)])


def network() -> Backbone:
    torch.manual_seed(0)
    stages = [nn.Sequential(nn.Linear(6, 512), nn.Tanh(), nn.Linear(512, 6)) for _ in range(4)]
    return Backbone("tiny", stages, {3: nn.Linear(6, 3)}, num_classes=3).eval().requires_grad_(False)


def source(name: str, count: int, seed: int) -> ArraySource:
    inputs = np.random.default_rng(seed).normal(size=(count, 6)).astype(np.float32)
    return ArraySource(inputs, inputs[:, :3].argmax(1), name=name)


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> Task:
    task = Task(
        name="tiny",
        kind="image",
        num_classes=3,
        backbone=network,
        seen=lambda: source("seen", 240, 0),
        unseen=lambda: source("unseen", 120, 1),
        test=lambda: source("test", 90, 2),
        shares=(0.25, 0.5, 0.25),
    )
    monkeypatch.setitem(TASKS, "tiny", task)
    return task


def test_seeds_change_all_but_the_test_samples(tiny: Task) -> None:
    first, second = (open_splits(tiny, "means", seed) for seed in (0, 1))
    assert set(first.test.ids()) == set(second.test.ids())
    assert set(first.tune.ids()) != set(second.tune.ids())
    assert (first.fit.num_samples, first.tune.num_samples, first.calibrate.num_samples) == (270, 60, 30)


def test_the_unseen_samples_that_are_left_are_the_test(tiny: Task) -> None:
    splits = open_splits(replace(tiny, test=None, shares=(0, 0.25, 0.25)), "means", 0)
    assert (splits.fit.num_samples, splits.test.num_samples) == (240, 60)


def test_no_more_samples_are_trained_on_than_the_task_says(tiny: Task) -> None:
    splits = open_splits(replace(tiny, most_rows=90), "means", 0)
    assert splits.fit.num_samples == 30 + 60  # of the unseen ones, and every fourth of the seen ones


def test_samples_in_memory_are_those_of_the_stores_standardised(tiny: Task) -> None:
    stored, loaded = open_splits(tiny, "means", 0), load_splits(tiny, "means", 0, 1)
    assert loaded.fit.ids().tolist() == stored.fit.ids().tolist()
    rows = _features(stored.fit).float()
    expected = (_features(stored.test).float() - rows.mean(0)) / rows.std(0)
    torch.testing.assert_close(_features(loaded.test).float(), expected, atol=0.02, rtol=0.01)


@pytest.mark.data
def test_exits_after_every_second_stage_see_its_features_and_pay_for_both() -> None:
    every, second = load_splits(TASK, "means", 0, 1), load_splits(TASK, "means", 0, 2)
    assert (every.fit.widths, every.fit.own_heads) == ((64,) * 6, (5,))
    assert (second.fit.widths, second.fit.own_heads) == ((64,) * 4, (3,))  # stages 0, 2, 4 and the last
    kept = [_features(every.test)[:, 64 * stage : 64 * stage + 64] for stage in (0, 2, 4, 5)]
    assert torch.equal(_features(second.test), torch.cat(kept, dim=1))
    costs, merged = prices_of("nci1", "means", 1), prices_of("nci1", "means", 2)
    sums = [costs.stage[:, :1], costs.stage[:, 1:3], costs.stage[:, 3:5], costs.stage[:, 5:]]
    torch.testing.assert_close(merged.stage, torch.stack([part.sum(1) for part in sums], dim=1))
    assert torch.equal(merged.full, costs.full)
    assert torch.equal(merged.pooling, costs.pooling[:, [0, 2, 4, 5]])


@pytest.mark.data
def test_exits_keep_within_their_share(monkeypatch: pytest.MonkeyPatch) -> None:
    assert spacing_of("nci1", "means", "linear") == 1
    assert widest_ladder("nci1", "grid") == 8
    monkeypatch.setattr(samples, "LARGEST_SHARE", LARGEST_SHARE / 4)
    spacing_of.cache_clear()
    widest_ladder.cache_clear()
    assert spacing_of("nci1", "means", "linear") == 2
    spacing, width = spacing_of("nci1", "means", "ladder"), widest_ladder("nci1", "means")
    assert (spacing, width) == (3, 16)
    assert samples._share("nci1", "means", spacing, "ladder", width) <= samples.LARGEST_SHARE
    assert samples._share("nci1", "means", spacing - 1, "ladder", 8) > samples.LARGEST_SHARE
    monkeypatch.setattr(samples, "LARGEST_SHARE", 1e-6)
    spacing_of.cache_clear()
    with pytest.raises(InputError, match="linear exits"):
        spacing_of("nci1", "means", "linear")


@pytest.mark.data
def test_exits_that_read_the_answer_before_cost_more_than_linear_ones() -> None:
    shares = [samples._share("nci1", "grid", 1, kind) for kind in ("linear", "cascaded")]
    assert shares[0] < shares[1] <= LARGEST_SHARE
