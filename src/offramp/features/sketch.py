"""The ids of a split in little room: all of a small one, a sample of a large one."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from offramp.features.ranks import rank_ids

__all__ = ["MOST_RANKS", "IdSketch"]

MOST_RANKS = 2**16
"""Ranks kept at most: half a megabyte per split. Splits of fewer different rows are known completely; of a larger one
so many that 1 % of it still is some 650 ranks."""

_SEED = 0x0FF7A3B  # no seed a split is drawn with: the ranks of its parts would then not be spread evenly


@dataclass(frozen=True, eq=False)
class IdSketch:
    """The smallest hashed ids of a split: a bottom-k sketch.

    All ids are hashed alike, so whether an id up to the largest rank kept is of the split is known for certain, and
    such ids are a uniform sample of any others.

    Example:
        >>> sketch = IdSketch.of([np.array([7, 8, 7]), np.array([9])])
        >>> sketch.contains(np.array([9, 10])), sketch.is_complete, len(sketch.ranks)
        (array([ True, False]), True, 3)
    """

    ranks: npt.NDArray[np.int64]
    """At most `MOST_RANKS` different ranks, 0 or above, in ascending order."""

    @classmethod
    def of(cls, pieces: Iterable[npt.NDArray[np.int64]]) -> "IdSketch":
        """Make the sketch of ids that come some at a time.

        Args:
            pieces: Integer sample ids.
        """
        ranks = np.empty(0, np.int64)
        for piece in pieces:
            ranks = np.union1d(ranks, _ranks(piece))[:MOST_RANKS]
        return cls(ranks)

    @property
    def is_complete(self) -> bool:
        """True where all ids of the split are kept."""
        return len(self.ranks) < MOST_RANKS

    def can_tell(self, ids: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Tell for each id whether the sketch knows if it is of the split.

        Args:
            ids: `n` integer sample ids.
        """
        return np.full(len(ids), True) if self.is_complete else _ranks(ids) <= self.ranks[-1]

    def contains(self, ids: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Tell for each id whether it is kept.

        Args:
            ids: `n` integer sample ids.
        """
        return np.isin(_ranks(ids), self.ranks)


def _ranks(ids: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Ranks of 63 bits, which fit a signed integer: artifacts have no other."""
    return (rank_ids(ids, seed=_SEED) >> np.uint64(1)).astype(np.int64)
