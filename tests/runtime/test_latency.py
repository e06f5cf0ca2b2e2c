"""Latency tables: read off straight lines, measured on what really runs."""

import pytest
import torch

from offramp.errors import InputError
from offramp.exits import LinearExits
from offramp.runtime import Compaction, LatencyTable, measure_latency
from offramp.trunk import POOLINGS, CifarResNet

TABLE = LatencyTable(
    backend="eager",
    threads=1,
    batch_sizes=(1, 8, 64),
    stage=((1.0, 8.0, 64.0), (2.0, 2.0, 2.0)),
    answer=((0.1, 0.1, 0.1),) * 2,
    carry=((0.0, 0.0, 0.0),) * 2,
    select=((0.5, 0.5, 0.5),) * 2,
)


@pytest.mark.parametrize(("size", "expected"), [(1, 1.0), (8, 8.0), (36, 36.0), (64, 64.0), (100, 100.0), (0, 1.0)])
def test_sizes_between_and_beyond(size: int, expected: float) -> None:
    assert TABLE.at("stage", 0, size) == pytest.approx(expected)


def test_the_bare_network_is_its_stages() -> None:
    assert TABLE.bare(8) == pytest.approx(10.0)


def test_one_batch_size_is_for_all() -> None:
    table = LatencyTable("eager", 1, (4,), ((3.0,),), ((0.0,),), ((0.0,),), ((0.0,),))
    assert table.at("stage", 0, 1) == table.at("stage", 0, 99) == 3.0


def test_taking_out_pays_where_the_next_stage_gains_more_than_it_costs() -> None:
    rising = LatencyTable("eager", 1, (1, 64), ((1.0, 64.0),) * 2, *[((0.5, 0.5),) * 2] * 3)
    assert Compaction(rising).pays(1, 64, 63)
    assert not Compaction(TABLE).pays(1, 64, 1)  # the second stage takes as long for one
    slow = LatencyTable("eager", 1, (1, 64), ((1.0, 64.0),) * 2, *[((9.0, 9.0),) * 2] * 3)
    assert not Compaction(slow).pays(1, 64, 60)
    assert Compaction(slow).pays(1, 64, 50)


def test_measured_on_what_runs() -> None:
    trunk = CifarResNet(8)
    bank = LinearExits((16, 32, 64), (0, 1), 10)
    images = torch.randn(3, 3, 32, 32)
    table = measure_latency(trunk, POOLINGS.get("mean"), bank, images, batch_sizes=(1, 16), repeats=3)
    assert [len(rows) for rows in (table.stage, table.answer, table.carry, table.select)] == [3] * 4
    assert all(value > 0 for rows in (table.stage, table.answer, table.select) for row in rows for value in row)
    assert all(row[1] > row[0] for row in table.stage)  # sixteen take longer than one
    assert all(carry < answer for carry, answer in zip(table.carry[0], table.answer[0], strict=True))
    assert table.to_json()["batch_sizes"] == (1, 16)


@pytest.mark.parametrize("sizes", [(), (8, 1), (0, 1), (1, 1)])
def test_sizes_must_ascend(sizes: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match="ascending batch sizes"):
        measure_latency(
            CifarResNet(8), POOLINGS.get("mean"), LinearExits((16, 32, 64), (0, 1), 10), None, batch_sizes=sizes
        )
