"""Forecast of an extraction on many machines, from measurements on one worker."""

from dataclasses import dataclass
from math import ceil

from offramp.errors import InputError

__all__ = ["Constants", "Forecast", "forecast"]


@dataclass(frozen=True)
class Constants:
    """Measurements on few rows and one worker; seconds are processor time, not wall time."""

    worker_s: float
    """Seconds to start a worker: import libraries, receive the network."""
    row_s: float
    """Seconds of a worker per row: read, prepare, run the network, pool, hash and write."""
    shard_rows: int
    """Rows of a shard."""
    driver_shard_s: float
    """Seconds of the driver per shard: send a job, record its end, write its entry in the manifest."""
    row_bytes: int
    """Bytes of a row in the store."""
    input_bytes: int
    """Bytes that are read per row."""


@dataclass(frozen=True)
class Forecast:
    """Forecast time, price and size of an extraction."""

    worker_cpu_s: float
    """Processor seconds of all workers together."""
    driver_cpu_s: float
    """Processor seconds of the driver."""
    hours: float
    """Wall time, if workers have nothing else to do."""
    price: float
    """Price of all workers and the driver for that time."""
    store_bytes: int
    """Bytes of the store."""
    bottleneck: str
    """The part that takes longest: workers, driver or network."""


def forecast(
    constants: Constants,
    rows: int,
    workers: int,
    *,
    network_mb_s: float = 100.0,
    core_hour_price: float = 0.04,
) -> Forecast:
    r"""Forecast an extraction.

    $W$ workers take $W c_w + N c_r$ seconds for $N$ rows, the driver $c_s S$ for $S$ shards. The wall time is that of
    the slowest of workers, driver and network, which work at the same time.

    Args:
        constants: The measurements.
        rows: N.
        workers: W, of one thread each.
        network_mb_s: Megabytes per second that each worker can read and write.
        core_hour_price: Price of a core for an hour, in any currency.

    Example:
        >>> small = Constants(2.0, 0.001, 10_000, 0.005, 2_000, 3_000)
        >>> result = forecast(small, 1_000_000, 10)
        >>> round(result.worker_cpu_s), round(result.hours, 4), result.bottleneck
        (1020, 0.0283, 'workers')
    """
    if rows < 1 or workers < 1:
        raise InputError(f"expected at least one row and one worker, got {rows} and {workers}")
    shards = ceil(rows / constants.shard_rows)
    turns = ceil(shards / workers)
    driver_s = constants.driver_shard_s * shards
    sides = {
        "workers": constants.worker_s + constants.row_s * min(rows, turns * constants.shard_rows),
        "driver": driver_s,
        "network": rows * (constants.row_bytes + constants.input_bytes) / (workers * network_mb_s * 1e6),
    }
    hours = max(sides.values()) / 3600
    return Forecast(
        worker_cpu_s=min(workers, shards) * constants.worker_s + constants.row_s * rows,
        driver_cpu_s=driver_s,
        hours=hours,
        price=(workers + 1) * hours * core_hour_price,
        store_bytes=rows * constants.row_bytes,
        bottleneck=max(sides, key=lambda side: sides[side]),
    )
