from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from offramp.errors import OverlapWarning, SplitError
from offramp.features import split_by_id
from offramp.features._batch import Keys, MemorySource
from offramp.features._ids import IdSketch
from offramp.features._splits import find_overlap, hold_out, keep_apart
from tests.cases import each, refuses


@given(st.sets(st.integers(-(2**63), 2**63 - 1), min_size=3, max_size=60), st.data())
def test_parts_follow_the_samples_and_not_their_order(ids: set[int], data: st.DataObject) -> None:
    array = np.array(sorted(ids), np.int64)
    first = data.draw(st.integers(1, len(array) - 1))
    sizes = (first, len(array) - first)
    rotation = data.draw(st.integers(0, 2 * len(array)))
    parts = split_by_id(array, sizes, seed=3, rotation=rotation)
    assert [len(part) for part in parts] == list(sizes)
    assert sorted(np.concatenate(parts).tolist()) == list(range(len(array)))
    assert all((np.diff(part) > 0).all() for part in parts)
    shuffled = np.random.default_rng(0).permutation(array)
    again = split_by_id(shuffled, sizes, seed=3, rotation=rotation)
    for part, other in zip(parts, again, strict=True):
        assert set(array[part]) == set(shuffled[other])


def test_rotations_give_every_sample_every_role() -> None:
    ids = np.arange(10_000)
    times_tested = np.zeros(10_000, int)
    before = None
    for turn in range(5):
        test, rest = split_by_id(ids, (2_000, 8_000), rotation=2_000 * turn)
        times_tested[test] += 1
        assert before is None or not np.intersect1d(before, test).size
        before = test
        assert len(rest) == 8_000
    assert (times_tested == 1).all()


