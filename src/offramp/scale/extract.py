"""One pass of the backbone over a source by many workers, into one store."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import perf_counter

import torch

from offramp.backbone import DEFAULT_POOLING, Backbone, Preprocessing
from offramp.features import Plan, Source, Store, compile_manifest, extract_shard
from offramp.features.extract import begin_extraction
from offramp.features.shard import is_finished, shard_path
from offramp.features.store import read_plan
from offramp.files import check_local
from offramp.progress import progress_bar
from offramp.scale.cluster import check_counts, check_portable, check_shared, cluster

__all__ = ["extract_on_cluster"]


def extract_on_cluster(
    backbone: Backbone,
    source: Source,
    path: str | Path,
    *,
    workers: int | None = None,
    address: str | None = None,
    poolings: Sequence[str] = (DEFAULT_POOLING,),
    views: Sequence[Preprocessing] = (Preprocessing(),),
    batch_size: int | None = None,
    shard_mb: float = 64,
    threads: int | None = None,
    dtype: torch.dtype = torch.float16,
    progress: bool = True,
) -> Store:
    """Run a backbone once over a source with many workers, and store what exits need.

    The store is the one that `offramp.features.extract` writes with as many threads, to the byte, where workers have
    processors of the same kind. Lost workers and machines cost the shards they were at; after Ctrl-C, an error or a
    lost driver the same call goes on where it stopped, and either function goes on with what the other began.

    Args:
        backbone: The frozen network. It is sent to the workers, so it must survive pickling.
        source: Labelled raw samples, sent to the workers too: it should hold paths and open them when first read.
        path: Folder of the store, the same on every machine.
        workers: How many to use; see `offramp.scale.cluster`.
        address: Of a Ray cluster; without it workers are started on this machine.
        poolings: Registered names; the features of each are stored.
        views: How each view of a sample is prepared.
        batch_size: Rows of a forward pass; those of the extraction that is there, or 250, if left out.
        shard_mb: Megabytes of a shard, about. A shard is what a worker does at a time, and what is lost with it.
        threads: Threads of each worker; those of the extraction that is there, or 1, if left out.
        dtype: Precision of the features: float16, bfloat16 or float32.
        progress: Show a bar on a terminal; elsewhere, a line every 30 s.

    Returns:
        The finished store.

    Example:
        >>> import numpy as np
        >>> from tempfile import TemporaryDirectory
        >>> from offramp.features import ArraySource
        >>> from offramp.backbone import CifarResNet, image_preprocessing
        >>> images = np.zeros((5, 32, 32, 3), np.uint8)
        >>> source = ArraySource(images, np.arange(5), name="black")
        >>> views = [image_preprocessing(mean=(0.5, 0.5, 0.5), std=(0.2, 0.2, 0.2))]
        >>> with TemporaryDirectory() as folder:
        ...     store = extract_on_cluster(CifarResNet(8), source, folder, views=views, workers=1)
        ...     print(store.num_rows, store.widths("rich"))
        5 (512, 1024, 2048)
    """
    check_local(path)
    check_counts(workers, 1 if threads is None else threads)
    check_portable(backbone=backbone, source=source)
    path = Path(path).absolute()
    if threads is None:
        threads = read_plan(path).threads if (path / "plan.json").exists() else 1
    written, core_s = 0, 0.0
    with (
        begin_extraction(
            backbone,
            source,
            path,
            poolings=poolings,
            views=views,
            batch_size=batch_size,
            shard_mb=shard_mb,
            threads=threads,
            dtype=dtype,
        ) as plan,
        cluster(workers, address, threads=threads) as crew,
        progress_bar(f"extracting {source.name}", plan.num_rows, unit="rows", show=progress) as advance,
    ):
        # Of all shards: to see whether one is finished it is read and hashed, which is work for many as well.
        for shard, done in crew.run(range(plan.num_shards), partial(_finish, backbone, source, plan, path)):
            written += done.written_bytes
            core_s += done.seconds * threads
            note = f"{crew.count} workers, {written / 1e6:,.0f} MB, {core_s / 3600:.2f} core-hours"
            advance(len(plan.rows_of(shard)), note)
        return compile_manifest(path)


@dataclass(frozen=True)
class _Done:
    """What a worker did for a shard."""

    written_bytes: int
    seconds: float


def _finish(backbone: Backbone, source: Source, plan: Plan, path: Path, shard: int) -> _Done:
    """Extract a shard, unless it is there and whole."""
    began = perf_counter()
    check_shared(path / "plan.json")
    if is_finished(path, plan, shard):
        return _Done(0, perf_counter() - began)
    extract_shard(backbone, source, plan, shard, path)
    return _Done(shard_path(path, shard).stat().st_size, perf_counter() - began)
