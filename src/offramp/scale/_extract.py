"""Feature extraction by many workers into one store."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import perf_counter

import torch

from offramp._files import Place, as_place
from offramp._progress import progress_bar
from offramp.backbone._backbone import Backbone
from offramp.errors import InputError
from offramp.features import Source
from offramp.features._extraction import begin_extraction, extract_shard
from offramp.features._shard import Plan, is_finished
from offramp.features._source import take_part
from offramp.features._store import Store, compile_manifest, read_plan
from offramp.pooling._rich import DEFAULT_POOLING
from offramp.preprocessing import Preprocessing
from offramp.scale._workers import check_counts, check_portable, check_shared, open_workers

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
    gpus: float = 0,
    dtype: torch.dtype = torch.float16,
    progress: bool = True,
) -> Store:
    """Run a backbone once over a source with many workers, and store the features of exits.

    The store is identical to that of `offramp.features.extract` with as many threads, if all workers have the same kind
    of processor. A lost worker or machine costs the shards it was working on. After Ctrl-C, an error or a lost driver,
    the same call continues where it stopped, also in a store that `offramp.features.extract` began.

    Args:
        backbone: The frozen network. It is sent to the workers, so it must survive pickling.
        source: Labelled raw samples. A worker is sent what a shard needs of it, if it has a method `part` as those of
            `offramp.data` do, else the whole source, which should then hold paths and open them when first read.
        path: Folder of the store, the same on every machine. Or an address that fsspec can write to from each of them,
            as `s3://bucket/folder`.
        workers: Number of workers; see `offramp.scale.open_workers`.
        address: Address of a Ray cluster; by default workers are started on this machine.
        poolings: Registered names of the poolings whose features are stored.
        views: The preprocessing of each view of a sample.
        batch_size: Rows per forward pass; by default as in the store, or 250 in a new one.
        shard_mb: Approximate megabytes per shard. A worker does one shard at a time.
        threads: Number of threads per worker; by default as in the store, or 1 in a new one.
        gpus: Number of GPUs per worker, or a share of one; the network runs there.
        dtype: Precision of the features: float16, bfloat16 or float32.
        progress: Show a bar on a terminal; elsewhere, a line every 30 s.

    Returns:
        The finished store.

    Example:
        >>> import numpy as np
        >>> from tempfile import TemporaryDirectory
        >>> from offramp.features import ArraySource
        >>> from offramp.backbone import CifarResNet
        >>> from offramp.preprocessing._images import image_preprocessing
        >>> images = np.zeros((5, 32, 32, 3), np.uint8)
        >>> source = ArraySource(images, np.arange(5), name="black")
        >>> views = [image_preprocessing(mean=(0.5, 0.5, 0.5), std=(0.2, 0.2, 0.2))]
        >>> with TemporaryDirectory() as folder:
        ...     store = extract_on_cluster(CifarResNet(8), source, folder, views=views, workers=1)
        ...     print(store.num_rows, store.widths("rich"))
        5 (512, 1024, 512)
    """
    place = as_place(path)
    check_counts(workers, 1 if threads is None else threads, gpus=gpus)
    check_portable(backbone=backbone, source=take_part(source, 0, min(1, len(source))))
    place = place.absolute() if isinstance(place, Path) else place
    if threads is None:
        threads = read_plan(place).threads if (place / "plan.json").exists() else 1
    written, core_s = 0, 0.0
    with (
        begin_extraction(
            backbone,
            source,
            place,
            poolings=poolings,
            views=views,
            batch_size=batch_size,
            shard_mb=shard_mb,
            threads=threads,
            dtype=dtype,
        ) as plan,
        open_workers(workers, address, threads=threads, gpus=gpus) as crew,
        progress_bar(f"extracting {source.name}", plan.num_rows, unit="rows", show=progress) as advance,
    ):
        divisible = hasattr(source, "part")
        finish = partial(_finish_shard, backbone, None if divisible else source, plan, place, "cuda" if gpus else None)
        # All shards, finished ones too: workers check them, as that reads and hashes the files.
        spans = map(plan.rows_of, range(plan.num_shards))
        jobs = (
            _Job(shard, take_part(source, rows.start, rows.stop) if divisible else None)
            for shard, rows in enumerate(spans)
        )
        for job, (shard_bytes, seconds) in crew.run(jobs, finish):
            written += shard_bytes
            core_s += seconds * threads
            note = f"{crew.count} workers, {written / 1e6:,.0f} MB, {core_s / 3600:.2f} core-hours"
            advance(len(plan.rows_of(job.shard)), note)
        return compile_manifest(place)


@dataclass(frozen=True)
class _Job:
    """A shard to extract."""

    shard: int
    part: Source | None
    """The source with what reading the shard's rows needs; None if the worker has all of it."""

    def __str__(self) -> str:
        return str(self.shard)


def _finish_shard(
    backbone: Backbone, source: Source | None, plan: Plan, path: Place, device: str | None, job: _Job
) -> tuple[int, float]:
    """Extract a shard, unless it is finished; return the bytes written and the seconds it took."""
    start = perf_counter()
    check_shared(path / "plan.json")
    if is_finished(path, plan, job.shard):
        return 0, perf_counter() - start
    if device is not None:
        if not torch.cuda.is_available():
            raise InputError(
                "gpus",
                expected="a worker whose torch can use its GPU",
                got=f"torch {torch.__version__} without CUDA",
                hint="install a build of torch with CUDA on each machine, or leave gpus out",
            )
        backbone.to(device)
    source = source if job.part is None else job.part
    assert source is not None
    return extract_shard(backbone, source, plan, job.shard, path), perf_counter() - start
