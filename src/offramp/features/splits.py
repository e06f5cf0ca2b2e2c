"""Which samples are for what: parts drawn by sample id, and the check that none is shared."""

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt

from offramp.errors import SplitError

__all__ = ["check_disjoint", "split_by_id"]


def split_by_id(
    ids: npt.ArrayLike, sizes: Sequence[int], *, seed: int = 0, rotation: int = 0
) -> list[npt.NDArray[np.int64]]:
    """Draw parts of given sizes by sample id, never by position: data is often sorted.

    Rows are ranked by a hash of seed and id, and the ranking is cut into consecutive parts. The same samples in another
    order give the same parts.

    Args:
        ids: `N` sample ids, all different.
        sizes: Rows of each part; together at most N.
        seed: Another seed draws other parts.
        rotation: Start the cut so many ranks later, cyclically. Five rotations in steps of a fifth let every sample
            take every role.

    Returns:
        The row positions of each part, sorted.

    Example:
        >>> ids = np.arange(100, 110)
        >>> tune, calibrate = split_by_id(ids, (4, 6))
        >>> tune, calibrate
        (array([2, 4, 6, 9]), array([0, 1, 3, 5, 7, 8]))
        >>> np.array_equal(split_by_id(ids, (6, 4), rotation=4)[1], tune)
        True
    """
    ids = np.asarray(ids)
    if ids.ndim != 1 or not np.issubdtype(ids.dtype, np.integer):
        raise SplitError(f"expected one row of integer ids, got {ids.dtype} of shape {ids.shape}")
    if any(size < 1 for size in sizes) or sum(sizes) > len(ids):
        raise SplitError(f"expected parts of at least one row, {len(ids)} rows in all, got sizes {tuple(sizes)}")
    # SplitMix64's own increment, since mixing leaves a 0 a 0.
    salt = _mix(np.array([(seed + 0x9E3779B97F4A7C15) % 2**64], np.uint64))
    ranks = _mix(ids.astype(np.int64).view(np.uint64) ^ salt)
    order = np.argsort(ranks, kind="stable")
    repeats = ranks[order[1:]] == ranks[order[:-1]]  # the mixing is one to one: equal ranks are equal ids
    if repeats.any():
        raise SplitError(
            f"{int(repeats.sum())} ids repeat, for example {ids[order[1:][repeats][0]]}; the same sample could fall "
            "into two parts: give each sample an id of its own"
        )
    order = np.roll(order, -rotation)
    ends = np.cumsum(sizes)
    return [np.sort(order[end - size : end]) for end, size in zip(ends, sizes, strict=True)]


def check_disjoint(**ids_by_split: npt.ArrayLike) -> None:
    """Refuse splits that share a sample, or have none.

    The samples that classifiers and gates are fitted on, and those for tuning, calibrating and testing, must differ.

    Args:
        ids_by_split: The sample ids of each split, by its name.

    Example:
        >>> check_disjoint(fit=[1, 2, 3], test=[4, 5])
        >>> check_disjoint(fit=[1, 2, 3], test=[3, 4])
        Traceback (most recent call last):
        offramp.errors.SplitError: 'fit' and 'test' share 1 sample, for example id 3; take it out of one of them
    """
    distinct: dict[str, npt.NDArray[Any]] = {}
    for name, ids in ids_by_split.items():
        distinct[name] = np.unique(np.asarray(ids))
        if len(distinct[name]) == 0:
            raise SplitError(f"split '{name}' is empty; give it at least one sample")
    for one, other in combinations(distinct, 2):
        shared = np.intersect1d(distinct[one], distinct[other], assume_unique=True)
        if len(shared):
            some = "1 sample" if len(shared) == 1 else f"{len(shared)} samples"
            it = "it" if len(shared) == 1 else "them"
            raise SplitError(
                f"'{one}' and '{other}' share {some}, for example id {shared[0]}; take {it} out of one of them"
            )


def _mix(numbers: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """The finaliser of SplitMix64 (Steele et al. 2014): one to one, and every bit in reaches every bit out."""
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return numbers ^ (numbers >> np.uint64(31))
