from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from offramp.errors import InputError, UnknownNameError
from offramp.features import BatchSource, StoreSource, extract
from offramp.features._batch import Batch
from offramp.features._loader import RowSelection, plan_turns
from offramp.features._shard import Plan
from offramp.features._store import Store
from offramp.preprocessing import Preprocessing
from tests.cases import each, refuses
from tests.features.examples import VectorBackbone, vectors


def all_of(store: Store, name: str) -> Tensor:
    return torch.cat([store.shard(shard)[name] for shard in range(store.plan.num_shards)])


def joined(batches: Iterable[Batch]) -> Batch:
    parts = list(batches)
    return Batch(
        torch.cat([part.features for part in parts]),
        {stage: torch.cat([part.own_logits[stage] for part in parts]) for stage in parts[0].own_logits},
        torch.cat([part.labels for part in parts]),
        torch.cat([part.ids for part in parts]),
        torch.cat([part.sizes for part in parts]),
    )


def shuffled(source: BatchSource, *, batch_size: int = 16, seed: int = 0, epoch: int = 0) -> Batch:
    return joined(source.shuffled(batch_size=batch_size, seed=seed, epoch=epoch))


def assert_rows(batch: Batch, store: Store, pooling: str, rows: Tensor, view: int = 0) -> None:
    """The batch holds exactly these rows of the store, everything together."""
    assert torch.equal(batch.features, all_of(store, f"features.{pooling}")[rows, view].float())
    assert batch.features.dtype == torch.float32
    assert torch.equal(batch.own_logits[2], all_of(store, "logits.2")[rows, view])
    assert torch.equal(batch.labels, all_of(store, "labels")[rows])
    assert torch.equal(batch.ids, all_of(store, "ids")[rows])
    assert torch.equal(batch.sizes, all_of(store, "sizes")[rows])


def rows_of(batch: Batch, store: Store) -> Tensor:
    """The store's row of each sample, found by its id."""
    row = {int(id_): number for number, id_ in enumerate(store.ids())}
    return torch.tensor([row[int(id_)] for id_ in batch.ids])


SUBSETS = [None, np.arange(70), np.arange(0, 70, 3), np.array([5]), np.arange(17, 19), np.arange(50, 70)]


@each("rows", SUBSETS)
@each("batch_size", [1, 7, 16, 100])
def test_in_order_is_exact(store: Store, rows: np.ndarray | None, batch_size: int) -> None:
    source = StoreSource(store, pooling="grid", rows=rows, views="all")
    wanted = np.arange(70) if rows is None else rows
    batches = list(source.in_order(batch_size=batch_size))
    assert [len(batch.labels) for batch in batches[:-1]] == [batch_size] * (len(batches) - 1)
    assert source.num_samples == len(wanted)
    assert torch.equal(source.sizes(), joined(batches).sizes)
    assert_rows(joined(batches), store, "grid", torch.from_numpy(wanted))


