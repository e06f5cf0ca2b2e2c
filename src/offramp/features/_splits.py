"""Splits of the data: parts drawn by sample id, and the removal of samples that two splits share."""

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from offramp.errors import OverlapWarning, SplitError
from offramp.features._batch import BatchSource, FilteredSource
from offramp.features._ids import Ids, IdSketch, rank_ids

__all__ = ["find_overlap", "hold_out", "keep_apart", "remove_overlap", "split_by_id"]

PERCENT = 1
"""Largest share of a split that may also be in an earlier one, and is then removed. Real data has repeats: 7 rows of
the test split of Banking77 are also in its training split. A larger share is a mistake."""

UNPLACED = np.iinfo(np.int64).max
"""Row number of a sample in a split that is known by a sketch only."""


def split_by_id(ids: npt.ArrayLike, sizes: Sequence[int], *, seed: int = 0, rotation: int = 0) -> list[Ids]:
    """Draw parts of given sizes by sample id, not by position, because data is often sorted.

    Rows are ranked by a hash of seed and id, and the ranking is cut into consecutive parts. The same samples in another
    order give the same parts. Rows with equal ids stay together: a cut between them moves to their nearer end, which
    changes the sizes of the two parts.

    Args:
        ids: `N` sample ids.
        sizes: Number of rows of each part; together at most N.
        seed: Another seed draws other parts.
        rotation: Start the first part this many ranks later, cyclically. With five rotations in steps of N / 5, every
            sample takes every role.

    Returns:
        The row numbers of each part, sorted.

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
        raise SplitError("ids", expected="one integer per sample", got=f"{ids.dtype} of shape {ids.shape}")
    if any(size < 1 for size in sizes) or sum(sizes) > len(ids):
        raise SplitError("sizes", expected=f"at least 1 row per part, at most {len(ids)} in all", got=tuple(sizes))
    ranks = rank_ids(ids, seed=seed)
    order = np.argsort(ranks, kind="stable")
    cuts = _move_cuts(ranks[order], np.cumsum([rotation, *sizes]))
    order = np.concatenate([order, order])  # a part may continue at the start of the ranking
    start = cuts[0] - cuts[0] % len(ids)
    return [np.sort(order[begin - start : end - start]) for begin, end in _bounds(cuts, sizes)]


def hold_out(ids: Iterable[npt.ArrayLike], sizes: Sequence[int], *, seed: int = 0) -> list[Ids]:
    """Draw the parts that `split_by_id` draws, from ids that come in pieces, holding only the rows drawn.

    Args:
        ids: Pieces of the sample ids, in row order.
        sizes: Number of rows of each part; together at most the number of ids.
        seed: Another seed draws other parts.

    Returns:
        The row numbers of each part, sorted.
    """
    if not sizes or any(size < 1 for size in sizes):
        raise SplitError("sizes", expected="at least one part, and at least 1 row per part", got=tuple(sizes))
    num_drawn, num_rows = sum(sizes), 0
    ranks, rows = np.empty(0, np.uint64), np.empty(0, np.int64)
    for piece in ids:
        piece_ranks = rank_ids(np.asarray(piece), seed=seed)
        ranks = np.concatenate([ranks, piece_ranks])
        rows = np.concatenate([rows, np.arange(num_rows, num_rows + len(piece_ranks))])
        num_rows += len(piece_ranks)
        if len(ranks) > num_drawn:
            lowest = ranks <= np.partition(ranks, num_drawn - 1)[num_drawn - 1]
            ranks, rows = ranks[lowest], rows[lowest]
    if num_rows < num_drawn:
        raise SplitError(expected=f"at least {num_drawn} rows for parts of {tuple(sizes)}", got=num_rows)
    order = np.argsort(ranks, kind="stable")
    cuts = _move_cuts(ranks[order], np.cumsum([0, *sizes]))
    return [np.sort(rows[order[begin:end]]) for begin, end in _bounds(cuts, sizes)]


def keep_apart(**splits: BatchSource) -> list[BatchSource]:
    """Remove from every split the samples that an earlier split has too; refuse more than 1 % of a split.

    The samples for fitting, tuning, calibrating and testing must differ. The ids of the earlier splits are read in
    pieces; those of the later split are held in memory.

    Args:
        splits: The samples of each split by name, in the order of their use: fit, tune, calibrate, test.

    Returns:
        The splits in the same order, disjoint.

    Raises:
        SplitError: If a split is empty, or shares more than 1 % of its rows with earlier ones.

    Example:
        >>> import torch
        >>> from offramp.features._batch import MemorySource
        >>> def numbers(start, stop):
        ...     values = torch.arange(start, stop)
        ...     return MemorySource(values[:, None].float(), {0: torch.zeros(len(values), 2)}, values % 2, (1,))
        >>> fit, test = keep_apart(fit=numbers(0, 20), test=numbers(20, 30))
        >>> keep_apart(fit=numbers(0, 20), test=numbers(15, 25))
        Traceback (most recent call last):
        offramp.errors.SplitError: 5 of the 10 rows of 'test' are in 'fit' too, for example row 0, which is row 15 of \
