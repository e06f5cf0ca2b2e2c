"""A ranking of sample ids that is as good as random, and the same on every machine."""

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["rank_ids"]


def rank_ids(ids: npt.NDArray[Any], *, seed: int) -> npt.NDArray[np.uint64]:
    """Rank sample ids by a hash of seed and id; different ids have different ranks, equal ids equal ones.

    Args:
        ids: `n` integers.
        seed: Another seed gives another ranking.

    Example:
        >>> rank_ids(np.array([7, 8, 7]), seed=0) // np.uint64(10**15)
        array([ 236, 2834,  236], dtype=uint64)
    """
    # SplitMix64's own increment, since mixing leaves a 0 a 0.
    salt = _mix(np.array([(seed + 0x9E3779B97F4A7C15) % 2**64], np.uint64))
    return _mix(ids.astype(np.int64).view(np.uint64) ^ salt)


def _mix(numbers: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """The finaliser of SplitMix64 (Steele et al. 2014): one to one, and every bit in reaches every bit out."""
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return numbers ^ (numbers >> np.uint64(31))