@each("rows", SUBSETS)
@each("batch_size", [1, 7, 16, 100])
@each("buffer_mb", [0.0001, 0.1, 48])
def test_shuffled_has_every_row_once(
    store: Store,
    rows: np.ndarray | None,
    batch_size: int,
    buffer_mb: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("offramp.features._loader.CHUNK_BYTES", 0)
    monkeypatch.setattr("offramp.features._loader.CHUNK_ROWS", 3)
    source = StoreSource(store, pooling="mean", rows=rows, buffer_mb=buffer_mb)
    batches = list(source.shuffled(batch_size=batch_size, seed=1, epoch=2))
    assert [len(batch.labels) for batch in batches[:-1]] == [batch_size] * (len(batches) - 1)
    together = joined(batches)
    drawn = rows_of(together, store)
    assert drawn.sort().values.tolist() == list(range(70) if rows is None else rows)
    assert_rows(together, store, "mean", drawn)


def test_order_depends_on_seed_and_epoch_alone(store: Store) -> None:
    source = StoreSource(store, pooling="mean")
    order = shuffled(source, seed=1, epoch=0).ids.tolist()
    assert shuffled(StoreSource(Store.open(store.path), pooling="grid"), seed=1, epoch=0).ids.tolist() == order
    torch.manual_seed(5)
    assert shuffled(source, seed=1, epoch=0).ids.tolist() == order
    assert shuffled(source, seed=1, epoch=1).ids.tolist() != order
    assert shuffled(source, seed=2, epoch=0).ids.tolist() != order


def test_two_readers_at_once_do_not_disturb_each_other(store: Store) -> None:
    source = StoreSource(store, pooling="mean", buffer_mb=0.01)
    alone = [batch.ids.tolist() for batch in source.shuffled(batch_size=5, seed=0, epoch=0)]
    pairs = zip(
        source.shuffled(batch_size=5, seed=0, epoch=0), source.shuffled(batch_size=5, seed=0, epoch=1), strict=True
    )
    assert [batch.ids.tolist() for batch, _ in pairs] == alone


def test_batches_stay_as_they_were_handed_out(store: Store) -> None:
    source = StoreSource(store, pooling="mean", buffer_mb=0.01)
    for batches in (source.in_order(batch_size=9), source.shuffled(batch_size=9, seed=0, epoch=0)):
        held, copies = [], []
        for batch in batches:
            held.append(batch)
            copies.append(batch.features.clone())
        assert all(torch.equal(batch.features, copy) for batch, copy in zip(held, copies, strict=True))


def test_views_are_drawn_anew_for_each_sample_and_epoch(store: Store) -> None:
    source = StoreSource(store, pooling="mean", views="all")
    drawn = []
    for epoch in range(3):
        batch = shuffled(source, epoch=epoch)
        rows = rows_of(batch, store)
        both = all_of(store, "features.mean")[rows].float()
        view = (batch.features == both[:, 1]).all(1).long()
        assert_rows(batch, store, "mean", rows, view)  # type: ignore[arg-type]
        drawn.append(view[rows.argsort()])
    shares = torch.stack(drawn).float()
    assert 0.3 < shares.mean() < 0.7
    assert not torch.equal(drawn[0], drawn[1])
    first = shuffled(StoreSource(store, pooling="mean"))
    assert_rows(first, store, "mean", rows_of(first, store), 0)


def _label_entropy(batches: Iterable[Batch]) -> float:
    """Mean entropy of the labels of a batch, in nats."""
    entropies = []
    for batch in batches:
        shares = torch.bincount(batch.labels, minlength=10) / len(batch.labels)
        entropies.append(float(torch.special.entr(shares).sum()))
    return float(np.mean(entropies))


def test_sorted_classes_are_mixed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Forty chunks in a buffer, ten classes: nearly as mixed as a full shuffle."""
    monkeypatch.setattr("offramp.features._loader.CHUNK_BYTES", 16 * 128)
    numbers, labels = np.zeros((4000, 64)), np.arange(4000) // 400
    store = extract(
        VectorBackbone([nn.Identity()], 64), vectors(numbers, labels), tmp_path, poolings=("mean",), shard_mb=0.05
    )
    source = StoreSource(store, pooling="mean", buffer_mb=640 * 188 / 1e6)
    fully = [torch.bincount(part, minlength=10) / 100 for part in source_labels(store).split(100)]  # type: ignore[no-untyped-call]
    full_shuffle = float(torch.stack([torch.special.entr(shares).sum() for shares in fully]).mean())
    assert _label_entropy(source.in_order(batch_size=100)) < 0.1
    assert _label_entropy(source.shuffled(batch_size=100, seed=0, epoch=0)) > 0.93 * full_shuffle


def source_labels(store: Store) -> Tensor:
    return torch.from_numpy(np.random.default_rng(0).permutation(store.labels()))


@each("dtype", [torch.bfloat16, torch.float32])
def test_other_precisions(dtype: torch.dtype, tmp_path: Path) -> None:
    numbers = np.random.default_rng(0).normal(size=(10, 4)) * 1e6
    store = extract(
        VectorBackbone([nn.Identity()], 4), vectors(numbers, np.arange(10)), tmp_path, poolings=("mean",), dtype=dtype
    )
    source = StoreSource(store, pooling="mean")
    wanted = torch.from_numpy(numbers.astype(np.float32)).to(dtype).float()
    assert torch.equal(joined(source.in_order(batch_size=3)).features, wanted)
    batch = shuffled(source)
    assert torch.equal(batch.features, wanted[rows_of(batch, store)])


def test_few_shards_open_at_a_time(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("offramp.features._store.OPEN_SHARDS", 2)
    opened = Store.open(store.path)
    assert shuffled(StoreSource(opened, pooling="mean")).ids.sort().values.tolist() == sorted(store.ids().tolist())
    assert len(opened._mapped) == 2


def test_all_rows_but_some(store: Store) -> None:
    without = np.array([0, 3, 4, 5, 33, 69])
    rest = np.setdiff1d(np.arange(70), without)
    named, others = StoreSource(store, pooling="mean", rows=rest), StoreSource(store, pooling="mean", without=without)
    assert others.num_samples == 64
    assert others.ids().tolist() == named.ids().tolist()
    for batches, expected in (
        (named.in_order(batch_size=9), others.in_order(batch_size=9)),
        (named.shuffled(batch_size=9, seed=0, epoch=0), others.shuffled(batch_size=9, seed=0, epoch=0)),
    ):
        assert torch.equal(joined(batches).features, joined(expected).features)


def test_keys_come_shard_by_shard(store: Store) -> None:
    for rows in SUBSETS:
        source = StoreSource(store, pooling="mean", rows=rows)
        pieces = list(source.keys())
        assert max(len(piece.ids) for piece in pieces) <= store.plan.shard_rows
        wanted = store.ids() if rows is None else store.ids()[rows]
        assert np.concatenate([piece.ids for piece in pieces]).tolist() == wanted.tolist() == source.ids().tolist()


def test_it_is_a_batch_source(store: Store) -> None:
    source: BatchSource = StoreSource(store, pooling="grid")
    assert source.num_classes == 10
    assert source.widths == (256, 512, 1024)
    assert source.own_heads == (2,)
    assert source.num_samples == 70


def test_what_makes_no_sense_is_refused(store: Store) -> None:
    with refuses(UnknownNameError, hint="Known: grid, mean"):
        StoreSource(store, pooling="max")
    with refuses(InputError, expected="'first' or 'all'"):
        StoreSource(store, pooling="mean", views="second")  # type: ignore[arg-type]
    with refuses(InputError, problem="buffer_mb"):
        StoreSource(store, pooling="mean", buffer_mb=0)
    for rows in ([3, 2], [2, 2], [-1, 2], [0, 70]):
        with refuses(InputError, expected="from 0 to 69"):
            StoreSource(store, pooling="mean", rows=np.array(rows))
    for none in (np.array([], np.int64), np.array([1.0]), np.array([[1]])):
        with refuses(InputError, expected="at least one integer row"):
            StoreSource(store, pooling="mean", rows=none)
    with refuses(InputError, problem="batch_size"):
        next(StoreSource(store, pooling="mean").in_order(batch_size=0))
    with refuses(InputError, problem="batch_size"):
        next(StoreSource(store, pooling="mean").shuffled(batch_size=0, seed=0, epoch=0))


def plan(rows: int, shard_rows: int) -> Plan:
    return Plan("5eed", 10, (1,), {"mean": (1, 1)}, (Preprocessing(),), "toy", rows, shard_rows, 1, 1, "float16")


def read(selection: RowSelection, rows: int, shard_rows: int, step: int) -> list[int]:
    """The row numbers, read some positions at a time."""
    numbers_read: list[int] = []
    for shard, count in enumerate(selection.counts.tolist()):
        start = shard * shard_rows
        numbers = np.arange(start, min(start + shard_rows, rows))
        for first in range(0, count, step):
            numbers_read += numbers[selection.rows(shard, first, min(first + step, count))].tolist()
    return numbers_read


@given(st.integers(1, 40), st.integers(1, 12), st.integers(1, 5), st.data())
def test_named_rows_and_all_others(rows: int, shard_rows: int, step: int, data: st.DataObject) -> None:
    named = sorted(data.draw(st.sets(st.integers(0, rows - 1), min_size=1)))
    made = plan(rows, shard_rows)
    assert read(RowSelection(made, rows=np.array(named)), rows, shard_rows, step) == named
    others = [row for row in range(rows) if row not in named]
    if others:
        assert read(RowSelection(made, without=np.array(named)), rows, shard_rows, step) == others
    assert read(RowSelection(made), rows, shard_rows, step) == list(range(rows))


def test_nothing_left_and_both_at_once_are_refused() -> None:
    with refuses(InputError, problem="all 3 rows"):
        RowSelection(plan(3, 2), without=np.arange(3))
    with refuses(InputError, got="both"):
        RowSelection(plan(3, 2), rows=np.arange(2), without=np.arange(1))


@each("kind", [np.int64, np.uint64, np.int8])
def test_rows_in_another_order_are_refused(kind: type[np.integer[Any]]) -> None:
    with refuses(InputError, expected="sorted, different row numbers"):
        RowSelection(plan(5, 2), rows=np.array([3, 1], kind))


@given(st.lists(st.integers(1, 9), min_size=1, max_size=40), st.integers(1, 12), st.integers(0, 20))
def test_every_row_comes_out_once_in_full_batches(lengths: list[int], batch_size: int, spare: int) -> None:
    """Carry out the turns on a buffer of row numbers."""
    room = min(batch_size + max(lengths) + spare, sum(lengths))
    starts = np.cumsum([0, *lengths[:-1]])
    buffer = np.full(room, -1)
    out: list[int] = []
    turns = list(
        plan_turns(np.array(lengths), room=room, batch_size=batch_size, generator=torch.Generator().manual_seed(0))
    )
    for turn in turns:
        chunks = [np.arange(starts[chunk], starts[chunk] + lengths[chunk]) for chunk in turn.chunks]
        rows = np.concatenate([buffer[turn.left_over].copy(), *chunks])
        assert sorted(turn.slots) == list(range(len(rows)))
        buffer[turn.slots] = rows
        assert turn is turns[-1] or (turn.num_out > 0 and turn.num_out % batch_size == 0)
        out += buffer[: turn.num_out].tolist()
    assert sorted(out) == list(range(sum(lengths)))


def test_rows_of_a_turn_are_mixed() -> None:
    generator = torch.Generator().manual_seed(0)
    (turn,) = plan_turns(np.array([500, 500]), room=1000, batch_size=10, generator=generator)
    assert abs(np.corrcoef(np.arange(1000), turn.slots)[0, 1]) < 0.15
