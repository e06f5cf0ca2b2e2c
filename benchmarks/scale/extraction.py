"""How much of a bare torch loop's speed is left on Ray's workers, and what a job costs there.

The bare loop reads, prepares and runs the same rows in as many processes, and keeps nothing: what extraction does
besides (pooling, writing, hashing, Ray) is all on the other side. Both are warm, and take turns.
"""

import multiprocessing
import os
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import torch

from benchmarks.bars import Bar, say
from benchmarks.scale.work import VIEWS, images, network
from offramp.features import Source
from offramp.scale import Workers, cluster, extract_on_cluster
from offramp.trunk import Trunk

LEAST_SHARE = 0.90
"""Of the bare loop's throughput."""

BATCH_SIZE = 250


def extraction(*, small: bool = False) -> tuple[dict[str, Any], list[Bar]]:
    """Throughput against bare processes, start-up, and the driver's time for a job.

    Args:
        small: Fewer rows and rounds.
    """
    rows, rounds, layers = (1_000, 2, 8) if small else (10_000, 5, 20)
    processes = os.cpu_count() or 1
    trunk, source = network(layers), images(rows)
    began = time.perf_counter()
    with (
        cluster(processes) as workers,
        ProcessPoolExecutor(processes, multiprocessing.get_context("spawn"), _prepare, (layers, rows)) as bare,
        TemporaryDirectory() as folder,
    ):
        list(workers.run(range(processes), float))
        start_up_s = time.perf_counter() - began
        seconds: dict[str, list[float]] = {"bare": [], "ray": []}
        processor_s: dict[str, list[float]] = {"bare": [], "ray": []}
        for turn in range(rounds + 1):
            wall, used = _timed(lambda: list(bare.map(_run_bare, range(0, rows, BATCH_SIZE))))
            wall_on_ray, used_on_ray = _timed(partial(_extract, trunk, source, Path(folder, str(turn))))
            if turn == 0:
                continue  # processes start, workers load the network
            seconds["bare"].append(wall)
            seconds["ray"].append(wall_on_ray)
            processor_s["bare"].append(used)
            processor_s["ray"].append(used_on_ray)
            say(f"  round {turn}: bare {rows / wall:,.0f}, on workers {rows / wall_on_ray:,.0f} rows/s")
        overhead = _overhead(workers, jobs=100 if small else 2_000)
    shares = [one / other for one, other in zip(seconds["bare"], seconds["ray"], strict=True)]
    figures = {
        "rows": rows,
        "layers": layers,
        "workers": processes,
        "rows_per_s": {name: [rows / wall for wall in walls] for name, walls in seconds.items()},
        "processor_s": processor_s,
        "share_of_bare": {"median": median(shares), "least": min(shares), "most": max(shares)},
        "start_up_s": start_up_s,
        "per_job_ms": overhead,
    }
    # At the small size a second of work is set against what a call costs at all: there it only must not be far off.
    at_most = 3.0 if small else 1 / LEAST_SHARE
    return figures, [Bar("time on workers over time of the bare loop", 1 / median(shares), at_most)]


def _extract(trunk: Trunk, source: Source, path: Path) -> None:
    # Some shards for each worker, so that none waits long for the last.
    extract_on_cluster(trunk, source, path, views=VIEWS, batch_size=BATCH_SIZE, shard_mb=16, progress=False)


def _overhead(workers: Workers, *, jobs: int) -> dict[str, float]:
    """Milliseconds of the run for a job that does nothing: as plain tasks, as here, and through Ray Data."""
    import ray.data  # here and not above: the processes of the bare loop need none of it

    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    began = time.perf_counter()
    list(workers.run(range(jobs), float))
    tasks_s = time.perf_counter() - began
    began = time.perf_counter()
    dataset = ray.data.range(jobs, override_num_blocks=jobs).map_batches(lambda batch: batch, batch_size=None)
    assert sum(len(batch["id"]) for batch in dataset.iter_batches(batch_size=None)) == jobs
    data_s = time.perf_counter() - began
    return {"tasks": 1e3 * tasks_s / jobs, "ray_data": 1e3 * data_s / jobs}


_bare: tuple[Trunk, Source] | None = None
"""What a process of the bare loop runs."""


def _prepare(layers: int, rows: int) -> None:
    global _bare
    torch.set_num_threads(1)
    _bare = network(layers), images(rows)


def _run_bare(start: int) -> None:
    assert _bare is not None
    trunk, source = _bare
    with torch.inference_mode():
        trunk(trunk.prepare(VIEWS[0](source.read(start, min(start + BATCH_SIZE, len(source))).inputs)))


def _timed(work: Callable[[], object]) -> tuple[float, float]:
    """Seconds of the clock, and of the processors by this process and all that descend from it."""
    began, used = time.perf_counter(), _processor_s()
    work()
    return time.perf_counter() - began, _processor_s() - used


def _processor_s() -> float:
    """Processor time of this process and its living descendants."""
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = entry.read_text().rpartition(")")[2].split()  # a name may hold blanks
        except OSError:
            continue  # gone meanwhile
        parents[int(entry.parent.name)] = int(fields[1])
        ticks[int(entry.parent.name)] = int(fields[11]) + int(fields[12])

    def descends(process: int) -> bool:
        return process == os.getpid() or (process in parents and descends(parents[process]))

    return sum(count for process, count in ticks.items() if descends(process)) / os.sysconf("SC_CLK_TCK")
