"""Columns in temporary files: the same as in memory, also in another process."""

import pickle

import numpy as np

from offramp.data._columns import INDEX_EVERY, Names, Window, map_numbers
from tests.cases import each


@each("count", [0, 1, INDEX_EVERY - 1, INDEX_EVERY, INDEX_EVERY + 1, 5 * INDEX_EVERY])
def test_names_are_those_that_were_given(count: int) -> None:
    names = [f"ä {row}\n" if row % 2 else "" for row in range(count)]
    column = Names(iter(names))
    for found in (column, pickle.loads(pickle.dumps(column))):
        assert len(found) == count
        assert list(found) == names
        for start, stop in ((0, 0), (0, count), (count // 2, count), (count, count), (count // 3, count // 3 + 1)):
            assert found[start:stop] == names[start:stop]


def test_a_name_may_be_bytes_that_are_no_text() -> None:
    name = b"caf\xe9.png".decode(errors="surrogateescape")
    assert Names([name])[0:1] == [name]


def test_numbers_are_mapped() -> None:
    numbers = map_numbers(np.arange(start, start + 10) for start in range(0, 100, 10))
    assert numbers.tolist() == list(range(100))
    assert pickle.loads(pickle.dumps(numbers)).tolist() == list(range(100))
    assert type(numbers) is np.ndarray
    assert map_numbers([]).tolist() == []


def test_a_window_keeps_the_numbers_of_the_whole() -> None:
    window = Window(list("cde"), 2, 26)
    assert (window[2:5], window[3:4], window[4:4], len(window)) == (list("cde"), ["d"], [], 26)
