"""Time and memory as rows grow: fit a store, find ids that two splits share, extract a table.

    python -m offramp_bench.scale.rows WORK PATH FIGURES

does one of these in a process of its own: `fit` or `overlap` of a store, `extract` of a table.
"""

import json
import pickle
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from offramp.backbone._backbone import Backbone
from offramp.backbone._hidden import Hidden
from offramp.data import open_data
from offramp.features import StoreSource
from offramp.features._batch import Keys
from offramp.features._extraction import make_plan
from offramp.features._shard import Plan, write_shard
from offramp.features._source import take_part
from offramp.features._splits import remove_overlap
from offramp.features._store import Store, begin_store, compile_manifest
from offramp.methods._joint import EpochRecord
from offramp.methods._settings import DEFAULT
from offramp.model import fit_features
from offramp.preprocessing import Preprocessing
from offramp.scale import extract_on_cluster
from offramp.scale._workers import open_workers
from offramp_bench.bars import Bar, say
from offramp_bench.scale.processes import descendants

__all__ = ["rows"]

STAGES, WIDTH, CLASSES = 4, 16, 4
"""A row of 164 bytes: 10^7 of them take 1.6 GB."""

SHARD_ROWS = 25_000
BUFFER_MB = 8
"""Shards of 4 MB and a buffer of half the smallest store, so that they bound the memory, and not the store."""

HELD_OUT = (1_000, 1_000)
"""Rows of the tune and the calibrate split, at every number of rows to fit on."""

FIRST_ROWS = 5_000
"""Rows of a first fit that is not measured."""

SAMPLING_S = 0.05
"""Interval between two measurements of the memory of a process and its workers."""

SETTINGS = replace(DEFAULT, warmup_epochs=1, epochs=1)


class _Vectors(Backbone):
    """A backbone for synthetic features; only its costs are used."""

    def __init__(self) -> None:
        stages = [nn.Linear(WIDTH, WIDTH) for _ in range(STAGES)]
        super().__init__("vectors", stages, {STAGES - 1: nn.Linear(WIDTH, CLASSES)}, CLASSES)

    def representation(self, hidden: Hidden, stage: int) -> Tensor:
        assert isinstance(hidden, Tensor)
        return hidden


def rows(*, small: bool = False) -> tuple[dict[str, Any], list[Bar]]:
    """Fit, compare and extract more and more rows, each in a process of its own.

    Args:
        small: Use two sizes and wider bars, as times of a second or two vary much.

    Returns:
        Processor time per row and peak memory of each, and bars for their differences from those of the fewest rows.
    """
    counts = (10_000, 100_000) if small else (100_000, 1_000_000, 10_000_000)
    figures: dict[str, dict[int, dict[str, float]]] = {"fit": {}, "overlap": {}, "extract": {}}
    with tempfile.TemporaryDirectory(prefix="offramp-rows-") as folder:
        for count in counts:
            store, table = Path(folder, "store"), Path(folder, "table.csv")
            write_store(store, count)
            figures["fit"][count] = _measure("fit", store, count)
            figures["overlap"][count] = _measure("overlap", store, count)
            shutil.rmtree(store)
            write_table(table, count)
            figures["extract"][count] = _measure("extract", table, count)
            shutil.rmtree(table.with_suffix(".store"))
    bars = []
    for work, by_count in figures.items():
        first = by_count[counts[0]]
        for name in first:
            if name.startswith("us_a_row"):
                what, at_most = f"{work}: change of processor time a row", 0.6 if small else 0.2
            elif name.startswith("peak_mb"):
                what, at_most = f"{work}: change of peak memory{name.removeprefix('peak_mb')}", 0.3 if small else 0.1
            else:
                continue
            off = max(abs(row[name] / first[name] - 1) for row in by_count.values())
            bars.append(Bar(f"{what}, against the fewest rows", off, at_most))
    return {**figures, "epochs": SETTINGS.warmup_epochs + SETTINGS.epochs}, bars


