"""Which samples are for what: parts drawn by sample id, and the check that none is shared."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt

from offramp.errors import SplitError
from offramp.features.batch import BatchSource

__all__ = ["check_disjoint", "hold_out", "split_by_id"]


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
    ranks = _ranks(ids, seed)
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


def hold_out(ids: Iterable[npt.ArrayLike], sizes: Sequence[int], *, seed: int = 0) -> list[npt.NDArray[np.int64]]:
    """Draw parts as `split_by_id` does from ids that come in pieces; only what is drawn is held.

    Args:
        ids: Sample ids, all different, some at a time.
        sizes: Rows of each part; together at most as many as there are ids.
        seed: Another seed draws other parts.

    Returns:
        The row positions of each part, sorted.

    Example:
        >>> ids = np.arange(100, 110)
        >>> hold_out([ids[:7], ids[7:]], (4, 2))
        [array([2, 4, 6, 9]), array([5, 7])]
    """
    if not sizes or any(size < 1 for size in sizes):
        raise SplitError(f"expected parts of at least one row, got sizes {tuple(sizes)}")
    drawn, seen = sum(sizes), 0
    ranks, rows = np.empty(0, np.uint64), np.empty(0, np.int64)
    for piece in ids:
        found = _ranks(np.asarray(piece), seed)
        ranks = np.concatenate([ranks, found])
        rows = np.concatenate([rows, np.arange(seen, seen + len(found))])
        seen += len(found)
        if len(ranks) > drawn:
            lowest = np.argpartition(ranks, drawn - 1)[:drawn]
            ranks, rows = ranks[lowest], rows[lowest]
    if seen < drawn:
        raise SplitError(f"expected at least {drawn} rows for parts of {tuple(sizes)}, got {seen}")
    order = rows[np.argsort(ranks)]
    ends = np.cumsum(sizes)
    return [np.sort(order[end - size : end]) for end, size in zip(ends, sizes, strict=True)]


def check_disjoint(**splits: BatchSource | npt.ArrayLike) -> None:
    """Refuse splits that share a sample, or have none.

    The samples that classifiers and gates are fitted on, and those for tuning, calibrating and testing, must differ.
    The ids of the largest split are read some at a time, those of the others are held.

    Args:
        splits: The samples of each split or their ids, by its name.

    Example:
        >>> check_disjoint(fit=[1, 2, 3], test=[4, 5])
        >>> check_disjoint(fit=[1, 2, 3], test=[3, 4])
        Traceback (most recent call last):
        offramp.errors.SplitError: 'fit' and 'test' share 1 sample, for example id 3; take it out of one of them
    """
    counts = {name: _count(split) for name, split in splits.items()}
    for name, count in counts.items():
        if not count:
            raise SplitError(f"split '{name}' is empty; give it at least one sample")
    largest = max(counts, key=lambda name: counts[name])
    held = {name: np.unique(np.concatenate(list(_ids(split)))) for name, split in splits.items() if name != largest}
    shared: dict[str, list[npt.NDArray[Any]]] = {name: [] for name in held}  # with the largest split
    for piece in _ids(splits[largest]):
        for name, ids in held.items():
            at = np.minimum(np.searchsorted(ids, piece), len(ids) - 1)  # sorted once, for all pieces
            shared[name].append(piece[ids[at] == piece])
    for one, other in combinations(splits, 2):
        if largest in (one, other):
            both = np.unique(np.concatenate(shared[other if one == largest else one]))
        else:
            both = np.intersect1d(held[one], held[other], assume_unique=True)
        if len(both):
            some = "1 sample" if len(both) == 1 else f"{len(both)} samples"
            it = "it" if len(both) == 1 else "them"
            raise SplitError(
                f"'{one}' and '{other}' share {some}, for example id {both[0]}; take {it} out of one of them"
            )


def _ids(split: BatchSource | npt.ArrayLike) -> Iterator[npt.NDArray[Any]]:
    """The ids of a split, some at a time."""
    if hasattr(split, "keys"):
        yield from (keys.ids for keys in split.keys())
    else:
        yield np.asarray(split)


def _count(split: BatchSource | npt.ArrayLike) -> int:
    return split.num_samples if hasattr(split, "num_samples") else len(np.asarray(split))


def _ranks(ids: npt.NDArray[Any], seed: int) -> npt.NDArray[np.uint64]:
    """Where each id stands, the lowest first; different ids have different ranks."""
    # SplitMix64's own increment, since mixing leaves a 0 a 0.
    salt = _mix(np.array([(seed + 0x9E3779B97F4A7C15) % 2**64], np.uint64))
    return _mix(ids.astype(np.int64).view(np.uint64) ^ salt)


def _mix(numbers: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """The finaliser of SplitMix64 (Steele et al. 2014): one to one, and every bit in reaches every bit out."""
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return numbers ^ (numbers >> np.uint64(31))
