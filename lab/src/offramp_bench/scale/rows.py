"""Time and memory of a fit as rows grow: synthetic features, from a store on disk to a frontier.

    python -m offramp_bench.scale.rows FOLDER FIGURES

is the fit of one store by itself, in a process of its own.
"""

import json
import shutil
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from offramp.backbone._backbone import Backbone
from offramp.backbone._hidden import Hidden
from offramp.features import StoreSource
from offramp.features._shard import Plan, write_shard
from offramp.features._store import Store, begin_store, compile_manifest
from offramp.methods._joint import EpochRecord
from offramp.methods._settings import DEFAULT
from offramp.model import fit_features
from offramp.preprocessing import Preprocessing
from offramp_bench.bars import Bar, say
from offramp_bench.store import memory_of

__all__ = ["rows"]

STAGES, WIDTH, CLASSES = 4, 16, 4
"""A row of 164 bytes: 10^7 of them take 1.6 GB."""

SHARD_ROWS = 25_000
BUFFER_MB = 8
"""Shards of 4 MB and a buffer of half the smallest store: else that store would bound the memory, and not these."""

HELD_OUT = (1_000, 1_000)
"""Rows to tune and to calibrate with, however many there are to fit on."""

FIRST_ROWS = 5_000
"""Rows of a fit that is not counted."""

SETTINGS = replace(DEFAULT, warmup_epochs=1, epochs=1)


class _Vectors(Backbone):
    """Stages whose features are made up; it is there to be counted."""

    def __init__(self) -> None:
        stages = [nn.Linear(WIDTH, WIDTH) for _ in range(STAGES)]
        super().__init__("vectors", stages, {STAGES - 1: nn.Linear(WIDTH, CLASSES)}, CLASSES)

    def representation(self, hidden: Hidden, stage: int) -> Tensor:
        assert isinstance(hidden, Tensor)
        return hidden


def rows(*, small: bool = False) -> tuple[dict[str, Any], list[Bar]]:
    """Fit stores of more and more rows, each in a process of its own.

    Args:
        small: Two sizes, and wider bars: a fit of a second or two says little.

    Returns:
        Processor time a row and peak memory of each, and how far they are from those of the fewest rows.
    """
    counts = (10_000, 100_000) if small else (100_000, 1_000_000, 10_000_000)
    found: dict[int, dict[str, float]] = {}
    with tempfile.TemporaryDirectory(prefix="offramp-rows-") as name:
        for count in counts:
            store, figures = Path(name, "store"), Path(name, "figures.json")
            write_store(store, count)
            command = [sys.executable, "-m", "offramp_bench.scale.rows", str(store), str(figures)]
            peak_mb = memory_of(command)
            found[count] = {**json.loads(figures.read_text()), "peak_mb": peak_mb}
            size_mb = sum(file.stat().st_size for file in store.rglob("*") if file.is_file()) / 1e6
            found[count] |= {"store_mb": size_mb, "us_a_row": 1e6 * found[count]["fit_cpu_s"] / count}
            say(f"rows: {count}: {found[count]['us_a_row']:.1f} us a row, {peak_mb:.0f} MB at most, {found[count]}")
            shutil.rmtree(store)
    first = found[counts[0]]
    time_off = max(abs(one["us_a_row"] / first["us_a_row"] - 1) for one in found.values())
    memory_off = max(abs(one["peak_mb"] / first["peak_mb"] - 1) for one in found.values())
    bars = [
        Bar("change of processor time a row, against the fewest rows", time_off, 0.6 if small else 0.2),
        Bar("change of peak memory, against the fewest rows", memory_off, 0.3 if small else 0.1),
    ]
    return {"rows": found, "epochs": SETTINGS.warmup_epochs + SETTINGS.epochs}, bars


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
    """Fit the default on all rows but those held out, for one epoch of classifiers and one of gates.

    Args:
        path: Folder of the store.

    Returns:
        Processor seconds from the opened store to the last epoch's end, and those of what follows on the rows held out.
    """
    torch.set_num_threads(1)
    epochs: list[EpochRecord] = []
    ended_s: list[float] = []

    def note(record: EpochRecord) -> None:
        epochs.append(record)
        ended_s.append(time.process_time())

    began_s = time.process_time()
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
        "fit_cpu_s": ended_s[-1] - began_s,
        "after_cpu_s": time.process_time() - ended_s[-1],
        "loss": epochs[0].loss,
    }


def main() -> None:
    # A first fit imports what torch imports on first use, 1.5 s of processor time: a sixth of the fit of 10^5 rows.
    with tempfile.TemporaryDirectory() as name:
        write_store(Path(name), FIRST_ROWS)
        fit_store(Path(name))
    Path(sys.argv[2]).write_text(json.dumps(fit_store(Path(sys.argv[1]))))


if __name__ == "__main__":
    main()
