"""Rows told apart by content, in a few bytes each."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from offramp.features._ids import Ids, rank_ids

__all__ = ["Contents", "Counts", "nonzero_rows"]

Counts = npt.NDArray[np.int32]
"""`N` numbers, one per row."""

BUCKETS = 16
"""Parts in which ids are compared, so that few of them are in memory at a time."""

SPAN = 2**16
"""Rows per step."""


class Contents:
    """The different contents among N rows: the first row of each stands for its copies.

    Args:
        pieces: Gives the ids of all rows in order, in pieces, each time it is called; rows with equal ids are copies.
        count: N, below 2^31.

    Attributes:
        stands_for: `N` rows: the one that stands for each row.
        copies: `N` numbers: the rows that each row stands for, itself included; 0 if another stands for it.

    Example:
        >>> contents = Contents(lambda: [np.array([5, 7, 5]), np.array([5])], 4)
        >>> contents.stands_for.tolist(), contents.copies.tolist(), len(contents)
        ([0, 1, 0, 0], [3, 1, 0, 0], 2)
    """

    def __init__(self, pieces: Callable[[], Iterable[Ids]], count: int) -> None:
        self._pieces = pieces
        self.stands_for: npt.NDArray[np.int32] = np.empty(count, np.int32)
        self.copies: Counts = np.zeros(count, np.int32)
        for bucket in range(BUCKETS):
            parts = [(ids[own], rows[own]) for ids, rows in self._spans() for own in [ids % BUCKETS == bucket]]
            ids, rows = (np.concatenate(part) for part in zip(*parts, strict=True))
            _, first, place, copies = np.unique(ids, return_index=True, return_inverse=True, return_counts=True)
            self.stands_for[rows] = rows[first][place]
            self.copies[rows[first]] = copies

    def __len__(self) -> int:
        return int(np.count_nonzero(self.copies))

    def draw(self, among: Counts, count: int, *, seed: int) -> Ids:
        """Return some of the rows whose number is above 0, in a random order that depends on seed and content alone.

        Args:
            among: `N` numbers.
            count: Rows to draw; all of them if there are fewer.
            seed: Another seed gives another order.
        """
        drawn, ranks = np.empty(0, np.int64), np.empty(0, np.uint64)
        for ids, rows in self._spans():
            free = among[rows] > 0
            drawn = np.concatenate([drawn, rows[free]])
            ranks = np.concatenate([ranks, rank_ids(ids[free], seed=seed)])
            order = np.argsort(ranks, kind="stable")[:count]
            drawn, ranks = drawn[order], ranks[order]
        return drawn

    def copy_to_all(self, values: npt.NDArray[Any]) -> None:
        """Give every row the value of the row that stands for it, in place.

        Args:
            values: `N` values.
        """
        for start in range(0, len(values), SPAN):
            values[start : start + SPAN] = values[self.stands_for[start : start + SPAN]]

    def _spans(self) -> Iterator[tuple[Ids, npt.NDArray[np.int32]]]:
        """Yield ids and row numbers."""
        start = 0
        for piece in self._pieces():
            for first in range(0, len(piece), SPAN):
                ids = piece[first : first + SPAN]
                yield ids, np.arange(start, start + len(ids), dtype=np.int32)
                start += len(ids)


def nonzero_rows(counts: Counts) -> Iterator[Ids]:
    """Yield the rows whose number is not 0, ascending, some at a time.

    Args:
        counts: `N` numbers.
    """
    for start in range(0, len(counts), SPAN):
        yield start + np.flatnonzero(counts[start : start + SPAN])