'fit': expected at most 1 %; give 'test' other rows, or take the shared ones out of it
    """
    for name, source in splits.items():
        if not source.num_samples:
            raise SplitError(f"split '{name}' is empty", hint="give it at least one sample")
    apart: dict[str, BatchSource] = {}
    for name, source in splits.items():
        apart[name] = remove_overlap(source, apart, name=name)
    return list(apart.values())


def remove_overlap(source: BatchSource, earlier: Mapping[str, BatchSource | IdSketch], *, name: str) -> BatchSource:
    """Remove from a split the samples that an earlier split has too; see `find_overlap`.

    Args:
        source: The samples of the later split.
        earlier: The samples of each earlier split, or a sketch of their ids.
        name: Name of the later split, for messages.
    """
    if not earlier:
        return source
    ids = np.concatenate(list(_read_ids(source)))
    rows = find_overlap(ids, earlier, name=name)
    return FilteredSource(source, ids[rows]) if len(rows) else source


def find_overlap(ids: Ids, earlier: Mapping[str, BatchSource | IdSketch], *, name: str) -> Ids:
    """Find the rows of a split that an earlier split has too; the caller has to remove them.

    Up to 1 % of the rows gives an `OverlapWarning` with their number; more is refused. An incomplete sketch knows only
    some ids: the share is then estimated from those, and refused if it is above 1 % by two standard errors.

    Args:
        ids: `N` sample ids of the later split.
        earlier: The samples of each earlier split, or a sketch of their ids.
        name: Name of the later split, for messages.

    Returns:
        The numbers of the shared rows, sorted.

    Raises:
        SplitError: If there are too many.
    """
    places = {split: _find_places(ids, samples) for split, samples in earlier.items()}
    places = {split: rows for split, rows in places.items() if (rows >= 0).any()}
    if not places:
        return np.empty(0, np.int64)
    shared = np.any([rows >= 0 for rows in places.values()], axis=0)
    testable = np.full(len(ids), True)
    for samples in earlier.values():
        testable &= samples.can_tell(ids) if isinstance(samples, IdSketch) else True
    num_testable, num_shared = int(testable.sum()), int((shared & testable).sum())
    allowed = PERCENT * num_testable / 100
    is_estimate = num_testable < len(ids)
    splits = " and ".join(f"'{split}'" for split in places)
    count = f"{int(shared.sum()):,} of the {len(ids):,} rows of '{name}' {'is' if shared.sum() == 1 else 'are'}"
    if 100 * int(shared.sum()) > PERCENT * len(ids) or (is_estimate and num_shared > allowed + 2 * allowed**0.5):
        row = int(shared.argmax())
        split, place = next((split, int(rows[row])) for split, rows in places.items() if rows[row] >= 0)
        share = f" (about {100 * num_shared / num_testable:.0f} %, estimated from the saved ids)"
        raise SplitError(
            f"{count} in {splits} too{share if is_estimate and num_testable else ''}, for example row {row}"
            + ("" if place == UNPLACED else f", which is row {place} of '{split}'"),
            expected=f"at most {PERCENT} %",
            hint=f"give '{name}' other rows, or take the shared ones out of it",
        )
    warnings.warn(f"{count} in {splits} too and left out of '{name}'", OverlapWarning, stacklevel=2)
    return np.flatnonzero(shared)


def _find_places(ids: Ids, samples: BatchSource | IdSketch) -> Ids:
    """Find the first row of each id in a split; -1 if there is none."""
    if isinstance(samples, IdSketch):
        return np.where(samples.contains(ids), UNPLACED, -1)
    different, inverse = np.unique(ids, return_inverse=True)
    places = np.full(len(different), -1, np.int64)
    num_rows = 0
    for piece in _read_ids(samples) if len(ids) else ():
        nearest = np.minimum(np.searchsorted(different, piece), len(different) - 1)
        rows = np.flatnonzero(different[nearest] == piece)[::-1]  # reversed: of repeats, the first row is written last
        new = places[nearest[rows]] < 0
        places[nearest[rows][new]] = num_rows + rows[new]
        num_rows += len(piece)
    return places[inverse]


def _read_ids(source: BatchSource) -> Iterator[Ids]:
    yield from (keys.ids for keys in source.keys())


def _move_cuts(ranks: npt.NDArray[np.uint64], cuts: npt.NDArray[np.int64]) -> list[int]:
    """Move cuts through sorted ranks so that none falls between equal ranks; positions past the end wrap around."""
    moved = []
    for cut in cuts.tolist():
        turn, place = divmod(cut, len(ranks))
        if place and ranks[place - 1] == ranks[place]:
            first, last = (int(np.searchsorted(ranks, ranks[place], side)) for side in ("left", "right"))
            place = first if place - first < last - place else last
        moved.append(turn * len(ranks) + place)
    return moved


def _bounds(cuts: Sequence[int], sizes: Sequence[int]) -> list[tuple[int, int]]:
    """Return begin and end of each part, none of them empty."""
    bounds = list(pairwise(cuts))
    for (begin, end), size in zip(bounds, sizes, strict=True):
        if begin >= end:
            raise SplitError(
                f"a part of {size} rows would be empty: rows with equal ids stay together, and one id fills a part",
                hint="give more rows that differ",
            )
    return bounds
