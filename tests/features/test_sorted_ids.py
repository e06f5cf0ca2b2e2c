"""Sorted ids: what numpy says of all at once, whatever is held and whatever is in files."""

from collections.abc import Callable
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from offramp.errors import SplitError
from offramp.features import _sorted_ids
from offramp.features._sorted_ids import SortedIds
from offramp.features._splits import keep_apart
from tests.cases import refuses
from tests.features.test_splits import of_ids

PIECES = st.lists(st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(0, 30), max_size=12), max_size=12)


@pytest.fixture(scope="module", autouse=True)
def _short_runs() -> Any:
    """Limits so small that a dozen ids are many."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_sorted_ids, "RUN_IDS", 6)
        patch.setattr(_sorted_ids, "MOST_RUNS", 3)
        patch.setattr(_sorted_ids, "BLOCK_IDS", 2)
        yield


def arrays(pieces: list[list[int]]) -> list[np.ndarray[Any, Any]]:
    return [np.array(piece, np.int64) for piece in pieces]


@given(PIECES, PIECES)
def test_sorted_and_shared_ids_are_those_of_all_at_once(first: list[list[int]], second: list[list[int]]) -> None:
    with TemporaryDirectory() as one, TemporaryDirectory() as other:
        left, right = SortedIds(arrays(first), Path(one)), SortedIds(arrays(second), Path(other))
        for ids, pieces in ((left, first), (right, second), (left, first)):  # and once more: blocks are read again
            assert [id_ for block in ids.blocks() for id_ in block.tolist()] == sorted({*chain(*pieces)})
        shared = sorted({*chain(*first)} & {*chain(*second)})
        assert [id_ for block in left.intersect(right) for id_ in block.tolist()] == shared
        assert len(list(Path(one).iterdir())) <= _sorted_ids.MOST_RUNS


def test_many_ids_are_in_files_and_repeats_in_none(tmp_path: Path) -> None:
    many = SortedIds(np.split(np.random.default_rng(0).permutation(1_000), 50), tmp_path)
    assert not many.all_in_memory
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) == 8 * (1_000 - len(many.in_memory))
    assert [id_ for block in many.blocks() for id_ in block.tolist()] == list(range(1_000))
    held = many.in_memory
    assert many.contains(np.array([-1, *held, 1_000])).tolist() == [False, *[True] * len(held), False]
    assert SortedIds([], tmp_path).contains(np.array([1])).tolist() == [False]
    repeats = SortedIds([np.array([5, 5, 7])] * 100, tmp_path / "unused")
    assert repeats.all_in_memory
    assert repeats.in_memory.tolist() == [5, 7]


@pytest.mark.parametrize("order", [sorted, lambda ids: sorted(ids, key=lambda id_: id_ * 7919 % 10_007)])
def test_large_splits_are_kept_apart_through_files(order: Callable[[Any], list[int]]) -> None:
    fit, test = of_ids(*order(range(3_000))), of_ids(*order(range(2_970, 6_000)))
    with pytest.warns(match="30 of the 3,030 rows of 'test' are in 'fit' too and left out"):
        _, rest = keep_apart(fit=fit, test=test)
    assert sorted(rest.ids().tolist()) == list(range(3_000, 6_000))
    problem = "31 of the 3,031 rows of 'test' are in 'fit' too, for example row 0, which is row 2969 of 'fit'"
    with refuses(SplitError, problem=problem):
        keep_apart(fit=of_ids(*range(3_000)), test=of_ids(*range(2_969, 6_000)))
