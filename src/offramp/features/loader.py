"""Batches from a store: in order, or shuffled out of core."""

from collections.abc import Iterator
from itertools import pairwise
from math import prod
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from offramp.errors import InputError
from offramp.features.batch import Batch
from offramp.features.buffer import empty
from offramp.features.shuffle import fillings
from offramp.features.stable_hash import stable_hash
from offramp.features.store import Store

__all__ = ["StoreSource"]

CHUNK_BYTES = 512 * 1024
"""Features read in one go: long enough for any disk to read at full speed, short enough to have many in a buffer."""

CHUNK_ROWS = 16
"""Rows of a chunk at least, where a row is so long that `CHUNK_BYTES` holds only a few."""

Columns = dict[str, Tensor]
Indices = npt.NDArray[np.int64]


class StoreSource:
    """A batch source over a store, or over some of its rows.

    Shuffling reads chunks of consecutive rows from all over the store in random order into a buffer, shuffles the
    buffer and deals it out. Neighbours in the store meet more often than in a full shuffle: where the data is sorted by
    class, a buffer should hold as many chunks as there are classes (a chunk is 512 kB, or 16 rows if that is more).

    Args:
        store: The store.
        pooling: Which features.
        rows: Row numbers of the store, sorted; all rows if left out.
        views: "all" draws one view a sample and epoch when shuffling; "first" takes the clean one. `in_order` always
            takes the clean one.
        buffer_mb: Megabytes of the buffer that `shuffled` works in.
    """

    def __init__(
        self,
        store: Store,
        *,
        pooling: str,
        rows: npt.NDArray[np.int64] | None = None,
        views: Literal["first", "all"] = "first",
        buffer_mb: float = 48,
    ) -> None:
        if views not in ("first", "all"):
            raise InputError(f"views are 'first' or 'all', got {views!r}")
        if buffer_mb <= 0:
            raise InputError(f"the buffer needs some room, got {buffer_mb} MB")
        self.widths = store.widths(pooling)
        self.num_classes = store.num_classes
        self.own_heads = store.own_heads
        self.trunk_fingerprint = store.plan.trunk
        self._store = store
        self._rows = None if rows is None else _checked(rows, store.num_rows)
        self.num_samples = store.num_rows if self._rows is None else len(self._rows)
        self._drawn_views = store.num_views if views == "all" else 1
        self._features = f"features.{pooling}"
        unread = {f"features.{name}" for name in store.poolings} - {self._features}
        self._columns = {name: column for name, column in store.plan.columns(1).items() if name not in unread}
        row_bytes = sum(prod(column.shape[2:]) * column.dtype.itemsize for column in self._columns.values())
        self._buffer_rows = int(buffer_mb * 1e6) // row_bytes
        feature_bytes = sum(self.widths) * self._columns[self._features].dtype.itemsize
        self._chunk_rows = max(CHUNK_ROWS, CHUNK_BYTES // feature_bytes)
        self._shard_starts = self._positions_of_shards()

    def ids(self) -> npt.NDArray[np.int64]:
        """`N` sample ids, in the order of the rows."""
        ids = self._store.ids()
        return ids if self._rows is None else ids[self._rows]

    def sizes(self) -> Tensor:
        """`N` sizes of the samples, in the order of the rows."""
        sizes = self._store.sizes()
        return torch.from_numpy(sizes if self._rows is None else sizes[self._rows])

    def shuffled(self, *, batch_size: int, seed: int, epoch: int) -> Iterator[Batch]:
        """Every sample once, in an order drawn from `seed` and `epoch` alone; the last batch may be smaller."""
        _check_batch_size(batch_size)
        generator = torch.Generator().manual_seed(stable_hash(f"{seed}/{epoch}"))
        starts = self._chunk_starts()
        lengths = np.diff(starts, append=self.num_samples)
        room = min(max(self._buffer_rows, batch_size + self._chunk_rows), self.num_samples)
        buffer = self._buffer(room)
        for turn in fillings(lengths, room=room, batch_size=batch_size, generator=generator):
            filled = turn.kept.stop - turn.kept.start
            for column in buffer.values():
                array = _array(column)
                array[turn.slots[:filled]] = array[turn.kept]
            for chunk in turn.chunks:
                start, stop = int(starts[chunk]), int(starts[chunk] + lengths[chunk])
                slots = turn.slots[filled : filled + stop - start]
                views = None
                if self._drawn_views > 1:
                    views = torch.randint(self._drawn_views, slots.shape, generator=generator).numpy()
                self._read(start, stop, views, buffer, slots)
                filled += stop - start
            for first in range(0, turn.dealt, batch_size):
                yield self._batch(buffer, slice(first, min(first + batch_size, turn.dealt)))

    def in_order(self, *, batch_size: int) -> Iterator[Batch]:
        """Every sample once, first view, in the order of the rows."""
        _check_batch_size(batch_size)
        buffer = self._buffer(min(batch_size, self.num_samples))
        for start in range(0, self.num_samples, batch_size):
            stop = min(start + batch_size, self.num_samples)
            inside = slice(*np.searchsorted(self._shard_starts, (start + 1, stop)))
            for begin, end in pairwise([start, *self._shard_starts[inside].tolist(), stop]):
                self._read(begin, end, None, buffer, slice(begin - start, end - start))
            yield self._batch(buffer, slice(0, stop - start))

    def _buffer(self, rows: int) -> Columns:
        return {name: empty((rows, *column.shape[2:]), column.dtype) for name, column in self._columns.items()}

    def _read(self, start: int, stop: int, views: Indices | None, into: Columns, slots: Indices | slice) -> None:
        """Copy the samples at positions `start` to `stop - 1`, all of one shard, to the slots of `into`.

        `views` says which view of each to take; the first if left out.
        """
        shard_rows = self._store.plan.shard_rows
        shard = (start if self._rows is None else int(self._rows[start])) // shard_rows
        rows: Indices | slice
        if self._rows is not None:
            rows = self._rows[start:stop] - shard * shard_rows
        elif views is not None:
            rows = np.arange(start, stop) - shard * shard_rows
        else:  # a slice, which numpy copies without gathering it first
            rows = slice(start - shard * shard_rows, stop - shard * shard_rows)
        columns = self._store.shard(shard)
        for name, column in into.items():
            source = _array(columns[name])
            index = rows if source.ndim == 1 else (rows, 0 if views is None else views)
            _array(column)[slots] = source[index]

    def _batch(self, buffer: Columns, rows: slice) -> Batch:
        """Copy rows of the buffer into a batch of their own."""
        features = buffer[self._features][rows]
        return Batch(
            empty(features.shape, torch.float32).copy_(features),
            {stage: buffer[f"logits.{stage}"][rows].clone() for stage in self.own_heads},
            buffer["labels"][rows].clone(),
            buffer["ids"][rows].clone(),
            buffer["sizes"][rows].clone(),
        )

    def _positions_of_shards(self) -> npt.NDArray[np.int64]:
        """Positions among the samples at which another shard begins, the first one's included."""
        starts = np.arange(0, self._store.num_rows, self._store.plan.shard_rows)
        if self._rows is None:
            return starts
        found = np.unique(np.searchsorted(self._rows, starts))
        return found[found < len(self._rows)]

    def _chunk_starts(self) -> npt.NDArray[np.int64]:
        """Positions at which a chunk begins; none reaches over a shard's end."""
        ends = np.append(self._shard_starts[1:], self.num_samples)
        pairs = zip(self._shard_starts, ends, strict=True)
        return np.concatenate([np.arange(start, end, self._chunk_rows) for start, end in pairs])


def _array(column: Tensor) -> npt.NDArray[Any]:
    """The same memory as numpy sees it: several times faster than torch at placing rows."""
    return column.view(torch.int16).numpy() if column.dtype == torch.bfloat16 else column.numpy()


def _check_batch_size(batch_size: int) -> None:
    if batch_size < 1:
        raise InputError(f"expected a batch size of at least 1, got {batch_size}")


def _checked(rows: npt.ArrayLike, num_rows: int) -> npt.NDArray[np.int64]:
    rows = np.asarray(rows)
    if rows.ndim != 1 or not np.issubdtype(rows.dtype, np.integer) or len(rows) == 0:
        raise InputError(f"expected at least one integer row number, got {rows.dtype} of shape {rows.shape}")
    if rows[0] < 0 or rows[-1] >= num_rows or (np.diff(rows) <= 0).any():
        raise InputError(f"expected sorted, different row numbers from 0 to {num_rows - 1}; sort them with np.unique")
    return rows.astype(np.int64)