def test_parts_are_spread_over_sorted_data_and_differ_by_seed() -> None:
    ids = np.arange(10_000)
    half = split_by_id(ids, (5_000,))[0]
    # A fair draw of 1,000 of 10 blocks of 1,000 with probability 1/2 has a standard deviation of 15.
    assert abs(np.bincount(half // 1_000) - 500).max() < 75
    other = split_by_id(ids, (5_000,), seed=1)[0]
    assert abs(len(np.intersect1d(half, other)) - 2_500) < 150


@each("sizes", [(0, 3), (3, -1), (6, 5)])
def test_sizes_that_cannot_be_are_refused(sizes: tuple[int, int]) -> None:
    with refuses(SplitError, problem="sizes"):
        split_by_id(np.arange(10), sizes)


@given(st.lists(st.integers(0, 12), min_size=3, max_size=60), st.integers(0, 4), st.data())
def test_equal_ids_stay_together(ids: list[int], seed: int, data: st.DataObject) -> None:
    """Every row falls into one part, no id into two, and a part is off by no more than the repeats at its two cuts."""
    array = np.array(ids)
    sizes = [len(ids) // 3, len(ids) - 2 * (len(ids) // 3), len(ids) // 3]
    rotation = data.draw(st.integers(0, 2 * len(ids)))
    repeats = int(np.unique(array, return_counts=True)[1].max()) - 1
    try:
        parts = split_by_id(array, sizes, seed=seed, rotation=rotation)
    except SplitError:
        assert repeats >= min(sizes) - 1
        return
    assert sorted(np.concatenate(parts).tolist()) == list(range(len(ids)))
    owners = [set(array[part].tolist()) for part in parts]
    assert sum(map(len, owners)) == len(set.union(*owners))
    assert all(abs(len(part) - size) <= repeats for part, size in zip(parts, sizes, strict=True))
    shuffled = np.random.default_rng(0).permutation(array)
    again = split_by_id(shuffled, sizes, seed=seed, rotation=rotation)
    assert [sorted(shuffled[part]) for part in again] == [sorted(array[part]) for part in parts]


def test_rotations_give_every_sample_every_role_where_many_repeat() -> None:
    ids = np.random.default_rng(0).integers(0, 300, 1_000)
    times_tested = np.zeros(1_000, int)
    for turn in range(5):
        test, _ = split_by_id(ids, (200, 800), rotation=200 * turn)
        times_tested[test] += 1
    assert (times_tested == 1).all()


def test_one_row_alone_makes_no_two_parts() -> None:
    with refuses(SplitError, hint="give more rows that differ"):
        split_by_id(np.zeros(10, np.int64), (5, 5))


def of_ids(*ids: int) -> MemorySource:
    count = len(ids)
    own = {0: torch.zeros(count, 2)}
    return MemorySource(torch.zeros(count, 1), own, torch.zeros(count, dtype=torch.long), (1,), ids=torch.tensor(ids))


def test_overlap_names_the_splits_the_number_and_an_example() -> None:
    problem = "2 of the 3 rows of 'test' are in 'tune' too, for example row 1, which is row 1 of 'tune'"
    with refuses(SplitError, problem=problem, expected="at most 1 %", hint="give 'test' other rows"):
        keep_apart(fit=of_ids(1, 2), tune=of_ids(5, 6, 7), calibrate=of_ids(8), test=of_ids(9, 6, 5))
    splits = {"fit": of_ids(1, 2), "tune": of_ids(5, 6, 7), "calibrate": of_ids(8), "test": of_ids(9)}
    assert all(split is same for split, same in zip(keep_apart(**splits), splits.values(), strict=True))


def test_shares_with_several_splits_add_up() -> None:
    earlier = {"fit": of_ids(*range(100)), "tune": of_ids(*range(100, 200))}
    later = np.arange(200, 400)
    later[:1], later[1:2] = 5, 105  # 2 of 200
    with pytest.warns(OverlapWarning, match="2 of the 200 rows of 'test' are in 'fit' and 'tune' too and left out"):
        assert find_overlap(later, earlier, name="test").tolist() == [0, 1]
    later[2] = 106
    with refuses(SplitError, problem="3 of the 200 rows"):
        find_overlap(later, earlier, name="test")


@each("total", [1, 99, 100, 101, 199, 200, 3080, 65_536])
def test_at_most_one_in_a_hundred(total: int) -> None:
    ids = np.arange(total) + 10**6
    ids[: total // 100] = 7
    known = {"fit": of_ids(7, 8)}
    if total >= 100:
        with pytest.warns(OverlapWarning, match=rf"{total // 100:,} of the {total:,} rows of 'test' (is|are) in 'fit'"):
            assert find_overlap(ids, known, name="test").tolist() == list(range(total // 100))
    else:
        assert not len(find_overlap(ids, known, name="test"))
    ids[total // 100] = 8
    with refuses(SplitError, hint="give 'test' other rows"):
        find_overlap(ids, known, name="test")


def test_a_few_shared_samples_leave_the_later_split() -> None:
    with pytest.warns(OverlapWarning, match="1 of the 120 rows of 'tune' is in 'fit' too and left out of 'tune'"):
        fit, tune, calibrate = keep_apart(fit=of_ids(3, 4), tune=of_ids(*range(4, 124)), calibrate=of_ids(200))
    assert tune.num_samples == 119
    assert tune.ids().tolist() == list(range(5, 124))
    assert (fit.num_samples, calibrate.num_samples) == (2, 1)


def test_an_empty_split_is_refused() -> None:
    with refuses(SplitError, problem="'tune' is empty"):
        keep_apart(fit=of_ids(1), tune=of_ids())


@given(st.lists(st.integers(0, 9), min_size=1, max_size=12), st.integers(0, 5), st.data())
def test_held_out_in_pieces_as_drawn_from_all(lengths: list[int], seed: int, data: st.DataObject) -> None:
    total = sum(lengths)
    draw = np.random.default_rng(0)
    ids = draw.permutation(10 * total)[:total] if data.draw(st.booleans()) else draw.integers(0, total // 2 + 1, total)
    pieces = np.split(ids, np.cumsum(lengths)[:-1])
    sizes = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))
    if sum(sizes) > total:
        with refuses(SplitError, expected=f"at least {sum(sizes)} rows"):
            hold_out(pieces, sizes, seed=seed)
        return
    try:
        wanted = split_by_id(ids, sizes, seed=seed)
    except SplitError:
        with refuses(SplitError, hint="give more rows that differ"):
            hold_out(pieces, sizes, seed=seed)
        return
    assert [part.tolist() for part in hold_out(pieces, sizes, seed=seed)] == [part.tolist() for part in wanted]


def test_parts_of_nothing_are_refused() -> None:
    for sizes in ((), (0,), (2, -1)):
        with refuses(SplitError, problem="sizes"):
            hold_out([np.arange(5)], sizes)


class _Pieces:
    """A source of many samples whose ids are asked for in pieces alone."""

    def __init__(self, *pieces: list[int]) -> None:
        self._pieces = pieces
        self.num_samples = sum(map(len, pieces))

    def keys(self) -> Iterator[Keys]:
        for piece in self._pieces:
            yield Keys(np.array(piece), torch.ones(len(piece)))


def test_sources_are_compared_piece_by_piece() -> None:
    large: Any = _Pieces([1, 2, 3, 4], [5, 6, 7, 6], [8, 7])
    keep_apart(fit=large, test=of_ids(9, 10))
    with pytest.raises(SplitError, match=r"2 of the 3 rows of 'tune' .* row 0, which is row 6 of 'fit'"):
        keep_apart(fit=large, tune=of_ids(7, 9, 8))
    with pytest.raises(SplitError, match=r"2 of the 10 rows of 'fit' are in 'tune' too, for example row 7, .* row 2"):
        keep_apart(tune=of_ids(11, 8, 6), fit=_Pieces([1, 2, 3, 4], [5, 0, 7, 6], [8, 7]))  # type: ignore[arg-type]


def test_a_complete_sketch_tells_what_the_ids_tell() -> None:
    draw = np.random.default_rng(0)
    fit = draw.integers(0, 2**63, 5_000)
    later = np.concatenate([fit[:10], draw.integers(0, 2**63, 990)])
    sketch = IdSketch.of([fit[:2_000], fit[1_000:]])
    with pytest.warns(OverlapWarning, match="10 of the 1,000 rows"):
        assert find_overlap(later, {"fit": sketch}, name="test").tolist() == list(range(10))
    later[10] = fit[10]
    with pytest.raises(SplitError, match="for example row 0: expected at most"):  # its place is not kept
        find_overlap(later, {"fit": sketch}, name="test")


def test_a_sketch_of_a_large_split_finds_shares_above_the_limit() -> None:
    """20 draws each: 10 % of 10,000 rows shared with 1,000,000 is refused; 0.5 % is let through, less what is known."""
    draw = np.random.default_rng(0)
    fit = draw.integers(0, 2**63, 1_000_000)
    sketch = IdSketch.of(np.array_split(fit, 7))
    assert not sketch.is_complete
    for _ in range(20):
        fresh, shared = draw.integers(0, 2**63, 10_000), draw.permutation(fit)[:1_000]
        leak = np.concatenate([shared, fresh[1_000:]])
        with pytest.raises(SplitError, match=r"\(about \d+ %, estimated from the saved ids\)"):
            find_overlap(leak, {"fit": sketch}, name="test")
        few = np.concatenate([shared[:50], fresh[50:]])
        known = sketch.contains(few)
        assert not known[50:].any()
        if known.any():
            with pytest.warns(OverlapWarning):
                assert find_overlap(few, {"fit": sketch}, name="test").tolist() == np.flatnonzero(known).tolist()


def test_sketches_do_not_depend_on_how_splits_were_drawn() -> None:
    """Parts are drawn by ranks of ids too: were those of the sketch the same, it could tell of one part alone."""
    ids = np.random.default_rng(0).integers(0, 2**63, 300_000)
    first, second = split_by_id(ids, (150_000, 150_000))
    tells = IdSketch.of([ids[second]]).can_tell(ids)
    assert abs(tells[first].mean() - tells[second].mean()) < 0.01
