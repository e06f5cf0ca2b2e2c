"""Batches from a store: in order, or shuffled out of core."""

from collections.abc import Iterator
from math import prod
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from offramp.errors import InputError
from offramp.features.batch import Batch, Keys
from offramp.features.buffer import empty
from offramp.features.selection import Indices, Selection
from offramp.features.shuffle import Filling, fillings
from offramp.features.stable_hash import stable_hash
from offramp.features.store import Store

__all__ = ["StoreSource"]

CHUNK_BYTES = 512 * 1024
"""Features read in one go: long enough for any disk to read at full speed, short enough to have many in a buffer."""

CHUNK_ROWS = 16
"""Rows of a chunk at least, where a row is so long that `CHUNK_BYTES` holds only a few."""

Columns = dict[str, Tensor]


class StoreSource:
    """A batch source over a store, or over some of its rows.

    Shuffling reads chunks of consecutive rows in random order into a buffer, shuffles the buffer and deals it out. The
    chunks come from all over the store. Neighbours in the store meet more often than in a full shuffle: where the data
    is sorted by class, a buffer should hold as many chunks as there are classes (a chunk is 512 kB, or 16 rows if that
    is more; docs/scale.md says what it costs).

    Args:
        store: The store.
        pooling: Which features.
        rows: Row numbers of the store, sorted; all rows if left out.
        without: Row numbers to leave out, sorted: the way to read all rows but those held out of a store that is so
            large that the others' numbers are not to be held in memory.
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
        without: npt.NDArray[np.int64] | None = None,
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
        self.backbone_fingerprint = store.plan.backbone
        self._store = store
        self._chosen = Selection(store.plan, rows, without)
        self._shards = np.flatnonzero(self._chosen.counts)
        self.num_samples = int(self._chosen.counts.sum())
        self._drawn_views = store.num_views if views == "all" else 1
        self._features = f"features.{pooling}"
        unread = {f"features.{name}" for name in store.poolings} - {self._features}
        self._columns = {name: column for name, column in store.plan.columns(1).items() if name not in unread}
        row_bytes = sum(prod(column.shape[2:]) * column.dtype.itemsize for column in self._columns.values())
        self._buffer_rows = int(buffer_mb * 1e6) // row_bytes
        feature_bytes = sum(self.widths) * self._columns[self._features].dtype.itemsize
        self._chunk_rows = max(CHUNK_ROWS, CHUNK_BYTES // feature_bytes)

    def ids(self) -> npt.NDArray[np.int64]:
        """`N` sample ids, in the order of the rows."""
        return np.concatenate([keys.ids for keys in self.keys()])

    def sizes(self) -> Tensor:
        """`N` sizes of the samples, in the order of the rows."""
        return torch.cat([keys.sizes for keys in self.keys()])

    def keys(self) -> Iterator[Keys]:
        """Ids and sizes of every sample, in the order of the rows, a shard at a time."""
        for shard in self._shards.tolist():
            columns = self._store.shard(shard)
            rows = self._chosen.rows(shard, 0, int(self._chosen.counts[shard]))
            yield Keys(columns["ids"].numpy()[rows], columns["sizes"][rows])

    def shuffled(self, *, batch_size: int, seed: int, epoch: int) -> Iterator[Batch]:
        """Every sample once, in an order drawn from `seed` and `epoch` alone; the last batch may be smaller."""
        _check_batch_size(batch_size)
        generator = torch.Generator().manual_seed(stable_hash(f"{seed}/{epoch}"))
        room = min(max(self._buffer_rows, batch_size + self._chunk_rows), self.num_samples)
        buffer, chunks = self._buffer(room), self._chunks()
        for turn in fillings(chunks.lengths, room=room, batch_size=batch_size, generator=generator):
            self._fill(buffer, turn, chunks, generator)
            for first in range(0, turn.dealt, batch_size):
                yield self._batch(buffer, slice(first, min(first + batch_size, turn.dealt)))

    def in_order(self, *, batch_size: int) -> Iterator[Batch]:
        """Every sample once, first view, in the order of the rows."""
        _check_batch_size(batch_size)
        buffer, filled = self._buffer(min(batch_size, self.num_samples)), 0
        for shard in self._shards.tolist():
            start, count = 0, int(self._chosen.counts[shard])
            while start < count:
                stop = min(count, start + batch_size - filled)
                self._read(shard, start, stop, None, buffer, slice(filled, filled + stop - start))
                start, filled = stop, filled + stop - start
                if filled == batch_size:
                    yield self._batch(buffer, slice(0, filled))
                    filled = 0
        if filled:
            yield self._batch(buffer, slice(0, filled))

    def _buffer(self, rows: int) -> Columns:
        return {name: empty((rows, *column.shape[2:]), column.dtype) for name, column in self._columns.items()}

    def _fill(self, buffer: Columns, turn: Filling, chunks: "_Chunks", generator: torch.Generator) -> None:
        """Move what is kept and read the chunks of a turn, each row to its slot."""
        filled: int = turn.kept.stop - turn.kept.start
        for column in buffer.values():
            array = _array(column)
            array[turn.slots[:filled]] = array[turn.kept]
        for chunk in turn.chunks:
            start, length = int(chunks.starts[chunk]), int(chunks.lengths[chunk])
            slots = turn.slots[filled : filled + length]
            views = None
            if self._drawn_views > 1:
                views = torch.randint(self._drawn_views, slots.shape, generator=generator).numpy()
            self._read(int(chunks.shards[chunk]), start, start + length, views, buffer, slots)
            filled += length

    def _read(
        self, shard: int, start: int, stop: int, views: Indices | None, into: Columns, slots: Indices | slice
    ) -> None:
        """Copy the samples at positions `start` to `stop - 1` of a shard's chosen ones to the slots of `into`.

        `views` says which view of each to take; the first if left out.
        """
        rows = self._chosen.rows(shard, start, stop)  # where a slice, numpy copies them without gathering them first
        if views is not None and isinstance(rows, slice):
            rows = np.arange(start, stop)
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

    def _chunks(self) -> "_Chunks":
        """List the chunks of all shards; none reaches over a shard's end."""
        counts = self._chosen.counts[self._shards]
        starts = [np.arange(0, count, self._chunk_rows) for count in counts]
        lengths = [np.minimum(self._chunk_rows, count - first) for first, count in zip(starts, counts, strict=True)]
        owners = np.repeat(self._shards, [len(first) for first in starts])
        return _Chunks(owners, np.concatenate(starts), np.concatenate(lengths))


class _Chunks(NamedTuple):
    """Consecutive samples, each a shard's, by the position of the first among the shard's chosen ones."""

    shards: Indices
    starts: Indices
    lengths: Indices


def _array(column: Tensor) -> npt.NDArray[Any]:
    """The same memory as numpy sees it: several times faster than torch at placing rows."""
    return column.view(torch.int16).numpy() if column.dtype == torch.bfloat16 else column.numpy()


def _check_batch_size(batch_size: int) -> None:
    if batch_size < 1:
        raise InputError(f"expected a batch size of at least 1, got {batch_size}")
