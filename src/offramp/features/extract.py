"""One pass of the backbone over a source, written into a store."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from offramp.backbone import DEFAULT_POOLING, POOLINGS, Backbone, Hidden, Preprocessing
from offramp.errors import InputError
from offramp.features.buffer import empty
from offramp.features.plan import DTYPES, Plan
from offramp.features.shard import write_shard
from offramp.features.source import Rows, Source
from offramp.features.stable_hash import stable_hash
from offramp.features.store import Store, begin_store, compile_manifest, hold_store, pending_shards, read_plan
from offramp.files import check_local
from offramp.progress import progress_bar

__all__ = ["begin_extraction", "extract", "extract_shard", "make_plan"]

BATCH_SIZE = 250
"""Rows of a forward pass, unless told otherwise."""


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
    """Run a backbone once over a source and store what exits need.

    Interrupted at any moment, the same call goes on where it stopped and ends with the same bytes. Memory does not grow
    with the source: a shard and a batch are held.

    Args:
        backbone: The frozen network.
        source: Labelled raw samples.
        path: Folder of the store; made if it is not there.
        poolings: Registered names; the features of each are stored.
        views: How each view of a sample is prepared. The first is the clean one; others may draw at random.
        batch_size: Rows of a forward pass; those of the extraction that is there, or 250, if left out.
        shard_mb: Megabytes of a shard, about.
        threads: Threads of torch; those of the extraction that is there, or torch's own number, if left out.
        dtype: Precision of the features: float16, bfloat16 or float32.
        progress: Show a bar on a terminal; elsewhere, a line every 30 s.

    Returns:
        The finished store.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> from offramp.features import ArraySource
        >>> from offramp.backbone import CifarResNet, image_preprocessing
        >>> images = np.zeros((5, 32, 32, 3), np.uint8)
        >>> source = ArraySource(images, np.arange(5), name="black")
        >>> views = [image_preprocessing(mean=(0.5, 0.5, 0.5), std=(0.2, 0.2, 0.2))]
        >>> with TemporaryDirectory() as folder:
        ...     store = extract(CifarResNet(8), source, folder, views=views)
        ...     print(store.num_rows, store.widths("rich"), store.own_heads)
        5 (512, 1024, 2048) (2,)
    """
    check_local(path)
    path = Path(path)
    with begin_extraction(
        backbone,
        source,
        path,
        poolings=poolings,
        views=views,
        batch_size=batch_size,
        shard_mb=shard_mb,
        threads=threads,
        dtype=dtype,
    ) as plan:
        pending = pending_shards(path, plan)
        to_do = sum(len(plan.rows_of(shard)) for shard in pending)
        done = plan.num_rows - to_do
        with progress_bar(f"extracting {source.name}", plan.num_rows, done=done, unit="rows", show=progress) as advance:
            for shard in pending:
                extract_shard(backbone, source, plan, shard, path, advance=advance)
        return compile_manifest(path)


@contextmanager
def begin_extraction(
    backbone: Backbone,
    source: Source,
    path: Path,
    *,
    poolings: Sequence[str],
    views: Sequence[Preprocessing],
    batch_size: int | None,
    shard_mb: float,
    threads: int | None,
    dtype: torch.dtype,
) -> Iterator[Plan]:
    """Settle what an extraction writes, begin its store, and hold it against other writers; arguments as in `extract`.

    What is left out is as in the extraction that is there, so that it goes on.
    """
    begun = read_plan(path) if (path / "plan.json").exists() else None
    if threads is None:
        threads = torch.get_num_threads() if begun is None else begun.threads
    if batch_size is None:
        batch_size = BATCH_SIZE if begun is None else begun.batch_size
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
    """Settle what an extraction writes; arguments as in `extract`. The first row is run to learn the widths."""
    precision = str(dtype).removeprefix("torch.")
    if len(source) == 0:
        raise InputError(f"source '{source.name}' is empty; give at least one row")
    if precision not in DTYPES:
        raise InputError(f"features are stored as {', '.join(DTYPES)}, got {precision}")
    if not poolings or not views or len(set(poolings)) != len(poolings):
        raise InputError(
            f"expected different poolings and at least one view, got {tuple(poolings)}, {len(views)} views"
        )
    if strangers := [view for view in views if not isinstance(view, Preprocessing)]:
        raise InputError(
            f"expected views that are Preprocessing, got {strangers[0]!r}; give steps, as in docs/store.md"
        )
    if batch_size < 1 or threads < 1 or shard_mb <= 0:
        raise InputError(
            f"batch_size, threads and shard_mb must be positive, got {batch_size}, {threads} and {shard_mb}"
        )
    widths: dict[str, list[int]] = {pooling: [] for pooling in poolings}
    with torch.inference_mode():
        inputs = backbone.prepare(views[0](source.read(0, 1).inputs))
        for _, features, _ in _outcomes(backbone, inputs, poolings):
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
    # Whole batches where there is room for one: a small batch at the end of each shard would waste time.
    shard_rows -= shard_rows % batch_size if shard_rows > batch_size else 0
    return replace(plan, shard_rows=shard_rows)


def extract_shard(
    backbone: Backbone,
    source: Source,
    plan: Plan,
    shard: int,
    path: str | Path,
    *,
    advance: Callable[[int], object] = lambda rows: None,
) -> None:
    """Extract one shard: the unit of work of every engine, one process or many.

    Any number of processes may extract different shards of a store that `begin_store` made; `compile_manifest` follows
    when all are done. That `backbone` is the plan's is the caller's to check, once, not for each shard.

    Args:
        backbone: The backbone of the plan.
        source: The source of the plan.
        plan: What to write.
        shard: Which one.
        path: Folder of the store.
        advance: Told the number of rows after each batch.
    """
    rows = plan.rows_of(shard)
    backbone.eval()  # the model it was made of may have been put into training mode since
    with torch.inference_mode(), _threads(plan.threads):
        columns = {name: empty(column.shape, column.dtype) for name, column in plan.columns(len(rows)).items()}
        for start in rows[:: plan.batch_size]:
            stop = min(start + plan.batch_size, rows.stop)
            here = slice(start - rows.start, stop - rows.start)
            _extract_batch(
                backbone, source, plan, start, stop, {name: column[here] for name, column in columns.items()}
            )
            advance(stop - start)
    write_shard(Path(path), plan, shard, columns)


def _extract_batch(
    backbone: Backbone, source: Source, plan: Plan, start: int, stop: int, columns: Mapping[str, Tensor]
) -> None:
    """Run the rows `start` to `stop - 1` and write them into their part of the shard's columns."""
    rows = _checked(source.read(start, stop), start, stop, plan.num_classes)
    columns["labels"].copy_(torch.from_numpy(rows.labels))
    columns["ids"].copy_(torch.from_numpy(rows.ids))
    for view, prepare in enumerate(plan.views):
        # The seed depends on the place alone: not on what was done before, nor on who does it.
        inputs = backbone.prepare(prepare(rows.inputs, seed=stable_hash(f"{view}/{start}")))
        if backbone.batch_size(inputs, 0) != stop - start:
            raise InputError(
                f"view {view} of rows {start} to {stop - 1} has {backbone.batch_size(inputs, 0)} samples, expected "
                f"{stop - start}; a preprocessing step must keep samples apart"
            )
        if view == 0:
            columns["sizes"].copy_(backbone.sizes(inputs))
        ends = dict.fromkeys(plan.poolings, 0)
        for stage, features, logits in _outcomes(backbone, inputs, tuple(plan.poolings)):
            where = f"stage {stage}, view {view}"
            for pooling, pooled in features.items():
                begin, ends[pooling] = ends[pooling], ends[pooling] + plan.poolings[pooling][stage]
                column = columns[f"features.{pooling}"][:, view, begin : ends[pooling]]
                _write(pooled, column, f"'{pooling}' features after {where}", start)
            if logits is not None:
                _write(logits, columns[f"logits.{stage}"][:, view], f"the network's own logits after {where}", start)


