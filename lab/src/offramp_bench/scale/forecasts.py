"""Forecasts from few rows and one worker, against measurements with more."""

from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter, process_time
from typing import Any

import numpy as np
import torch

from offramp.backbone._backbone import Backbone
from offramp.features import Source
from offramp.features._extraction import begin_extraction, extract_shard, make_plan
from offramp.features._shard import Plan
from offramp.features._source import Rows
from offramp.features._store import compile_manifest
from offramp.pooling._rich import DEFAULT_POOLING
from offramp.preprocessing import Preprocessing
from offramp.scale._extract import extract_on_cluster
from offramp.scale._workers import Workers, open_workers
from offramp_bench.bars import Bar, say
from offramp_bench.cifar import PREPROCESSING, cifar10, resnet
from offramp_bench.scale.arithmetic import Constants, forecast
from offramp_bench.scale.processes import descendants
from offramp_bench.texts import intents, minilm

__all__ = ["forecasts"]

ALLOWED, SMALL_ALLOWED = 0.25, 1.0
"""Largest relative error of a forecast; larger for few rows, where most of the time goes into starting workers."""

BASE_ROWS, SMALL_BASE_ROWS = 100_000, 20_000
"""Rows that the constants are measured with, on one worker."""

CHECKS = ((1_000_000, 1), (1_000_000, 2), (10_000_000, 2))
"""Rows and workers of the forecasts that are compared with measurements."""

SMALL_CHECKS = ((60_000, 1), (60_000, 2))

SHARD_ROWS = 10_000
"""Approximate number of synthetic rows in a shard."""

JOBS = 400
"""Number of empty jobs, from which the driver's time per job is measured."""

NETWORK_SHARD_MB = 16
"""Size of the shard that real networks are measured with: some hundreds of rows."""

TABLE = [(rows, workers) for rows in (10**6, 10**8, 10**10) for workers in (1, 10, 1000)]
"""Rows and workers of the forecasts in docs/evidence/scale.md."""

WIDTH = 8


class Numbers:
    """Synthetic samples that are computed when they are read."""

    def __init__(self, rows: int) -> None:
        self.name = f"numbers-{rows}"
        self._rows = rows

    def __len__(self) -> int:
        return self._rows

    def read(self, start: int, stop: int) -> Rows:
        rows = np.arange(start, stop)
        inputs = np.sin(rows[:, None] * np.arange(1, WIDTH + 1)).astype(np.float32)
        return Rows(inputs, (inputs[:, 0] > 0).astype(np.int64), rows)


def forecasts(*, small: bool) -> tuple[dict[str, Any], list[Bar]]:
    """Measure constants, and compare forecasts with measurements; forecast extractions of real networks.

    Args:
        small: Use fewer rows, and no real networks.
    """
    base = SMALL_BASE_ROWS if small else BASE_ROWS
    constants = measure_constants(_backbone(), Numbers(base))
    figures: dict[str, Any] = {"constants": asdict(constants), "rows of the constants": base, "checked": []}
    bars = []
    for rows, workers in SMALL_CHECKS if small else CHECKS:
        expected = forecast(constants, rows, workers)
        measured = _extract(rows, workers)
        total = expected.worker_cpu_s + expected.driver_cpu_s
        off = (measured["worker CPU s"] + measured["driver CPU s"]) / total - 1
        expected_parts = {
            "predicted worker CPU s": expected.worker_cpu_s,
            "predicted driver CPU s": expected.driver_cpu_s,
        }
        figures["checked"].append({"rows": rows, "workers": workers, **expected_parts, **measured, "off": off})
        say(f"{rows} rows, {workers} workers: {total:.1f} s of CPU predicted, off by {off:+.1%}")
        bars.append(
            Bar(f"{rows:,} rows on {workers} workers: CPU time off by", abs(off), SMALL_ALLOWED if small else ALLOWED)
        )
    if not small:
        figures["networks"] = _networks(constants)
    return figures, bars


