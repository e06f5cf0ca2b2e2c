"""Sample ids: ranked pseudo-randomly, and summarised in a sketch."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["MOST_RANKS", "IdSketch", "Ids", "rank_ids", "stable_hash"]

Ids = npt.NDArray[np.int64]
"""Sample ids, or row numbers."""

MOST_RANKS = 2**16
"""Largest number of ranks in a sketch: 512 KiB per split. Splits with fewer different rows are recorded completely; of
a larger split, a share of 1 % is still represented by about 650 ranks."""

_SKETCH_SEED = 0x0FF7A3B  # different from the seeds that splits are drawn with, or a part's ranks would not be uniform


def stable_hash(text: str) -> int:
    """Hash a text to 63 bits, the same on every machine and in every run; Python's `hash` is salted per process.

    Example:
        >>> stable_hash("train/5")
        1434713311643516606
    """
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1


def rank_ids(ids: npt.NDArray[Any], *, seed: int) -> npt.NDArray[np.uint64]:
    """Rank sample ids by a hash of seed and id; different ids have different ranks, equal ids equal ranks.

    Args:
        ids: `n` integers.
        seed: Another seed gives another ranking.
    """
    # The increment of SplitMix64, because mixing maps 0 to 0.
    salt = _mix(np.array([(seed + 0x9E3779B97F4A7C15) % 2**64], np.uint64))
    return _mix(ids.astype(np.int64).view(np.uint64) ^ salt)


def _mix(numbers: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Apply the finaliser of SplitMix64 (Steele et al. 2014), a bijection that mixes every bit into every other."""
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return numbers ^ (numbers >> np.uint64(31))


@dataclass(frozen=True, eq=False)
class IdSketch:
    """The smallest hashed ids of a split: a bottom-k sketch.

    All ids are hashed alike. For an id whose hash is at most the largest rank here, membership is known for certain,
    and such ids are a uniform sample of all ids.

    Example:
        >>> sketch = IdSketch.of([np.array([7, 8, 7]), np.array([9])])
        >>> sketch.contains(np.array([9, 10])), sketch.is_complete, len(sketch.ranks)
        (array([ True, False]), True, 3)
    """

    ranks: Ids
    """At most `MOST_RANKS` different ranks, 0 or above, in ascending order."""

    @classmethod
    def of(cls, pieces: Iterable[Ids]) -> "IdSketch":
        """Make the sketch of sample ids that come in pieces."""
        ranks = np.empty(0, np.int64)
        for piece in pieces:
            ranks = np.union1d(ranks, _sketch_ranks(piece))[:MOST_RANKS]
        return cls(ranks)

    def union(self, other: "IdSketch") -> "IdSketch":
        """Return the sketch of the ids of both."""
        return IdSketch(np.union1d(self.ranks, other.ranks)[:MOST_RANKS])

    @property
    def is_complete(self) -> bool:
        """True if the sketch has all ids of the split."""
        return len(self.ranks) < MOST_RANKS

    def can_tell(self, ids: Ids) -> npt.NDArray[np.bool_]:
        """Return for each of `n` ids whether the sketch knows if it is in the split."""
        return np.full(len(ids), True) if self.is_complete else _sketch_ranks(ids) <= self.ranks[-1]

    def contains(self, ids: Ids) -> npt.NDArray[np.bool_]:
        """Return for each of `n` ids whether it is in the sketch."""
        return np.isin(_sketch_ranks(ids), self.ranks)


def _sketch_ranks(ids: Ids) -> Ids:
    """Return ranks of 63 bits: artifacts hold signed integers only."""
    return (rank_ids(ids, seed=_SKETCH_SEED) >> np.uint64(1)).astype(np.int64)
