"""Splits of the data: parts drawn by sample id, and the removal of samples that two splits share."""

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import numpy.typing as npt

from offramp.errors import OverlapWarning, SplitError
from offramp.features._batch import BatchSource, FilteredSource
from offramp.features._ids import Ids, IdSketch, rank_ids
from offramp.features._sorted_ids import SortedIds

__all__ = ["find_overlap", "hold_out", "keep_apart", "remove_overlap", "split_by_id"]

PERCENT = 1
"""Largest share of a split that may also be in an earlier one, and is then removed. Real data has repeats: 7 rows of
the test split of Banking77 are also in its training split. A larger share is a mistake."""


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

    The samples for fitting, tuning, calibrating and testing must differ. Ids are read in pieces, and sorted through
    files where they are many, so that memory grows with the shared ids alone.

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
    ids = _find_shared_ids(partial(_read_ids, source), earlier, name=name)
    return FilteredSource(source, ids) if len(ids) else source


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
    return np.flatnonzero(np.isin(ids, _find_shared_ids(lambda: [ids], earlier, name=name)))


def _find_shared_ids(
    read: Callable[[], Iterable[Ids]], earlier: Mapping[str, BatchSource | IdSketch], *, name: str
) -> Ids:
    """Find the ids of a split that an earlier split has too, ascending; `read` yields its ids in pieces."""
    sketches = {split: samples for split, samples in earlier.items() if isinstance(samples, IdSketch)}
    sources = {split: samples for split, samples in earlier.items() if not isinstance(samples, IdSketch)}
    by_split = {split: _intersect_sketch(read, sketch) for split, sketch in sketches.items()}
    if sources:
        by_split |= _intersect_sources(read, sources)
    by_split = {split: by_split[split] for split in earlier if len(by_split[split])}
    if not by_split:
        return np.empty(0, np.int64)
    shared = np.unique(np.concatenate(list(by_split.values())))
    num_rows = num_shared = num_testable = num_both = 0
    first = None  # row number and id of the first shared row
    for piece in read():
        is_shared = np.isin(piece, shared)
        is_testable = np.full(len(piece), True)
        for sketch in sketches.values():
            is_testable &= sketch.can_tell(piece)
        if first is None and is_shared.any():
            first = num_rows + int(is_shared.argmax()), int(piece[is_shared.argmax()])
        num_rows += len(piece)
        num_shared += int(is_shared.sum())
        num_testable += int(is_testable.sum())
        num_both += int((is_shared & is_testable).sum())
    allowed = PERCENT * num_testable / 100
    is_estimate = num_testable < num_rows
    splits = " and ".join(f"'{split}'" for split in by_split)
    count = f"{num_shared:,} of the {num_rows:,} rows of '{name}' {'is' if num_shared == 1 else 'are'}"
    if 100 * num_shared > PERCENT * num_rows or (is_estimate and num_both > allowed + 2 * allowed**0.5):
        assert first is not None
        row, example = first
        split = next(split for split, ids in by_split.items() if example in ids)
        share = f" (about {100 * num_both / num_testable:.0f} %, estimated from the saved ids)"
        raise SplitError(
            f"{count} in {splits} too{share if is_estimate and num_testable else ''}, for example row {row}"
            + (f", which is row {_find_row(example, sources[split])} of '{split}'" if split in sources else ""),
            expected=f"at most {PERCENT} %",
            hint=f"give '{name}' other rows, or take the shared ones out of it",
        )
    warnings.warn(f"{count} in {splits} too and left out of '{name}'", OverlapWarning, stacklevel=3)
    return shared


def _intersect_sketch(read: Callable[[], Iterable[Ids]], sketch: IdSketch) -> Ids:
    return np.unique(np.concatenate([np.empty(0, np.int64), *(piece[sketch.contains(piece)] for piece in read())]))


def _intersect_sources(read: Callable[[], Iterable[Ids]], sources: Mapping[str, BatchSource]) -> dict[str, Ids]:
    """Return the ids that are in each source too, ascending."""
    shared = {}
    with TemporaryDirectory(prefix="offramp-ids-") as folder:
        later = SortedIds(read(), _make_folder(folder, "later"))
        for number, (split, source) in enumerate(sources.items()):
            pieces = _read_ids(source)
            if later.all_in_memory:  # of a large split, only what a small one has need be sorted
                pieces = (piece[later.contains(piece)] for piece in pieces)
            blocks = later.intersect(SortedIds(pieces, _make_folder(folder, str(number))))
            shared[split] = np.concatenate([np.empty(0, np.int64), *blocks])
    return shared


def _make_folder(folder: str, name: str) -> Path:
    path = Path(folder, name)
    path.mkdir()
    return path


def _find_row(sample_id: int, source: BatchSource) -> int:
    """Return the first row of a source with this id, which must be there."""
    num_rows = 0
    for piece in _read_ids(source):
        if sample_id in piece:
            return num_rows + int((piece == sample_id).argmax())
        num_rows += len(piece)
    raise AssertionError(sample_id)


def _read_ids(source: BatchSource) -> Iterator[Ids]:
    return (keys.ids for keys in source.keys())


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
