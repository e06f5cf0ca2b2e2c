"""Which samples are for what: parts drawn by sample id, and the one rule for samples that two splits share."""

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from offramp.errors import OverlapWarning, SplitError
from offramp.features.batch import BatchSource
from offramp.features.ranks import rank_ids
from offramp.features.sketch import IdSketch
from offramp.features.without import WithoutIds

__all__ = ["find_overlap", "hold_out", "keep_apart", "split_by_id", "without_overlap"]

PERCENT = 1
"""Share of a split that may be in an earlier one, and leaves; more is a mistake. Real data repeats itself: 7 rows of
Banking77's test split are among those for training."""


def split_by_id(
    ids: npt.ArrayLike, sizes: Sequence[int], *, seed: int = 0, rotation: int = 0
) -> list[npt.NDArray[np.int64]]:
    """Draw parts of given sizes by sample id, never by position: data is often sorted.

    Rows are ranked by a hash of seed and id, and the ranking is cut into consecutive parts. The same samples in another
    order give the same parts. Rows with equal ids are never cut apart: where a cut would, it moves to the nearer end of
    them, and the sizes of the two parts change by so much.

    Args:
        ids: `N` sample ids.
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
    ranks = rank_ids(ids, seed=seed)
    order = np.argsort(ranks, kind="stable")
    cuts = _whole_cuts(ranks[order], np.cumsum([rotation, *sizes]))
    order = np.concatenate([order, order])  # parts may begin anywhere in the ranking and go round
    start = cuts[0] - cuts[0] % len(ids)
    return [np.sort(order[begin - start : end - start]) for begin, end in _bounds(cuts, sizes)]


def hold_out(ids: Iterable[npt.ArrayLike], sizes: Sequence[int], *, seed: int = 0) -> list[npt.NDArray[np.int64]]:
    """Draw parts as `split_by_id` does from ids that come in pieces; only what is drawn is held, with its repeats.

    Args:
        ids: Sample ids, some at a time.
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
        found = rank_ids(np.asarray(piece), seed=seed)
        ranks = np.concatenate([ranks, found])
        rows = np.concatenate([rows, np.arange(seen, seen + len(found))])
        seen += len(found)
        if len(ranks) > drawn:
            lowest = ranks <= np.partition(ranks, drawn - 1)[drawn - 1]
            ranks, rows = ranks[lowest], rows[lowest]
    if seen < drawn:
        raise SplitError(f"expected at least {drawn} rows for parts of {tuple(sizes)}, got {seen}")
    order = np.argsort(ranks, kind="stable")
    cuts = _whole_cuts(ranks[order], np.cumsum([0, *sizes]))
    return [np.sort(rows[order[begin:end]]) for begin, end in _bounds(cuts, sizes)]


def keep_apart(**splits: BatchSource) -> list[BatchSource]:
    """Take out of every split the samples that an earlier one has too; refuse more than 1 % of a split.

    The samples that classifiers and gates are fitted on, and those for tuning, calibrating and testing, must differ.
    The ids of the earlier splits are read some at a time, those of the later one are held.

    Args:
        splits: The samples of each split by its name, in the order of their use: fit, tune, calibrate, test.

    Returns:
        The splits in the same order, disjoint.

    Raises:
        SplitError: If a split is empty, or shares more than 1 % of its rows with the earlier ones.

    Example:
        >>> import torch
        >>> from offramp.features import MemorySource
        >>> def numbers(start, stop):
        ...     values = torch.arange(start, stop)
        ...     return MemorySource(values[:, None].float(), {0: torch.zeros(len(values), 2)}, values % 2, (1,))
        >>> fit, test = keep_apart(fit=numbers(0, 20), test=numbers(20, 30))
        >>> keep_apart(fit=numbers(0, 20), test=numbers(15, 25))
        Traceback (most recent call last):
        offramp.errors.SplitError: 5 of the 10 rows of 'test' are in 'fit' too, for example row 0, which is row 15 of \
'fit'; at most 1 % may be. Give 'test' other rows, or take the shared ones out of it
    """
    for name, source in splits.items():
        if not source.num_samples:
            raise SplitError(f"split '{name}' is empty; give it at least one sample")
    apart: dict[str, BatchSource] = {}
    for name, source in splits.items():
        apart[name] = without_overlap(source, apart, name=name)
    return list(apart.values())


def without_overlap(source: BatchSource, earlier: Mapping[str, BatchSource | IdSketch], *, name: str) -> BatchSource:
    """Take out of a split the samples that an earlier one has too; see `find_overlap`.

    Args:
        source: The samples of the later split.
        earlier: The samples of each earlier split, or what is known of their ids.
        name: Of the later split, for messages.

    Returns:
        The source as it came, or without those samples.
    """
    if not earlier:
        return source
    ids = np.concatenate(list(_ids(source)))
    rows = find_overlap(ids, earlier, name=name)
    return WithoutIds(source, ids[rows]) if len(rows) else source


