"""Speed of Ray's workers relative to a bare torch loop, and the time of a job there.

The bare loop reads, prepares and runs the same rows in as many processes, pools the same features and discards them; it
does none of the other work of an extraction (checks, half precision, writing, hashing, Ray). A loop that runs only the
network is measured too. All are warmed up, and take turns.
"""

import multiprocessing
import os
import shutil
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import torch

from offramp.backbone._backbone import Backbone
from offramp.backbone._hidden import Hidden
from offramp.features import Source
from offramp.pooling import POOLINGS
from offramp.pooling._rich import DEFAULT_POOLING
from offramp.scale import extract_on_cluster
from offramp.scale._workers import Workers, open_workers
from offramp_bench.bars import Bar, say
from offramp_bench.scale.processes import descendants
from offramp_bench.scale.work import VIEWS, images, network

LEAST_SHARE = 0.90
"""Least share of extraction's processor time that the bare loop needs."""

BATCH_SIZE = 250


def extraction(*, small: bool = False) -> tuple[dict[str, Any], list[Bar]]:
    """Measure throughput and processor time against bare processes, start-up, and the driver's time for a job.

    Args:
        small: Use fewer rows and rounds.
    """
    rows, rounds, layers = (1_000, 2, 8) if small else (10_000, 9, 20)
    processes = os.cpu_count() or 1
    backbone, source = network(layers), images(rows)
    began = time.perf_counter()
    with (
        open_workers(processes) as workers,
        ProcessPoolExecutor(processes, multiprocessing.get_context("spawn"), _prepare, (layers, rows)) as bare,
        TemporaryDirectory() as folder,
    ):
        list(workers.run(range(processes), float))
        start_up_s = time.perf_counter() - began
        overhead = _overhead(workers, jobs=100 if small else 2_000)
        starts = range(0, rows, BATCH_SIZE)
        seconds: dict[str, list[float]] = {"network alone": [], "bare": [], "ray": []}
        processor_s: dict[str, list[float]] = {name: [] for name in seconds}
        for turn in range(rounds + 1):
            works: dict[str, Callable[[], object]] = {
                "network alone": lambda: list(bare.map(_run, starts)),
                "bare": lambda: list(bare.map(_run_and_pool, starts)),
                "ray": partial(_extract, backbone, source, Path(folder, str(turn))),
            }
            names = list(works)
            for name in names[turn % 3 :] + names[: turn % 3]:
                wall, used = _measure_times(works[name])
                if turn > 0:  # at first, processes start and workers load the network
                    seconds[name].append(wall)
                    processor_s[name].append(used)
            shutil.rmtree(
                Path(folder, str(turn))
            )  # otherwise the system is still writing it to disk when the next turn begins
            say(
                f"  round {turn}: "
                + ", ".join(f"{name} {rows / walls[-1]:,.0f} rows/s" for name, walls in seconds.items() if walls)
            )
    figures: dict[str, Any] = {
        "rows": rows,
        "layers": layers,
        "workers": processes,
        "rows_per_s": {name: [rows / wall for wall in walls] for name, walls in seconds.items()},
        "processor_s": processor_s,
        "share_of": _shares(seconds),
        "processor_share_of": _shares(processor_s),
        "start_up_s": start_up_s,
        "per_job_ms": overhead,
    }
    # At the small size the fixed time of a call is large against a second of work, so the bar is lower.
    least = 0.33 if small else LEAST_SHARE
    lost = 1 - figures["processor_share_of"]["bare"]["median"]
    return figures, [Bar("share of the processor time that the bare loop does not need", lost, 1 - least)]


def _shares(times: dict[str, list[float]]) -> dict[str, dict[str, float]]:
    """Return the times of other ways as shares of Ray's, round by round."""
    shares = {
        name: [other / ray for other, ray in zip(rounds, times["ray"], strict=True)]
        for name, rounds in times.items()
        if name != "ray"
    }
    return {name: {"median": median(rows), "least": min(rows), "most": max(rows)} for name, rows in shares.items()}


def _extract(backbone: Backbone, source: Source, path: Path) -> None:
    # Some shards for each worker, so that none waits long for the last.
    extract_on_cluster(backbone, source, path, views=VIEWS, batch_size=BATCH_SIZE, shard_mb=16, progress=False)


def _overhead(workers: Workers, *, jobs: int) -> dict[str, float]:
    """Return milliseconds per empty job: as plain tasks, as in extraction, and (fewer jobs) through Ray Data."""
    import ray.data  # not at the top: the processes of the bare loop do not need it

    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    began = time.perf_counter()
    list(workers.run(range(jobs), float))
    tasks_s = time.perf_counter() - began
    blocks = min(jobs, 200)
    began = time.perf_counter()
    dataset = ray.data.range(blocks, override_num_blocks=blocks).map_batches(lambda batch: batch, batch_size=None)
    assert sum(len(batch["id"]) for batch in dataset.iter_batches(batch_size=None)) == blocks
    data_s = time.perf_counter() - began
    return {"tasks": 1e3 * tasks_s / jobs, "ray_data": 1e3 * data_s / blocks}


_bare: tuple[Backbone, Source] | None = None
"""Network and inputs of a process of the bare loop."""


def _prepare(layers: int, rows: int) -> None:
    global _bare
    torch.set_num_threads(1)
    _bare = network(layers), images(rows)


def _run(start: int) -> None:
    assert _bare is not None
    backbone, source = _bare
    with torch.inference_mode():
        backbone(_batch(backbone, source, start))


def _run_and_pool(start: int) -> None:
    assert _bare is not None
    backbone, source = _bare
    pool = POOLINGS.get(DEFAULT_POOLING)
    with torch.inference_mode():
        hidden = _batch(backbone, source, start)
        for index, stage in enumerate(backbone.stages):
            hidden = stage(hidden)
            pool(backbone.representation(hidden, index))
        backbone.own_logits(hidden, len(backbone.stages) - 1)


def _batch(backbone: Backbone, source: Source, start: int) -> Hidden:
    return backbone.prepare(VIEWS[0](source.read(start, min(start + BATCH_SIZE, len(source))).inputs))


def _measure_times(work: Callable[[], object]) -> tuple[float, float]:
    """Return wall seconds, and processor seconds of this process and its descendants."""
    began, used = time.perf_counter(), _processor_s()
    work()
    return time.perf_counter() - began, _processor_s() - used


def _processor_s() -> float:
    return sum(process.cpu_s for process in descendants())
