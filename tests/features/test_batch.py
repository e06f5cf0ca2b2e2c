"""Batch sources made from another: some of its stages, or without some of its samples."""

from itertools import pairwise

import numpy as np
import torch

from offramp.errors import InputError
from offramp.features import BatchSource, StoreSource
from offramp.features._batch import Batch, FilteredSource, MemorySource, StageView
from offramp.features._store import Store
from tests.cases import each, refuses

WIDTHS = (2, 3, 1, 4, 2)
ENDS = (0, 2, 5, 6, 10, 12)
CHOICES = [(0, 1, 2, 3, 4), (4,), (0, 4), (2, 3, 4), (1, 2, 4)]
every_choice = each("stages", CHOICES)


def source(count: int = 23) -> MemorySource:
    draw = torch.Generator().manual_seed(0)
    return MemorySource(
        torch.randn(count, 12, generator=draw),
        {stage: torch.randn(count, 3, generator=draw) for stage in (1, 2, 4)},
        torch.arange(count) % 3,
        WIDTHS,
        ids=torch.arange(count) * 7 + 5,
        sizes=torch.arange(count) % 4 + 1,
    )


def assert_slice(part: Batch, whole: Batch, stages: tuple[int, ...], ends: tuple[int, ...] = ENDS) -> None:
    """The batch holds these stages of the whole one, everything else as it is."""
    columns = [column for stage in stages for column in range(ends[stage], ends[stage + 1])]
    assert torch.equal(part.features, whole.features[:, columns])
    assert part.own_logits.keys() == {stages.index(stage) for stage in whole.own_logits if stage in stages}
    for place, logits in part.own_logits.items():
        assert torch.equal(logits, whole.own_logits[stages[place]])
    for name in ("labels", "ids", "sizes"):
        assert torch.equal(getattr(part, name), getattr(whole, name)), name


@every_choice
def test_is_a_slice_of_every_batch(stages: tuple[int, ...]) -> None:
    whole, view = source(), StageView(source(), stages)
    batches = list(view.in_order(batch_size=5))
    assert len(batches) == 5
    for part, expected in zip(batches, whole.in_order(batch_size=5), strict=True):
        assert_slice(part, expected, stages)


@every_choice
def test_keeps_the_order_of_the_draw(stages: tuple[int, ...]) -> None:
    whole, view = source(), StageView(source(), stages)
    for epoch in range(2):
        options = {"batch_size": 4, "seed": 3, "epoch": epoch}
        for part, expected in zip(view.shuffled(**options), whole.shuffled(**options), strict=True):
            assert_slice(part, expected, stages)


@every_choice
def test_says_what_it_holds(stages: tuple[int, ...]) -> None:
    whole = source()
    view: BatchSource = StageView(whole, stages)
    assert view.widths == tuple(WIDTHS[stage] for stage in stages)
    assert view.own_heads == tuple(place for place, stage in enumerate(stages) if stage in (1, 2, 4))
    assert (view.num_samples, view.num_classes) == (23, 3)
    assert np.array_equal(view.ids(), whole.ids())
    assert torch.equal(view.sizes(), whole.sizes())


def test_of_a_view() -> None:
    inner = StageView(StageView(source(), (1, 2, 3, 4)), (0, 3))
    assert inner.widths == (3, 2)
    assert_slice(next(inner.in_order(batch_size=9)), next(source().in_order(batch_size=9)), (1, 4))


def test_of_a_store_with_all_its_views(store: Store) -> None:
    whole = StoreSource(store, pooling="mean", views="all")
    ends = tuple(np.cumsum((0, *whole.widths)).tolist())
    assert [stop - start for start, stop in pairwise(ends)] == list(whole.widths)
    for stages in ((0, 2), (1, 2), (2,)):
        view = StageView(whole, stages)
        for epoch in range(2):
            pairs = zip(
                view.shuffled(batch_size=16, seed=1, epoch=epoch),
                whole.shuffled(batch_size=16, seed=1, epoch=epoch),
                strict=True,
            )
            for part, expected in pairs:
                assert_slice(part, expected, stages, ends)
        assert_slice(next(view.in_order(batch_size=70)), next(whole.in_order(batch_size=70)), stages, ends)


@each("stages", [(), (0, 1), (3,), (4, 0), (0, 0, 4), (-1, 4), (0, 4, 5)])
def test_refuses_stages_that_are_no_shorter_network(stages: tuple[int, ...]) -> None:
    with refuses(InputError, expected="end with the final one, 4"):
        StageView(source(), stages)


def source_of(ids: list[int]) -> MemorySource:
    rows = torch.arange(len(ids))
    own = {1: torch.stack([rows, -rows], 1).float()}
    return MemorySource(
        rows[:, None].repeat(1, 3).float(), own, rows % 2, (1, 2), ids=torch.tensor(ids), sizes=rows.float() + 1
    )


def test_all_others_are_read_once() -> None:
    whole = source_of([5, 6, 7, 5, 8, 9, 9])
    rest = FilteredSource(whole, np.array([9, 5, 1]))
    rows = [1, 2, 4]
    assert rest.num_samples == 3
    assert rest.ids().tolist() == [6, 7, 8]
    assert rest.sizes().tolist() == [2.0, 3.0, 5.0]
    assert (rest.widths, rest.own_heads, rest.num_classes) == (whole.widths, whole.own_heads, whole.num_classes)
    for batch_size in (1, 2, 10):
        batches = list(rest.in_order(batch_size=batch_size))
        assert torch.cat([batch.features[:, 0] for batch in batches]).tolist() == rows
        assert torch.cat([batch.own_logits[1][:, 1] for batch in batches]).tolist() == [-row for row in rows]
        assert all(len(batch.labels) for batch in batches)
        mixed = [batch.ids for batch in rest.shuffled(batch_size=batch_size, seed=1, epoch=0)]
        assert sorted(torch.cat(mixed).tolist()) == [6, 7, 8]


def test_nothing_left_is_refused() -> None:
    with refuses(InputError, hint="keep at least one row"):
        FilteredSource(source_of([5, 5]), np.array([5]))


def test_widths_must_sum_to_the_number_of_features() -> None:
    with refuses(InputError, expected="sum to 3", got="(1, 1)"):
        MemorySource(torch.zeros(2, 3), {1: torch.zeros(2, 2)}, torch.zeros(2, dtype=torch.long), (1, 1))