def find_overlap(
    ids: npt.NDArray[np.int64], earlier: Mapping[str, BatchSource | IdSketch], *, name: str
) -> npt.NDArray[np.int64]:
    """Find the rows of a split that an earlier split has too; they have to leave it.

    Up to 1 % of the rows may be such, and an `OverlapWarning` tells how many; more is refused. A sketch of a split that
    is not complete gives away only some of its rows: the share is then estimated from the rows that the sketch can tell
    about, and refused where it is above 1 % by two standard errors.

    Args:
        ids: `N` sample ids of the later split.
        earlier: The samples of each earlier split, or what is known of their ids.
        name: Of the later split, for messages.

    Returns:
        The numbers of the rows that have to leave, sorted.

    Raises:
        SplitError: If there are too many.
    """
    places = {split: _places(ids, known) for split, known in earlier.items()}
    shared = {split: place for split, place in places.items() if (place >= 0).any()}
    if not shared:
        return np.empty(0, np.int64)
    hit = np.any([place >= 0 for place in shared.values()], axis=0)
    tells = np.full(len(ids), True)
    for known in earlier.values():
        tells &= known.can_tell(ids) if isinstance(known, IdSketch) else True
    told, hits = int(tells.sum()), int((hit & tells).sum())
    expected = PERCENT * told / 100
    certain = 100 * int(hit.sum()) > PERCENT * len(ids)
    if certain or (told < len(ids) and hits > expected + 2 * expected**0.5):
        raise SplitError(_refusal(name, hit, shared, hits / told if 0 < told < len(ids) else None))
    splits = " and ".join(f"'{split}'" for split in shared)
    warnings.warn(
        f"{_rows(int(hit.sum()), len(ids), name)} in {splits} too and left out of '{name}'",
        OverlapWarning,
        stacklevel=2,
    )
    return np.flatnonzero(hit)


def _refusal(
    name: str, hit: npt.NDArray[np.bool_], shared: Mapping[str, npt.NDArray[np.int64]], share: float | None
) -> str:
    row = int(hit.argmax())
    split, place = next((split, int(place[row])) for split, place in shared.items() if place[row] >= 0)
    where = "" if place == UNPLACED else f", which is row {place} of '{split}'"
    splits = " and ".join(f"'{split}'" for split in shared)
    about = "" if share is None else f" (about {100 * share:.0f} %, as far as the saved ids can tell)"
    return (
        f"{_rows(int(hit.sum()), len(hit), name)} in {splits} too{about}, for example row {row}{where}; at most "
        f"{PERCENT} % may be. Give '{name}' other rows, or take the shared ones out of it"
    )


def _rows(count: int, total: int, name: str) -> str:
    return f"{count:,} of the {total:,} rows of '{name}' {'is' if count == 1 else 'are'}"


UNPLACED = np.iinfo(np.int64).max
"""Place of a row in a split of which only a sketch is known."""


def _places(ids: npt.NDArray[np.int64], known: BatchSource | IdSketch) -> npt.NDArray[np.int64]:
    """Find the first row of each id in a split; -1 where there is none."""
    if isinstance(known, IdSketch):
        return np.where(known.contains(ids), UNPLACED, -1)
    different, inverse = np.unique(ids, return_inverse=True)
    places = np.full(len(different), -1, np.int64)
    seen = 0
    for piece in _ids(known) if len(ids) else ():
        at = np.minimum(np.searchsorted(different, piece), len(different) - 1)
        rows = np.flatnonzero(different[at] == piece)[::-1]  # of several, the first is written last
        new = places[at[rows]] < 0
        places[at[rows][new]] = seen + rows[new]
        seen += len(piece)
    return places[inverse]


def _ids(source: BatchSource) -> Iterator[npt.NDArray[np.int64]]:
    """The ids of a split, some at a time."""
    yield from (keys.ids for keys in source.keys())


def _whole_cuts(ranks: npt.NDArray[np.uint64], cuts: npt.NDArray[np.int64]) -> list[int]:
    """Move cuts through a ranking so that none falls between equal ranks; positions past its end go round.

    Args:
        ranks: Sorted.
        cuts: Positions, ascending.
    """
    moved = []
    for cut in cuts.tolist():
        round, place = divmod(cut, len(ranks))
        if place and ranks[place - 1] == ranks[place]:
            first, last = (int(np.searchsorted(ranks, ranks[place], side)) for side in ("left", "right"))
            place = first if place - first < last - place else last
        moved.append(round * len(ranks) + place)
    return moved


def _bounds(cuts: Sequence[int], sizes: Sequence[int]) -> list[tuple[int, int]]:
    """Where each part begins and ends, none of them empty."""
    bounds = list(pairwise(cuts))
    for (begin, end), size in zip(bounds, sizes, strict=True):
        if begin >= end:
            raise SplitError(
                f"a part of {size} rows would be empty: one row is there so often that it fills more than a part, and "
                "equal rows stay together; give more rows that differ"
            )
    return bounds