def measure_constants(backbone: Backbone, source: Source) -> Constants:
    """Measure the constants of forecasts, on one worker and the driver.

    Args:
        backbone: The network.
        source: The samples; few are enough.
    """
    with TemporaryDirectory() as folder, open_workers(1) as crew:
        worker_s = _start_worker(crew, backbone)
        driver_began = process_time()
        for _ in crew.run(range(JOBS), _do_nothing):
            pass
        driver_shard_s = (process_time() - driver_began) / JOBS
        idle_s = _workers_cpu_s()
        plan = _begin_extraction(backbone, source, Path(folder))
        for _ in crew.run(range(plan.num_shards), partial(_write, backbone, source, plan, folder)):
            pass
        row_s = (_workers_cpu_s() - idle_s) / len(source)
        ending_s = min(_cpu_s(lambda: compile_manifest(folder)) for _ in range(5))
    return Constants(
        worker_s=worker_s,
        row_s=row_s,
        shard_rows=plan.shard_rows,
        driver_shard_s=driver_shard_s + ending_s / plan.num_shards,
        row_bytes=plan.row_bytes,
        input_bytes=source.read(0, 1).inputs.nbytes,
    )


def _cpu_s(work: Callable[[], object]) -> float:
    began = process_time()
    work()
    return process_time() - began


def _backbone() -> Backbone:
    torch.manual_seed(0)
    stages = [torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.Tanh()) for _ in range(2)]
    return Backbone("two-layers", stages, {1: torch.nn.Linear(WIDTH, 2)}, num_classes=2)


def _shard_mb(backbone: Backbone, source: Source) -> float:
    return SHARD_ROWS * make_plan(backbone, source).row_bytes / 1e6


def _begin_extraction(backbone: Backbone, source: Source, folder: Path) -> Plan:
    with begin_extraction(
        backbone,
        source,
        folder,
        poolings=(DEFAULT_POOLING,),
        views=(Preprocessing(),),
        batch_size=None,
        shard_mb=_shard_mb(backbone, source),
        threads=1,
        dtype=torch.float16,
    ) as plan:
        return plan


def _extract(rows: int, workers: int) -> dict[str, float]:
    """Return the times of an extraction on newly started workers."""
    backbone, source = _backbone(), Numbers(rows)
    with TemporaryDirectory() as folder, open_workers(workers):
        began, driver_began = perf_counter(), process_time()
        extract_on_cluster(
            backbone, source, folder, workers=workers, shard_mb=_shard_mb(backbone, source), threads=1, progress=False
        )
        return {
            "worker CPU s": _workers_cpu_s(),
            "driver CPU s": process_time() - driver_began,
            "seconds": perf_counter() - began,
        }


def _start_worker(crew: Workers, backbone: Backbone) -> float:
    """Return CPU seconds of a worker for its imports and for receiving the network."""
    for _ in crew.run([0], partial(_receive, backbone)):
        pass
    return _workers_cpu_s()


def _receive(backbone: Backbone, job: int) -> None:
    """Receive the network, and do nothing with it."""


def _do_nothing(job: int) -> None:
    """Run an empty job."""


def _write(backbone: Backbone, source: Source, plan: Plan, folder: str, shard: int) -> None:
    extract_shard(backbone, source, plan, shard, folder)


def _workers_cpu_s() -> float:
    """Return CPU seconds of all workers that this process started."""
    return sum(process.cpu_s for process in descendants() if process.command.startswith(("ray::IDLE", "ray::_do")))


def _networks(constants: Constants) -> dict[str, Any]:
    """Return constants and forecasts of real networks; only the time per row is measured for each."""
    figures = {}
    for name, backbone, source, preprocessing, input_bytes in (
        ("ResNet-56, CIFAR-10", resnet(56), cifar10("test"), PREPROCESSING, 3_072),
        ("MiniLM, CLINC150", minilm("clinc150"), intents("clinc150", "test"), minilm("clinc150").preprocessing, 40),
    ):
        plan = make_plan(backbone, source, views=(preprocessing,), shard_mb=64)
        row_s = _row_s(backbone, source, preprocessing)
        own = replace(
            constants, row_s=row_s, shard_rows=plan.shard_rows, row_bytes=plan.row_bytes, input_bytes=input_bytes
        )
        rows = [{"rows": rows, "workers": workers, **asdict(forecast(own, rows, workers))} for rows, workers in TABLE]
        figures[name] = {"constants": asdict(own), "forecasts": rows}
    return figures


def _row_s(backbone: Backbone, source: Source, preprocessing: Preprocessing) -> float:
    """Return CPU seconds per row of extracting a small shard in this process, on one thread."""
    plan = make_plan(backbone, source, views=(preprocessing,), shard_mb=NETWORK_SHARD_MB, threads=1)
    with TemporaryDirectory() as folder:
        Path(folder, "shards").mkdir()
        began = process_time()
        extract_shard(backbone, source, plan, 0, folder)
        return (process_time() - began) / len(plan.rows_of(0))
