from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from offramp.backbone import Preprocessing
from offramp.errors import InputError
from offramp.features import Plan
from offramp.features.selection import Selection
from tests.cases import each


def plan(rows: int, shard_rows: int) -> Plan:
    return Plan("5eed", 10, (1,), {"mean": (1, 1)}, (Preprocessing(),), "toy", rows, shard_rows, 1, 1, "float16")


def read(chosen: Selection, rows: int, shard_rows: int, step: int) -> list[int]:
    """The row numbers, read some positions at a time."""
    found: list[int] = []
    for shard, count in enumerate(chosen.counts.tolist()):
        start = shard * shard_rows
        numbers = np.arange(start, min(start + shard_rows, rows))
        for first in range(0, count, step):
            found += numbers[chosen.rows(shard, first, min(first + step, count))].tolist()
    return found


@given(st.integers(1, 40), st.integers(1, 12), st.integers(1, 5), st.data())
def test_named_rows_and_all_others(rows: int, shard_rows: int, step: int, data: st.DataObject) -> None:
    named = sorted(data.draw(st.sets(st.integers(0, rows - 1), min_size=1)))
    made = plan(rows, shard_rows)
    assert read(Selection(made, rows=np.array(named)), rows, shard_rows, step) == named
    others = [row for row in range(rows) if row not in named]
    if others:
        assert read(Selection(made, without=np.array(named)), rows, shard_rows, step) == others
    assert read(Selection(made), rows, shard_rows, step) == list(range(rows))


def test_nothing_left_and_both_at_once_are_refused() -> None:
    with pytest.raises(InputError, match="all 3 rows"):
        Selection(plan(3, 2), without=np.arange(3))
    with pytest.raises(InputError, match="got both"):
        Selection(plan(3, 2), rows=np.arange(2), without=np.arange(1))


@each("kind", [np.int64, np.uint64, np.int8])
def test_rows_in_another_order_are_refused(kind: type[np.integer[Any]]) -> None:
    with pytest.raises(InputError, match="sorted, different row numbers"):
        Selection(plan(5, 2), rows=np.array([3, 1], kind))
