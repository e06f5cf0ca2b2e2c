"""Arithmetic of an extraction on machines one does not have yet, from what was measured on one worker."""

from dataclasses import dataclass
from math import ceil

from offramp.errors import InputError

__all__ = ["Constants", "Forecast", "forecast"]


@dataclass(frozen=True)
class Constants:
    """What was measured on few rows and one worker; seconds are of a processor, not of a clock."""

    worker_s: float
    """To begin a worker: libraries imported, the network received."""
    row_s: float
    """Of a worker for a row: read, prepared, run through the network, pooled, hashed and written."""
    shard_rows: int
    """Rows of a shard."""
    driver_shard_s: float
    """Of the driver for a shard: a job given out, its end noted, its entry put into the manifest."""
    row_bytes: int
    """That a row takes in the store."""
    input_bytes: int
    """That are read for a row."""


@dataclass(frozen=True)
class Forecast:
    """What an extraction would take."""

    worker_cpu_s: float
    """Of all workers together."""
    driver_cpu_s: float
    """Of the driver: shards given out and noted."""
    hours: float
    """By the clock, if workers have nothing else to do."""
    price: float
    """Of all workers and the driver for that long."""
    store_bytes: int
    """Of the store."""
    bottleneck: str
    """What more workers, or less of it, would speed up most: workers, driver or network."""


def forecast(
    constants: Constants,
    rows: int,
    workers: int,
    *,
    network_mb_s: float = 100.0,
    core_hour_price: float = 0.04,
) -> Forecast:
    r"""Foretell an extraction.

    Workers take $W c_w + N c_r$ seconds for $N$ rows on $W$ workers, the driver $c_s S$ for $S$ shards. By the clock
    the longest of workers, driver and network counts, for they go on side by side.

    Args:
        constants: What was measured.
        rows: N.
        workers: W, of one thread each.
        network_mb_s: Megabytes a second that each worker can read and write.
        core_hour_price: What a core costs for an hour, in whatever money.

    Example:
        >>> small = Constants(2.0, 0.001, 10_000, 0.005, 2_000, 3_000)
        >>> found = forecast(small, 1_000_000, 10)
        >>> round(found.worker_cpu_s), round(found.hours, 4), found.bottleneck
        (1020, 0.0283, 'workers')
    """
    if rows < 1 or workers < 1:
        raise InputError(f"expected at least one row and one worker, got {rows} and {workers}")
    shards = ceil(rows / constants.shard_rows)
    turns = ceil(shards / workers)
    dealing_s = constants.driver_shard_s * shards
    sides = {
        "workers": constants.worker_s + constants.row_s * min(rows, turns * constants.shard_rows),
        "driver": dealing_s,
        "network": rows * (constants.row_bytes + constants.input_bytes) / (workers * network_mb_s * 1e6),
    }
    hours = max(sides.values()) / 3600
    return Forecast(
        worker_cpu_s=min(workers, shards) * constants.worker_s + constants.row_s * rows,
        driver_cpu_s=dealing_s,
        hours=hours,
        price=(workers + 1) * hours * core_hour_price,
        store_bytes=rows * constants.row_bytes,
        bottleneck=max(sides, key=lambda side: sides[side]),
    )