def _outcomes(
    backbone: Backbone, inputs: Hidden, poolings: Sequence[str]
) -> Iterator[tuple[int, dict[str, Tensor], Tensor | None]]:
    """Stage by stage: its index, `N x D` features by pooling, and `N x K` logits if the network has a head there."""
    hidden = inputs
    for stage, module in enumerate(backbone.stages):
        with backbone.explaining(inputs):
            hidden = module(hidden)
            representation = backbone.representation(hidden, stage)
            features = {pooling: POOLINGS.get(pooling)(representation) for pooling in poolings}
            logits = backbone.own_logits(hidden, stage) if stage in backbone.own_heads else None
        yield stage, features, logits


def _write(values: Tensor, column: Tensor, what: str, first_row: int) -> None:
    """Copy `n x D` values into a column of another precision; refuse what it cannot hold."""
    if values.shape != column.shape:
        raise InputError(
            f"{what}: expected shape {tuple(column.shape)}, with the width of the first row, got {tuple(values.shape)} "
            f"in the batch from row {first_row}; the width must not depend on the sample"
        )
    column.copy_(values)
    # The extremes alone, which no NaN escapes: twenty times as fast as looking at every number.
    if values.numel() == 0 or torch.stack(torch.aminmax(values)).to(column.dtype).isfinite().all():
        return
    bad = ~torch.isfinite(column).all(1)
    row = first_row + int(bad.nonzero()[0])
    if not torch.isfinite(values[bad.to(values.device)]).all():
        raise InputError(f"{what} of row {row} are not finite (NaN or infinity); check this sample and its preparation")
    largest = float(values[bad.to(values.device)].float().abs().max())
    raise InputError(
        f"{what} of row {row} reach {largest:.3g}, more than {str(column.dtype).removeprefix('torch.')} can hold; "
        "store them with dtype=torch.bfloat16 or dtype=torch.float32"
    )


def _checked(rows: Rows, start: int, stop: int, num_classes: int) -> Rows:
    """Refuse rows that are not what the source promised."""
    labels, ids = np.asarray(rows.labels), np.asarray(rows.ids)
    for what, values in (("labels", labels), ("ids", ids)):
        if values.shape != (stop - start,) or not np.issubdtype(values.dtype, np.integer):
            raise InputError(
                f"rows {start} to {stop - 1}: expected {stop - start} integer {what}, got {values.dtype} of shape "
                f"{values.shape}"
            )
    outside = (labels < 0) | (labels >= num_classes)
    if outside.any():
        row = int(outside.argmax())
        raise InputError(
            f"row {start + row} has label {labels[row]}, expected 0 to {num_classes - 1}: the backbone has "
            f"{num_classes} classes; map the labels to the network's"
        )
    return Rows(rows.inputs, labels.astype(np.int64), ids.astype(np.int64))


@contextmanager
def _threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
