"""Rows told apart by content: against `np.unique`, whatever the pieces; and orders that depend on content alone."""

from collections.abc import Callable, Iterable

import numpy as np
import pytest

from offramp.annotation import _contents
from offramp.annotation._contents import Contents, nonzero_rows
from offramp.features._ids import Ids, rank_ids


def in_pieces(ids: Ids, size: int) -> Callable[[], Iterable[Ids]]:
    return lambda: (ids[start : start + size] for start in range(0, len(ids), size))


@pytest.mark.parametrize("different", [1, 40, 10**9])
@pytest.mark.parametrize("size", [7, 1000])
def test_the_first_row_of_each_content_stands_for_it(
    different: int, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_contents, "SPAN", 100)
    ids = np.random.default_rng(0).integers(-different, different, 500)
    _, first, place, copies = np.unique(ids, return_index=True, return_inverse=True, return_counts=True)
    contents = Contents(in_pieces(ids, size), len(ids))
    assert contents.stands_for.tolist() == first[place].tolist()
    assert contents.copies[first].tolist() == copies.tolist()
    assert contents.copies.sum() == len(ids)
    assert len(contents) == len(first)
    values = np.where(contents.copies > 0, ids, 0)
    contents.copy_to_all(values)
    assert values.tolist() == ids.tolist()
    found = np.concatenate(list(nonzero_rows(contents.copies)))
    assert found.tolist() == sorted(first.tolist())


def test_rows_are_drawn_by_seed_and_content_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_contents, "SPAN", 16)
    ids = np.random.default_rng(1).permutation(300)
    contents = Contents(in_pieces(ids, 50), len(ids))
    among = contents.copies.copy()
    among[ids < 100] = 0
    drawn = contents.draw(among, 40, seed=3)
    free = np.flatnonzero(ids >= 100)
    assert drawn.tolist() == free[np.argsort(rank_ids(ids[free], seed=3))][:40].tolist()
    assert len(contents.draw(among, 1000, seed=3)) == 200
    backwards = Contents(in_pieces(ids[::-1], 50), len(ids))
    assert ids[::-1][backwards.draw(among[::-1], 40, seed=3)].tolist() == ids[drawn].tolist()