def _measure(work: str, path: Path, count: int) -> dict[str, float]:
    """Run one kind of work; return its figures, and the peak memory of its process and its workers."""
    file = path.with_name("figures.json")
    peaks = peaks_of([sys.executable, "-m", "offramp_bench.scale.rows", work, str(path), str(file)])
    figures: dict[str, float] = {**json.loads(file.read_text()), **peaks}
    figures["us_a_row"] = 1e6 * figures["cpu_s"] / count
    say(f"rows: {work} {count}: {figures}")
    return figures


def peaks_of(command: Sequence[str]) -> dict[str, float]:
    """Return the peak anonymous memory in MB of a command, and of the largest of its workers if it has any.

    The page cache that they map is not included. A peak shorter than `SAMPLING_S` may be missed. Ray's own processes,
    which hold no rows, do not count.
    """
    process = subprocess.Popen(command, stdout=sys.stderr)
    peaks = {"peak_mb": 0.0}
    while process.poll() is None:
        for member in descendants():
            name = "peak_mb" if member.number == process.pid else "peak_mb of a worker"
            if member.number == process.pid or member.command.startswith("ray::"):
                try:
                    lines = Path(f"/proc/{member.number}/status").read_text().splitlines()
                except OSError:  # it ended just now
                    continue
                anonymous_kb = max((int(line.split()[1]) for line in lines if line.startswith("RssAnon:")), default=0)
                peaks[name] = max(peaks.get(name, 0.0), anonymous_kb / 1e3)
        time.sleep(SAMPLING_S)
    if process.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} ended with {process.returncode}")
    return peaks


def write_store(path: Path, count: int) -> None:
    """Write features that can be learned from: later stages tell the classes apart more clearly.

    Args:
        path: Folder of the store.
        count: Rows.
    """
    plan = Plan(
        backbone=_Vectors().fingerprint(),
        num_classes=CLASSES,
        own_heads=(STAGES - 1,),
        poolings={"mean": (WIDTH,) * STAGES},
        views=(Preprocessing(),),
        source=f"synthetic-{count}",
        num_rows=count,
        shard_rows=min(SHARD_ROWS, count),
        batch_size=1_000,
        threads=1,
        dtype="float16",
    )
    begin_store(path, plan)
    centres = np.random.default_rng(0).normal(size=(CLASSES, STAGES * WIDTH)).astype(np.float32)
    clearness = np.repeat(np.linspace(0.1, 0.4, STAGES, dtype=np.float32), WIDTH)
    for shard in range(plan.num_shards):
        generator, span = np.random.default_rng([1, shard]), plan.rows_of(shard)
        labels = generator.integers(0, CLASSES, len(span))
        features = generator.standard_normal((len(span), STAGES * WIDTH), np.float32) + clearness * centres[labels]
        logits = 0.2 * features[:, -WIDTH:] @ centres[:, -WIDTH:].T
        columns = {
            "features.mean": torch.from_numpy(features).half()[:, None],
            f"logits.{STAGES - 1}": torch.from_numpy(logits)[:, None],
            "labels": torch.from_numpy(labels),
            "ids": torch.arange(span.start, span.stop),
            "sizes": torch.ones(len(span)),
        }
        write_shard(path, plan, shard, columns)
    compile_manifest(path)


def fit_store(path: Path) -> dict[str, float]:
    """Fit the default on all rows except those held out, for one epoch of classifiers and one of gates.

    Args:
        path: Folder of the store.

    Returns:
        Processor seconds from opening the store to the end of the last epoch, and of the steps after it.
    """
    torch.set_num_threads(1)
    epochs: list[EpochRecord] = []
    epoch_ends_s: list[float] = []

    def note(record: EpochRecord) -> None:
        epochs.append(record)
        epoch_ends_s.append(time.process_time())

    start_s = time.process_time()
    store = Store.open(path)
    tune, calibrate = store.hold_out(HELD_OUT)
    held_out = [StoreSource(store, pooling="mean", rows=part, buffer_mb=BUFFER_MB) for part in (tune, calibrate)]
    without = np.sort(np.concatenate([tune, calibrate]))
    fit = StoreSource(store, pooling="mean", without=without, buffer_mb=BUFFER_MB)
    fit_features(
        _Vectors(),
        fit,
        *held_out,
        example=torch.zeros(1, WIDTH),
        pooling="mean",
        settings=SETTINGS,
        checkpoint=path / "fit.safetensors",
        on_epoch=note,
    )
    return {
        "cpu_s": epoch_ends_s[-1] - start_s,
        "after_cpu_s": time.process_time() - epoch_ends_s[-1],
        "loss": epochs[0].loss,
    }


