"""Loss of accuracy from shuffling a store through a small buffer, against a full shuffle in memory."""

import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean, stdev
from typing import Any
from unittest.mock import patch

import torch

from offramp.features import BatchSource, StoreSource
from offramp.features._batch import MemorySource
from offramp.features._shard import Plan, write_shard
from offramp.features._store import Store, begin_store, compile_manifest
from offramp.methods._joint import fit_classifiers
from offramp_bench.bars import Bar, say
from offramp_bench.paper.tasks import TASKS
from offramp_bench.scale.accuracy import accuracy_of
from offramp_bench.scale.enough_rows import LINEAR
from offramp_bench.tracks.samples import open_splits, pooling_of, prices_of, store_of

__all__ = ["shuffling"]

TASK = "clinc150"
"""10,000 samples of 150 classes; sorted by class, a shard holds eight classes."""

SHARDS = 20
SEEDS = 3
EPOCHS = 3


@dataclass(frozen=True)
class _Rows:
    """A whole store in memory."""

    columns: dict[str, torch.Tensor]
    plan: Plan


def shuffling(*, small: bool = False) -> tuple[dict[str, Any], list[Bar]]:
    """Fit exits on the same rows, shuffled fully and through the buffer of a store, sorted by class and not.

    Args:
        small: Use one seed.

    Returns:
        Accuracies and their losses against the full shuffle, and no bars.
    """
    seeds = range(1 if small else SEEDS)
    all_rows = _read(store_of(TASK, "seen", every_row=True))
    labels = all_rows.columns["labels"]
    random_order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    orders = {"sorted by class": labels.argsort(stable=True), "in random order": random_order}
    full = [_fit_and_measure(_memory_source(all_rows), seed) for seed in seeds]
    say(f"shuffling: full shuffle: {full}")
    buffered: dict[str, Any] = {}
    # Chunks of 16 rows, so that shards and the buffer have about thirty chunks; those of a large store have a hundred.
    small_chunks = patch("offramp.features._loader.CHUNK_BYTES", 0)
    with small_chunks, tempfile.TemporaryDirectory(prefix="offramp-shuffling-") as name:
        for kind, order in orders.items():
            store = _write_store(all_rows, order, Path(name, kind.replace(" ", "-")))
            fits = [_fit_and_measure(_buffered_source(store), seed) for seed in seeds]
            buffered[kind] = {key: _losses([fit[key] for fit in full], [fit[key] for fit in fits]) for key in fits[0]}
            say(f"shuffling: {kind}: {buffered[kind]}")
    about = {"task": TASK, "rows": len(labels), "shards": SHARDS, "epochs": EPOCHS, "seeds": len(seeds)}
    return {**about, "full shuffle": full, "buffered": buffered}, []


def _losses(full: list[float], buffered: list[float]) -> dict[str, Any]:
    """Return the mean loss over seeds, its spread, and the figures of each seed."""
    losses = [before - after for before, after in zip(full, buffered, strict=True)]
    return {"lost": mean(losses), "spread": stdev(losses) if len(losses) > 1 else None, "each": buffered}


def _read(store: Store) -> _Rows:
    shards = [store.shard(index) for index in range(store.plan.num_shards)]
    return _Rows({name: torch.cat([shard[name] for shard in shards]) for name in shards[0]}, store.plan)


def _memory_source(rows: _Rows) -> BatchSource:
    columns, pooling = rows.columns, _pooling()
    return MemorySource(
        columns[f"features.{pooling}"][:, 0].float(),
        {stage: columns[f"logits.{stage}"][:, 0] for stage in rows.plan.own_heads},
        columns["labels"],
        rows.plan.poolings[pooling],
        ids=columns["ids"],
        sizes=columns["sizes"],
    )


def _pooling() -> str:
    return pooling_of(TASKS[TASK], "means")


def _write_store(rows: _Rows, order: torch.Tensor, path: Path) -> Store:
    """Write the rows in some order as a store of `SHARDS` shards."""
    pooling = _pooling()
    shard_rows = -(-rows.plan.num_rows // SHARDS)
    plan = replace(rows.plan, shard_rows=shard_rows, poolings={pooling: rows.plan.poolings[pooling]})
    begin_store(path, plan)
    for shard in range(plan.num_shards):
        span = plan.rows_of(shard)
        shard_order = order[span.start : span.stop]
        write_shard(path, plan, shard, {name: rows.columns[name][shard_order] for name in plan.columns(1)})
    return compile_manifest(path)


def _buffered_source(store: Store) -> BatchSource:
    shard_mb = max(file.stat().st_size for file in store.path.glob("shards/*.safetensors")) / 1e6
    return StoreSource(store, pooling=_pooling(), buffer_mb=0.75 * shard_mb)  # the ratio of 48 MB to 64 MB


def _fit_and_measure(source: BatchSource, seed: int) -> dict[str, float]:
    """Fit linear exits on the source for few epochs, so that the order of samples matters, and measure them."""
    prices, splits = prices_of(TASK, "means", 1), open_splits(TASKS[TASK], "means", 0)
    settings = replace(LINEAR, seed=seed, warmup_epochs=EPOCHS, epochs=0)
    fitted = fit_classifiers(source, splits.tune, prices, settings)
    accuracy = accuracy_of(fitted.exits, splits.tune, splits.test, prices)
    return {"at_half": accuracy.at_half, "area": accuracy.area}
