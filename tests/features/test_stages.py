"""A source seen through some of its stages, against slices of the whole."""

from itertools import pairwise

import numpy as np
import pytest
import torch

from offramp.errors import InputError
from offramp.features import Batch, BatchSource, MemorySource, StageView, Store, StoreSource
from tests.cases import each

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


def seen_alike(found: Batch, whole: Batch, stages: tuple[int, ...], ends: tuple[int, ...] = ENDS) -> None:
    """The batch holds these stages of the whole one, everything else as it is."""
    columns = [column for stage in stages for column in range(ends[stage], ends[stage + 1])]
    assert torch.equal(found.features, whole.features[:, columns])
    assert found.own_logits.keys() == {stages.index(stage) for stage in whole.own_logits if stage in stages}
    for place, logits in found.own_logits.items():
        assert torch.equal(logits, whole.own_logits[stages[place]])
    for name in ("labels", "ids", "sizes"):
        assert torch.equal(getattr(found, name), getattr(whole, name)), name


@every_choice
def test_is_a_slice_of_every_batch(stages: tuple[int, ...]) -> None:
    whole, view = source(), StageView(source(), stages)
    batches = list(view.in_order(batch_size=5))
    assert len(batches) == 5
    for found, expected in zip(batches, whole.in_order(batch_size=5), strict=True):
        seen_alike(found, expected, stages)


@every_choice
def test_keeps_the_order_of_the_draw(stages: tuple[int, ...]) -> None:
    whole, view = source(), StageView(source(), stages)
    for epoch in range(2):
        options = {"batch_size": 4, "seed": 3, "epoch": epoch}
        for found, expected in zip(view.shuffled(**options), whole.shuffled(**options), strict=True):
            seen_alike(found, expected, stages)


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
    seen_alike(next(inner.in_order(batch_size=9)), next(source().in_order(batch_size=9)), (1, 4))


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
            for found, expected in pairs:
                seen_alike(found, expected, stages, ends)
        seen_alike(next(view.in_order(batch_size=70)), next(whole.in_order(batch_size=70)), stages, ends)


@each("stages", [(), (0, 1), (3,), (4, 0), (0, 0, 4), (-1, 4), (0, 4, 5)])
def test_refuses_stages_that_are_no_shorter_network(stages: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match="ascending stages that end with the final one, 4; got"):
        StageView(source(), stages)