def write_table(path: Path, count: int) -> None:
    """Write a CSV file of two numbers and a label per row.

    Args:
        path: The file.
        count: Rows.
    """
    with open(path, "w") as file:
        file.write("a,b,label\n")
        for start in range(0, count, SHARD_ROWS):
            span = range(start, min(start + SHARD_ROWS, count))
            file.write("".join(f"{row},{row % 977},{row % CLASSES}\n" for row in span))


class _Others:
    """A source with as many ids as a store, all different from the store's."""

    def __init__(self, source: StoreSource) -> None:
        self._source = source
        self.num_samples = source.num_samples

    def keys(self) -> Iterator[Keys]:
        for keys in self._source.keys():
            yield Keys(keys.ids + 2**40, keys.sizes)


def compare_store(path: Path) -> dict[str, float]:
    """Measure the search for ids that a split shares with an earlier one of the same size.

    Args:
        path: Folder of a store.
    """
    source = StoreSource(Store.open(path), pooling="mean")
    for _ in source.keys():  # the first read hashes the shards, and this time is not measured
        pass
    start_s = time.process_time()
    others: Any = _Others(source)
    assert remove_overlap(others, {"fit": source}, name="test") is others
    return {"cpu_s": time.process_time() - start_s}


def extract_table(path: Path) -> dict[str, float]:
    """Open a table and extract it on two workers.

    Args:
        path: The file.
    """
    torch.set_num_threads(1)
    torch.manual_seed(0)
    stages = [nn.Sequential(nn.Linear(2, WIDTH), nn.Tanh()), nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh())]
    backbone = Backbone("two-layers", stages, {1: nn.Linear(WIDTH, CLASSES)}, num_classes=CLASSES)
    with open_workers(2) as crew:
        # Two jobs at once, so that both workers finish their imports: the time per row does not include them.
        for _ in crew.run(range(2), partial(_warm_up, backbone)):
            pass
        workers_start_s, start_s = _workers_cpu_s(), time.process_time()
        source = open_data(path)
        opening_s = time.process_time() - start_s
        row_bytes = make_plan(backbone, source, poolings=("mean",)).row_bytes
        extract_on_cluster(
            backbone,
            source,
            path.with_suffix(".store"),
            poolings=("mean",),
            batch_size=1_000,
            shard_mb=SHARD_ROWS * row_bytes / 1e6,
            threads=1,
            progress=False,
        )
        workers_s = _workers_cpu_s() - workers_start_s
    rows = len(source)
    return {
        "cpu_s": time.process_time() - start_s + workers_s,
        "opened_cpu_s": opening_s,
        "workers_cpu_s": workers_s,
        "pickled_part_bytes": len(pickle.dumps(take_part(source, rows // 2, rows // 2 + 1_000))),
    }


def _warm_up(backbone: Backbone, job: int) -> None:
    with torch.inference_mode():
        backbone(torch.zeros(1_000, 2))
    time.sleep(2)


def _workers_cpu_s() -> float:
    return sum(process.cpu_s for process in descendants() if process.command.startswith("ray::"))


def main() -> None:
    work, path, figures = sys.argv[1:]
    if work == "fit":
        # A first fit imports what torch imports on first use, 1.5 s of processor time: a sixth of that of 10^5 rows.
        with tempfile.TemporaryDirectory() as name:
            write_store(Path(name), FIRST_ROWS)
            fit_store(Path(name))
    works = {"fit": fit_store, "overlap": compare_store, "extract": extract_table}
    Path(figures).write_text(json.dumps(works[work](Path(path))))


if __name__ == "__main__":
    main()
