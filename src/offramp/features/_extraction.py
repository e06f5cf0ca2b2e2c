"""One pass of the backbone over a source, written into a store."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from offramp._files import Place, as_place
from offramp._progress import progress_bar
from offramp.backbone._backbone import Backbone
from offramp.backbone._hidden import Hidden
from offramp.errors import InputError
from offramp.features._ids import stable_hash
from offramp.features._shard import DTYPES, Plan, write_shard
from offramp.features._source import Rows, Source
from offramp.features._store import Store, begin_store, compile_manifest, hold_store, pending_shards, read_plan
from offramp.pooling import POOLINGS
from offramp.pooling._rich import DEFAULT_POOLING
from offramp.preprocessing import Preprocessing

__all__ = ["begin_extraction", "extract", "extract_shard", "make_plan"]

BATCH_SIZE = 250
"""Default number of rows of a forward pass."""


def extract(
    backbone: Backbone,
    source: Source,
    path: str | Path,
    *,
    poolings: Sequence[str] = (DEFAULT_POOLING,),
    views: Sequence[Preprocessing] = (Preprocessing(),),
    batch_size: int | None = None,
    shard_mb: float = 64,
    threads: int | None = None,
    dtype: torch.dtype = torch.float16,
    progress: bool = True,
) -> Store:
    """Run a backbone once over a source and store the features that exits need.

    If the call is interrupted, the same call continues where it stopped and ends with the same bytes. Memory does not
    grow with the source: one shard and one batch are held.

    Args:
        backbone: The frozen network.
        source: Labelled raw samples.
        path: Folder of the store; created if needed. Or an address that fsspec can write to, as `s3://bucket/folder`.
        poolings: Registered names; the features of each are stored.
        views: Preprocessing of each view of a sample. The first is without augmentation; others may be random.
        batch_size: Rows of a forward pass; by default, as in the extraction that is continued, or 250.
        shard_mb: Approximate size of a shard in megabytes.
        threads: Threads of torch; by default, as in the extraction that is continued, or the current number.
        dtype: Precision of the features: float16, bfloat16 or float32.
        progress: Show a bar on a terminal; elsewhere, a line every 30 s.

    Returns:
        The finished store.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> from offramp.features import ArraySource
        >>> from offramp.backbone import CifarResNet
        >>> from offramp.preprocessing._images import image_preprocessing
        >>> images = np.zeros((5, 32, 32, 3), np.uint8)
        >>> source = ArraySource(images, np.arange(5), name="black")
        >>> views = [image_preprocessing(mean=(0.5, 0.5, 0.5), std=(0.2, 0.2, 0.2))]
        >>> with TemporaryDirectory() as folder:
        ...     store = extract(CifarResNet(8), source, folder, views=views)
        ...     print(store.num_rows, store.widths("rich"), store.own_heads)
        5 (512, 1024, 512) (2,)
    """
    place = as_place(path)
    with begin_extraction(
        backbone,
        source,
        place,
        poolings=poolings,
        views=views,
        batch_size=batch_size,
        shard_mb=shard_mb,
        threads=threads,
        dtype=dtype,
    ) as plan:
        pending = pending_shards(place, plan)
        done = plan.num_rows - sum(len(plan.rows_of(shard)) for shard in pending)
        with progress_bar(f"extracting {source.name}", plan.num_rows, done=done, unit="rows", show=progress) as advance:
            for shard in pending:
                extract_shard(backbone, source, plan, shard, place, advance=advance)
        return compile_manifest(place)


@contextmanager
def begin_extraction(
    backbone: Backbone,
    source: Source,
    path: Place,
    *,
    poolings: Sequence[str],
    views: Sequence[Preprocessing],
    batch_size: int | None,
    shard_mb: float,
    threads: int | None,
    dtype: torch.dtype,
) -> Iterator[Plan]:
    """Make the plan of an extraction, begin its store, and lock it against other writers; arguments as in `extract`."""
    earlier = read_plan(path) if (path / "plan.json").exists() else None
    if threads is None:
        threads = torch.get_num_threads() if earlier is None else earlier.threads
    if batch_size is None:
        batch_size = BATCH_SIZE if earlier is None else earlier.batch_size
    plan = make_plan(
        backbone,
        source,
        poolings=poolings,
        views=views,
        batch_size=batch_size,
        shard_mb=shard_mb,
        threads=threads,
        dtype=dtype,
    )
    with hold_store(path):
        begin_store(path, plan)
        yield plan


def make_plan(
    backbone: Backbone,
    source: Source,
    *,
    poolings: Sequence[str] = (DEFAULT_POOLING,),
    views: Sequence[Preprocessing] = (Preprocessing(),),
    batch_size: int = BATCH_SIZE,
    shard_mb: float = 64,
    threads: int = 1,
    dtype: torch.dtype = torch.float16,
) -> Plan:
    """Make the plan of an extraction; arguments as in `extract`. The first row is run to learn the widths."""
    precision = str(dtype).removeprefix("torch.")
    if len(source) == 0:
        raise InputError(f"source '{source.name}' is empty", hint="give at least one row")
    if precision not in DTYPES:
        raise InputError("dtype", expected=", ".join(DTYPES), got=precision)
    if not poolings or len(set(poolings)) != len(poolings):
        raise InputError(expected="at least one pooling, each once", got=tuple(poolings))
    if not views:
        raise InputError(expected="at least one view", got="none", hint="pass views=[preprocessing]")
    for view in views:
        if not isinstance(view, Preprocessing):
            raise InputError(
                expected="views that are Preprocessing",
                got=view,
                hint="give preprocessing steps, as in docs/reference/store.md",
            )
    for name, value in (("batch_size", batch_size), ("threads", threads), ("shard_mb", shard_mb)):
        if value <= 0:
            raise InputError(name, expected="a positive number", got=value)
    widths: dict[str, list[int]] = {pooling: [] for pooling in poolings}
    with torch.inference_mode():
        inputs = backbone.prepare(views[0](source.read(0, 1).inputs))
        for _, features, _ in _run_stages(backbone, inputs, poolings):
            for pooling, pooled in features.items():
                widths[pooling].append(pooled.shape[1])
    plan = Plan(
        backbone=backbone.fingerprint(),
        num_classes=backbone.num_classes,
        own_heads=backbone.own_heads,
        poolings={pooling: tuple(numbers) for pooling, numbers in widths.items()},
        views=tuple(views),
        source=source.name,
        num_rows=len(source),
        shard_rows=1,
        batch_size=batch_size,
        threads=threads,
        dtype=precision,
    )
    shard_rows = max(1, int(shard_mb * 1e6) // plan.row_bytes)
    # Whole batches if a shard has room for one: a small batch at the end of each shard would waste time.
    shard_rows -= shard_rows % batch_size if shard_rows > batch_size else 0
    return replace(plan, shard_rows=shard_rows)


def extract_shard(
    backbone: Backbone,
    source: Source,
    plan: Plan,
    shard: int,
    path: str | Place,
    *,
    advance: Callable[[int], object] = lambda _rows: None,
) -> int:
    """Extract one shard: the unit of work of one process or many.

    Any number of processes may extract different shards of a store that `begin_store` made; call `compile_manifest`
    when all are done. Check once beforehand that `backbone` is the backbone of the plan; this function does not.

    Args:
        backbone: The backbone of the plan.
        source: The source of the plan.
        plan: The plan of the store.
        shard: Index of the shard.
        path: Folder or address of the store.
        advance: Called with the number of rows after each batch.

    Returns:
        The bytes of the shard.
    """
    rows = plan.rows_of(shard)
    backbone.eval()  # the model it wraps may be in training mode again
    with torch.inference_mode(), _set_threads(plan.threads):
        columns = {name: column.allocate() for name, column in plan.columns(len(rows)).items()}
        for start in rows[:: plan.batch_size]:
            stop = min(start + plan.batch_size, rows.stop)
            place = slice(start - rows.start, stop - rows.start)
            part = {name: column[place] for name, column in columns.items()}
            _extract_batch(backbone, source, plan, start, stop, part)
            advance(stop - start)
    return write_shard(as_place(path), plan, shard, columns).bytes


def _extract_batch(
    backbone: Backbone, source: Source, plan: Plan, start: int, stop: int, columns: Mapping[str, Tensor]
) -> None:
    """Run rows `start` to `stop - 1` and write the outputs into their part of the columns of a shard."""
    rows = _check_rows(source.read(start, stop), start, stop, plan.num_classes)
    columns["labels"].copy_(torch.from_numpy(rows.labels))
    columns["ids"].copy_(torch.from_numpy(rows.ids))
    for view, prepare in enumerate(plan.views):
        # The seed depends on view and row alone, so that any process may extract any shard in any order.
        inputs = backbone.prepare(prepare(rows.inputs, seed=stable_hash(f"{view}/{start}")))
        if backbone.batch_size(inputs, 0) != stop - start:
            raise InputError(
                f"view {view} of rows {start} to {stop - 1}",
                expected=f"{stop - start} samples",
                got=str(backbone.batch_size(inputs, 0)),
                hint="use preprocessing steps that return one sample per sample",
            )
        if view == 0:
            columns["sizes"].copy_(backbone.sizes(inputs))
        ends = dict.fromkeys(plan.poolings, 0)
        for stage, features, logits in _run_stages(backbone, inputs, tuple(plan.poolings)):
            place = f"stage {stage}, view {view}"
            for pooling, pooled in features.items():
                begin, ends[pooling] = ends[pooling], ends[pooling] + plan.poolings[pooling][stage]
                column = columns[f"features.{pooling}"][:, view, begin : ends[pooling]]
                _write(pooled, column, f"'{pooling}' features after {place}", start)
            if logits is not None:
                _write(logits, columns[f"logits.{stage}"][:, view], f"the network's own logits after {place}", start)


def _run_stages(
    backbone: Backbone, inputs: Hidden, poolings: Sequence[str]
) -> Iterator[tuple[int, dict[str, Tensor], Tensor | None]]:
    """Yield each stage, its `N x D` features by pooling, and its `N x K` logits if the network has a head there."""
    hidden = inputs
    for stage, module in enumerate(backbone.stages):
        with backbone.explain_errors(inputs):
            hidden = module(hidden)
            representation = backbone.representation(hidden, stage)
            features = {pooling: POOLINGS.get(pooling)(representation) for pooling in poolings}
            logits = backbone.own_logits(hidden, stage) if stage in backbone.own_heads else None
        yield stage, features, logits


def _write(values: Tensor, column: Tensor, name: str, first_row: int) -> None:
    """Copy `n x D` values into a column of another precision; refuse values that it cannot hold."""
    if values.shape != column.shape:
        raise InputError(
            f"{name} from row {first_row} on",
            expected=f"shape {tuple(column.shape)}, with the width of the first row",
            got=f"{tuple(values.shape)}",
            hint="make the width the same for all samples",
        )
    column.copy_(values)
    # Any NaN or infinity shows in the extremes, and they are twenty times as fast as looking at every number.
    if values.numel() == 0 or torch.stack(torch.aminmax(values)).to(column.dtype).isfinite().all():
        return
    bad = ~torch.isfinite(column).all(1)
    row = first_row + int(bad.nonzero()[0])
    if not torch.isfinite(values[bad.to(values.device)]).all():
        raise InputError(
            f"{name} of row {row} are not finite (NaN or infinity)", hint="check this sample and its preprocessing"
        )
    largest = float(values[bad.to(values.device)].float().abs().max())
    raise InputError(
        f"{name} of row {row} reach {largest:.3g}, more than {str(column.dtype).removeprefix('torch.')} can hold",
        hint="store them with dtype=torch.bfloat16 or dtype=torch.float32",
    )


def _check_rows(rows: Rows, start: int, stop: int, num_classes: int) -> Rows:
    """Refuse rows whose labels or ids have the wrong number, type or range."""
    labels, ids = np.asarray(rows.labels), np.asarray(rows.ids)
    for name, values in (("labels", labels), ("ids", ids)):
        if values.shape != (stop - start,) or not np.issubdtype(values.dtype, np.integer):
            raise InputError(
                f"rows {start} to {stop - 1} of the source",
                expected=f"{stop - start} integer {name}",
                got=f"{values.dtype} of shape {values.shape}",
            )
    outside = (labels < 0) | (labels >= num_classes)
    if outside.any():
        row = int(outside.argmax())
        raise InputError(
            f"label of row {start + row}",
            expected=f"0 to {num_classes - 1}, as the backbone has {num_classes} classes",
            got=str(labels[row]),
            hint="map the labels to those of the network",
        )
    return Rows(rows.inputs, labels.astype(np.int64), ids.astype(np.int64))


@contextmanager
def _set_threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
