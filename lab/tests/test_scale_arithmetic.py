"""Forecasts of extractions against sums done by hand."""

import pytest

from offramp.errors import InputError
from offramp_bench.scale.arithmetic import Constants, forecast
from tests.cases import each

BASE = Constants(
    worker_s=3.0,
    row_s=0.01,
    shard_rows=100,
    driver_shard_s=0.002,
    row_bytes=1000,
    input_bytes=500,
)


def test_by_hand() -> None:
    result = forecast(BASE, 1000, 2, network_mb_s=1.0, core_hour_price=2.0)
    assert result.worker_cpu_s == pytest.approx(2 * 3 + 10)
    assert result.driver_cpu_s == pytest.approx(0.02)
    assert result.hours == pytest.approx((3 + 5) / 3600)
    assert result.price == pytest.approx(3 * 2 * 8 / 3600)
    assert result.store_bytes == 1_000_000
    assert result.bottleneck == "workers"


def test_what_limits() -> None:
    assert forecast(BASE, 10**6, 10**4).bottleneck == "driver"
    assert forecast(BASE, 10**6, 1, network_mb_s=0.1).bottleneck == "network"


def test_workers_beyond_the_shards_do_not_help() -> None:
    """Ten shards occupy ten workers."""
    assert forecast(BASE, 1000, 10).hours == forecast(BASE, 1000, 1000).hours == pytest.approx((3 + 1) / 3600)
    assert forecast(BASE, 1000, 1000).worker_cpu_s == forecast(BASE, 1000, 10).worker_cpu_s


def test_fewer_rows_than_a_shard() -> None:
    assert forecast(BASE, 7, 5).hours == pytest.approx((3 + 0.07) / 3600)
    assert forecast(BASE, 1, 1).worker_cpu_s == pytest.approx(3.01)


@each(("rows", "workers"), [(0, 1), (1, 0)])
def test_refused(rows: int, workers: int) -> None:
    with pytest.raises(InputError, match="at least one row and one worker"):
        forecast(BASE, rows, workers)
