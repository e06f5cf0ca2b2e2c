from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from offramp.errors import SplitError
from offramp.features import Keys, MemorySource, check_disjoint, split_by_id
from offramp.features.splits import hold_out


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


@pytest.mark.parametrize("sizes", [(0, 3), (3, -1), (6, 5)])
def test_sizes_that_cannot_be_are_refused(sizes: tuple[int, int]) -> None:
    with pytest.raises(SplitError, match="sizes"):
        split_by_id(np.arange(10), sizes)


def test_repeated_ids_are_refused() -> None:
    with pytest.raises(SplitError, match="for example 7"):
        split_by_id(np.array([7, 3, 7, 1]), (2, 2))


def test_overlap_names_the_splits_the_number_and_an_example() -> None:
    with pytest.raises(SplitError, match=r"'tune' and 'test' share 2 samples, for example id 5"):
        check_disjoint(fit=[1, 2], tune=[5, 6, 7], calibrate=[8], test=[9, 6, 5])
    check_disjoint(fit=[1, 2], tune=[5, 6, 7], calibrate=[8], test=[9])


def test_an_empty_split_is_refused() -> None:
    with pytest.raises(SplitError, match="'tune' is empty"):
        check_disjoint(fit=[1], tune=[])


@given(st.lists(st.integers(0, 9), min_size=1, max_size=12), st.integers(0, 5), st.data())
def test_held_out_in_pieces_as_drawn_from_all(lengths: list[int], seed: int, data: st.DataObject) -> None:
    total = sum(lengths)
    ids = np.random.default_rng(0).permutation(10 * total)[:total]
    pieces = np.split(ids, np.cumsum(lengths)[:-1])
    sizes = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))
    if sum(sizes) > total:
        with pytest.raises(SplitError, match=f"at least {sum(sizes)} rows"):
            hold_out(pieces, sizes, seed=seed)
        return
    for part, other in zip(hold_out(pieces, sizes, seed=seed), split_by_id(ids, sizes, seed=seed), strict=True):
        assert part.tolist() == other.tolist()


def test_parts_of_nothing_are_refused() -> None:
    for sizes in ((), (0,), (2, -1)):
        with pytest.raises(SplitError, match="at least one row"):
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
    large: Any = _Pieces([1, 2, 3, 4], [5, 6, 7], [8])
    small = MemorySource(torch.zeros(2, 1), {0: torch.zeros(2, 2)}, torch.zeros(2), (1,), ids=torch.tensor([7, 8]))
    check_disjoint(fit=large, test=[9, 10])
    with pytest.raises(SplitError, match=r"'tune' and 'fit' share 2 samples, for example id 7"):
        check_disjoint(tune=small, fit=large, test=[9])
    with pytest.raises(SplitError, match=r"'tune' and 'test' share 1 sample, for example id 8"):
        check_disjoint(fit=np.arange(100, 109), tune=small, test=[9, 8])
