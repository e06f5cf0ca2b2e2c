"""Distinct sample ids in ascending order, sorted through files where they are many."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import final

import numpy as np
import numpy.typing as npt

from offramp.features._ids import Ids

__all__ = ["SortedIds"]

RUN_IDS = 2**16
"""Number of ids that are collected before they are sorted and written: 512 KiB, which sorting keeps in the cache."""

MOST_RUNS = 192
"""Largest number of files that are merged, and open, at once."""

BLOCK_IDS = 2**11
"""Number of ids that are read from a file at a time: 16 KiB, so that merging holds 3 MiB."""


@final
class SortedIds:
    """Distinct ids in ascending order: few are held, many are in sorted files, eight bytes per id on disk.

    Memory does not grow with the number of ids (an external merge sort).

    Args:
        pieces: The ids, in any order and with repeats.
        folder: An empty folder for the files.

    Example:
        >>> ids = SortedIds([np.array([7, 8, 7]), np.array([9, 1])], Path("unused"))
        >>> [block.tolist() for block in ids.blocks()]
        [[1, 7, 8, 9]]
    """

    def __init__(self, pieces: Iterable[Ids], folder: Path) -> None:
        self._folder = folder
        self._files: list[Path] = []
        self._num_written = 0
        held = np.empty(0, np.int64)
        waiting: list[Ids] = []
        num_waiting = 0
        for piece in pieces:
            waiting.append(np.asarray(piece, np.int64))
            num_waiting += len(piece)
            if num_waiting >= RUN_IDS:
                held = np.unique(np.concatenate(waiting))
                if len(held) >= RUN_IDS // 2:  # else most are repeats, and there is room for more
                    self._files.append(self._write([held]))
                    held = held[:0]
                waiting, num_waiting = [held], len(held)
        self.in_memory = np.unique(np.concatenate([held, *waiting]))
        """The ids that are in no file: all of them if they are few."""
        while len(self._files) > MOST_RUNS:
            merged, self._files = self._files[:MOST_RUNS], self._files[MOST_RUNS:]
            self._files.append(self._write(_merge([_read(file) for file in merged])))
            for file in merged:
                file.unlink()

    @property
    def all_in_memory(self) -> bool:
        """True if no id is in a file."""
        return not self._files

    def contains(self, ids: Ids) -> npt.NDArray[np.bool_]:
        """Return for each of `n` ids whether it is among those in memory."""
        if not len(self.in_memory):
            return np.full(len(ids), False)
        # Not np.isin, which sorts both together.
        nearest = np.minimum(np.searchsorted(self.in_memory, ids), len(self.in_memory) - 1)
        return np.asarray(self.in_memory[nearest] == ids)

    def blocks(self) -> Iterator[Ids]:
        """Yield the ids in ascending order, each once, in blocks."""
        if len(self.in_memory) or self._files:
            yield from _merge([iter([self.in_memory] if len(self.in_memory) else []), *map(_read, self._files)])

    def intersect(self, other: "SortedIds") -> Iterator[Ids]:
        """Yield the ids that are in both, in ascending order, in blocks."""
        streams = self.blocks(), other.blocks()
        first, second = (next(stream, None) for stream in streams)
        while first is not None and second is not None:
            end = min(first[-1], second[-1])
            before, rest = _cut(first, end)
            other_before, other_rest = _cut(second, end)
            yield np.intersect1d(before, other_before, assume_unique=True)
            first = rest if len(rest) else next(streams[0], None)
            second = other_rest if len(other_rest) else next(streams[1], None)

    def _write(self, blocks: Iterable[Ids]) -> Path:
        file = self._folder / f"{self._num_written}.ids"
        self._num_written += 1
        with open(file, "wb") as stream:
            for block in blocks:
                block.tofile(stream)
        return file


def _read(file: Path) -> Iterator[Ids]:
    with open(file, "rb") as stream:
        while len(block := np.fromfile(stream, np.int64, BLOCK_IDS)):
            yield block


def _merge(streams: Iterable[Iterator[Ids]]) -> Iterator[Ids]:
    """Merge ascending ids into one ascending stream without repeats."""
    remaining = [(block, stream) for stream in streams if (block := next(stream, None)) is not None]
    while remaining:
        end = min(block[-1] for block, _ in remaining)  # no block still to be read begins before it
        parts = [_cut(block, end) for block, _ in remaining]
        yield np.unique(np.concatenate([before for before, _ in parts]))
        rests = zip(parts, remaining, strict=True)
        following = [(rest if len(rest) else next(stream, None), stream) for (_, rest), (_, stream) in rests]
        remaining = [(block, stream) for block, stream in following if block is not None]


def _cut(block: Ids, end: int) -> tuple[Ids, Ids]:
    """Return the ids up to `end`, and those after it."""
    place = np.searchsorted(block, end, side="right")
    return block[:place], block[place:]
