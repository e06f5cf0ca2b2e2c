"""Batches from a store: in order, or shuffled out of core."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Any, Literal, NamedTuple, final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from offramp.errors import InputError
from offramp.features._batch import Batch, Keys
from offramp.features._ids import Ids, stable_hash
from offramp.features._shard import Column, Plan
from offramp.features._store import Store

__all__ = ["StoreSource"]

CHUNK_BYTES = 512 * 1024
"""Size of the features read in one go: large enough for full disk speed, small enough to have many in a buffer."""

CHUNK_ROWS = 16
"""Smallest number of rows of a chunk, for rows so long that `CHUNK_BYTES` holds only a few."""


@final
class StoreSource:
    """A batch source over a store, or over some of its rows.

    Shuffling reads chunks of consecutive rows in random order into a buffer, and shuffles the buffer. Neighbours in the
    store share a batch more often than in a full shuffle: if the data is sorted by class, a buffer should hold at least
    as many chunks as there are classes (a chunk is 512 KiB, or 16 rows if that is more; see docs/how-to/scale.md).

    Args:
        store: The store.
        pooling: Name of the pooling whose features are read.
        rows: Row numbers of the store, sorted; all rows by default.
        without: Row numbers to leave out, sorted. Use it instead of `rows` if the numbers of all other rows would take
            too much memory.
        views: "all" draws one view per sample and epoch when shuffling; "first" takes the first, without augmentation.
            `in_order` always takes the first.
        buffer_mb: Size of the shuffle buffer in megabytes.
    """

    def __init__(
        self,
        store: Store,
        *,
        pooling: str,
        rows: Ids | None = None,
        without: Ids | None = None,
        views: Literal["first", "all"] = "first",
        buffer_mb: float = 48,
    ) -> None:
        if views not in ("first", "all"):
            raise InputError("views", expected="'first' or 'all'", got=repr(views))
        if buffer_mb <= 0:
            raise InputError("buffer_mb", expected="a positive number", got=buffer_mb)
        self.widths = store.widths(pooling)
        self.num_classes = store.num_classes
        self.own_heads = store.own_heads
        self.backbone_fingerprint = store.plan.backbone
        self._store = store
        self._selection = RowSelection(store.plan, rows, without)
        self._shards = np.flatnonzero(self._selection.counts)
        self.num_samples = int(self._selection.counts.sum())
        self._num_views = store.num_views if views == "all" else 1
        self._features = f"features.{pooling}"
        others = {f"features.{name}" for name in store.poolings} - {self._features}
        self._columns = {name: column for name, column in store.plan.columns(1).items() if name not in others}
        row_bytes = sum(prod(column.shape[2:]) * column.dtype.itemsize for column in self._columns.values())
        self._buffer_rows = int(buffer_mb * 1e6) // row_bytes
        feature_bytes = sum(self.widths) * self._columns[self._features].dtype.itemsize
        self._chunk_rows = max(CHUNK_ROWS, CHUNK_BYTES // feature_bytes)

    def ids(self) -> Ids:
        """Return `N` sample ids, in row order."""
        return np.concatenate([keys.ids for keys in self.keys()])

    def sizes(self) -> Tensor:
        """Return `N` sizes of the samples, in row order."""
        return torch.cat([keys.sizes for keys in self.keys()])

    def keys(self) -> Iterator[Keys]:
        """Yield ids and sizes of every sample in row order, one shard at a time."""
        for shard in self._shards.tolist():
            columns = self._store.shard(shard)
            rows = self._selection.rows(shard, 0, int(self._selection.counts[shard]))
            yield Keys(columns["ids"].numpy()[rows], columns["sizes"][rows])

    def shuffled(self, *, batch_size: int, seed: int, epoch: int) -> Iterator[Batch]:
        """Yield every sample once, in an order drawn from `seed` and `epoch` alone; the last batch may be smaller."""
        _check_batch_size(batch_size)
        generator = torch.Generator().manual_seed(stable_hash(f"{seed}/{epoch}"))
        room = min(max(self._buffer_rows, batch_size + self._chunk_rows), self.num_samples)
        buffer, chunks = self._allocate(room), self._list_chunks()
        for turn in plan_turns(chunks.lengths, room=room, batch_size=batch_size, generator=generator):
            self._fill(buffer, turn, chunks, generator)
            for first in range(0, turn.num_out, batch_size):
                yield self._batch(buffer, slice(first, min(first + batch_size, turn.num_out)))

    def in_order(self, *, batch_size: int) -> Iterator[Batch]:
        """Yield every sample once, first view, in row order."""
        _check_batch_size(batch_size)
        buffer, filled = self._allocate(min(batch_size, self.num_samples)), 0
        for shard in self._shards.tolist():
            start, count = 0, int(self._selection.counts[shard])
            while start < count:
                stop = min(count, start + batch_size - filled)
                self._read(shard, start, stop, None, buffer, slice(filled, filled + stop - start))
                start, filled = stop, filled + stop - start
                if filled == batch_size:
                    yield self._batch(buffer, slice(0, filled))
                    filled = 0
        if filled:
            yield self._batch(buffer, slice(0, filled))

    def _allocate(self, rows: int) -> dict[str, Tensor]:
        return {
            name: Column((rows, *column.shape[2:]), column.dtype).allocate() for name, column in self._columns.items()
        }

    def _fill(
        self, buffer: dict[str, Tensor], turn: "BufferTurn", chunks: "_Chunks", generator: torch.Generator
    ) -> None:
        """Move the rows left over and read the chunks of a turn, each row to its slot."""
        filled: int = turn.left_over.stop - turn.left_over.start
        for column in buffer.values():
            array = _as_array(column)
            array[turn.slots[:filled]] = array[turn.left_over]
        for chunk in turn.chunks:
            start, length = int(chunks.starts[chunk]), int(chunks.lengths[chunk])
            slots = turn.slots[filled : filled + length]
            views = None
            if self._num_views > 1:
                views = torch.randint(self._num_views, slots.shape, generator=generator).numpy()
            self._read(int(chunks.shards[chunk]), start, start + length, views, buffer, slots)
            filled += length

    def _read(
        self, shard: int, start: int, stop: int, views: Ids | None, buffer: dict[str, Tensor], slots: Ids | slice
    ) -> None:
        """Copy the selected rows at positions `start` to `stop - 1` of a shard to slots of the buffer.

        `views` has the view of each row; None takes the first.
        """
        rows = self._selection.rows(shard, start, stop)  # a slice is copied without gathering it first
        if views is not None and isinstance(rows, slice):
            rows = np.arange(start, stop)
        columns = self._store.shard(shard)
        for name, column in buffer.items():
            source = _as_array(columns[name])
            index = rows if source.ndim == 1 else (rows, 0 if views is None else views)
            _as_array(column)[slots] = source[index]

    def _batch(self, buffer: dict[str, Tensor], rows: slice) -> Batch:
        """Copy rows of the buffer into a new batch."""
        features = buffer[self._features][rows]
        return Batch(
            Column(tuple(features.shape), torch.float32).allocate().copy_(features),
            {stage: buffer[f"logits.{stage}"][rows].clone() for stage in self.own_heads},
            buffer["labels"][rows].clone(),
            buffer["ids"][rows].clone(),
            buffer["sizes"][rows].clone(),
        )

    def _list_chunks(self) -> "_Chunks":
        """List the chunks of all shards; each lies in one shard."""
        counts = self._selection.counts[self._shards]
        starts = [np.arange(0, count, self._chunk_rows) for count in counts]
        lengths = [np.minimum(self._chunk_rows, count - first) for first, count in zip(starts, counts, strict=True)]
        shards = np.repeat(self._shards, [len(first) for first in starts])
        return _Chunks(shards, np.concatenate(starts), np.concatenate(lengths))


class _Chunks(NamedTuple):
    """Runs of consecutive samples; starts are positions among the selected rows of the shard."""

    shards: Ids
    starts: Ids
    lengths: Ids


def _as_array(column: Tensor) -> npt.NDArray[Any]:
    """Return the same memory as a numpy array, which places rows several times faster than torch."""
    return column.view(torch.int16).numpy() if column.dtype == torch.bfloat16 else column.numpy()


def _check_batch_size(batch_size: int) -> None:
    if batch_size < 1:
        raise InputError("batch_size", expected="at least 1", got=batch_size)


@final
class RowSelection:
    """All rows of a store, some of them, or all but some, by shard.

    Only the given row numbers are held: all but a thousand of a billion rows take as much memory as the thousand.

    Args:
        plan: The plan of the store.
        rows: Row numbers to read, sorted; all rows by default.
        without: Row numbers to leave out, sorted; not together with `rows`.

    Attributes:
        counts: Number of selected rows of each shard.
    """

    def __init__(self, plan: Plan, rows: Ids | None = None, without: Ids | None = None) -> None:
        if rows is not None and without is not None:
            raise InputError(expected="only one of rows= and without=", got="both", hint="give one of them")
        starts = np.arange(plan.num_shards + 1) * plan.shard_rows
        starts[-1] = plan.num_rows
        self._starts = starts
        self._inverted = without is not None
        numbers = without if without is not None else rows
        self._numbers = None if numbers is None else _check_rows(numbers, plan.num_rows)
        self.counts = np.diff(starts)
        if self._numbers is not None:
            self._bounds = np.searchsorted(self._numbers, starts)
            counts = np.diff(self._bounds)
            self.counts = self.counts - counts if self._inverted else counts
        if not self.counts.any():
            raise InputError(f"all {plan.num_rows} rows of the store are left out", hint="keep at least one row")

    def rows(self, shard: int, start: int, stop: int) -> Ids | slice:
        """Return the rows at positions `start` to `stop - 1` among the selected rows of a shard.

        Rows are counted from the first row of the shard.
        """
        if self._numbers is None:
            return slice(start, stop)
        numbers = self._numbers[self._bounds[shard] : self._bounds[shard + 1]] - self._starts[shard]
        if not self._inverted:
            selected: Ids = numbers[start:stop]
            return selected
        if not len(numbers):
            return slice(start, stop)
        # The i-th left-out row has numbers[i] - i selected rows before it; each such row at or before a position
        # shifts that position by one.
        positions = np.arange(start, stop)
        return positions + np.searchsorted(numbers - np.arange(len(numbers)), positions, side="right")


def _check_rows(rows: npt.ArrayLike, num_rows: int) -> Ids:
    rows = np.asarray(rows)
    if rows.ndim != 1 or not np.issubdtype(rows.dtype, np.integer) or len(rows) == 0:
        raise InputError(expected="at least one integer row number", got=f"{rows.dtype} of shape {rows.shape}")
    if rows[0] < 0 or rows[-1] >= num_rows or (rows[1:] <= rows[:-1]).any():
        raise InputError(
            expected=f"sorted, different row numbers from 0 to {num_rows - 1}",
            got=rows.tolist(),
            hint="sort them with np.unique",
        )
    return rows.astype(np.int64)


@dataclass(frozen=True)
class BufferTurn:
    """One turn of the shuffle buffer: move the rows left over, read chunks, hand out batches."""

    left_over: slice
    """Rows of the turn before that are still in the buffer: fewer than a batch."""
    chunks: Ids
    """Chunks to read."""
    slots: Ids
    """Slot of each row: first the rows left over, then those of the chunks, in that order."""
    num_out: int
    """Rows to hand out in batches, from the front."""


def plan_turns(lengths: Ids, *, room: int, batch_size: int, generator: torch.Generator) -> Iterator[BufferTurn]:
    """Plan the turns of a shuffle buffer.

    Chunks come in random order, and a row gets a random slot among all rows of its turn. Rows are placed when they are
    read, so that a batch is one piece of the buffer; this saves one pass over the memory.

    Args:
        lengths: Number of rows of each chunk.
        room: Rows of the buffer: at least `batch_size` plus the longest chunk, or all rows.
        batch_size: Rows of every batch but the last.
        generator: The only source of randomness.
    """
    order = torch.randperm(len(lengths), generator=generator).numpy()
    ends = np.cumsum(lengths[order])
    assert room >= min(batch_size + int(lengths.max()), int(ends[-1]))
    left_over, start, rows_read = slice(0, 0), 0, 0
    while start < len(order):
        num_left = left_over.stop - left_over.start
        stop = int(np.searchsorted(ends, rows_read + room - num_left, "right"))
        filled = num_left + int(ends[stop - 1]) - rows_read
        num_out = filled if stop == len(order) else filled - filled % batch_size
        slots = torch.randperm(filled, generator=generator).numpy()
        yield BufferTurn(left_over, order[start:stop], slots, num_out)
        left_over, start, rows_read = slice(num_out, filled), stop, int(ends[stop - 1])
