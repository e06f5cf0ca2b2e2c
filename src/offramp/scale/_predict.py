"""Batch inference by many workers into Parquet files, within a budget for the whole job."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import torch

from offramp._files import check_local
from offramp._progress import progress_bar
from offramp.errors import InputError, StoreError
from offramp.features import Source
from offramp.features._ids import stable_hash
from offramp.model._backends import backend_name
from offramp.model._model import EarlyExitModel
from offramp.runtime import BACKENDS
from offramp.scale._budget import JobBudget
from offramp.scale._parts import (
    JobPlan,
    Part,
    begin_job,
    fingerprint,
    finish_job,
    finished_path,
    job_path,
    part_path,
    read_part,
    write_part,
)
from offramp.scale._workers import check_counts, check_portable, check_shared, open_workers

__all__ = ["JobSummary", "predict_on_cluster"]

BLOCKS = 256
"""Parts of a job, if it has enough rows: the budget is controlled from part to part, and workers end together."""

FEWEST_BATCHES = 4
"""Fewest batches of a part: with fewer, the samples that stay would not fill a batch again."""

MOST_ROWS = 8192
"""Most rows of a part: its answers are held in memory, and computed again if a worker is lost."""


@dataclass(frozen=True)
class JobSummary:
    """The result of a prediction job."""

    folder: Path
    """Folder of the answers, `part-*.parquet`."""
    rows: int
    """Number of answers."""
    cost: float
    """Average cost per sample, relative to the full network."""
    parts: int
    """Number of files."""
    reused: int
    """Number of files that an earlier run had written."""


def predict_on_cluster(
    model: EarlyExitModel,
    source: Source,
    folder: str | Path,
    *,
    workers: int | None = None,
    address: str | None = None,
    budget: float | None = None,
    miscoverage: float = 0.05,
    classes: Sequence[str] = (),
    batch_size: int = 64,
    block_rows: int | None = None,
    backend: str | None = None,
    threads: int = 1,
    progress: bool = True,
) -> JobSummary:
    """Classify all inputs of a source with many workers, into a folder of Parquet files.

    Each worker runs `model.predict_many` on a block of rows and writes one file, `part-000000000.parquet` and so on.
    Any reader of Parquet takes the folder as one table, in the order of the rows. A lost worker or machine costs the
    blocks it was working on. After Ctrl-C, an error or a lost driver, the same call continues where it stopped, and
    keeps the parts whose files are unchanged.

    Without a budget, the files depend only on the arguments and the kind of processor. With a budget, the target cost
    of each block depends on the blocks that ended before it started (`JobBudget`); its record holds the target.

    Args:
        model: The model, at the operating point to use: `model.at(...)`. It is sent to the workers, so it must be
            picklable.
        source: Raw samples, labels are not read. It is sent to the workers, so it should hold paths and open them when
            first read. Inputs are named by its method `keys` if it has one (see `offramp.data.Dataset`), else by row.
        folder: Folder of the answers, the same on every machine; made if it does not exist.
        workers: Number of workers; see `offramp.scale.open_workers`.
        address: Address of a Ray cluster; by default workers are started on this machine.
        budget: Average cost per sample over the whole job, as a share of the full network's cost; by default that of
            the model's operating point.
        miscoverage: Miscoverage of the prediction sets.
        classes: Names of the classes, `model.classes`; if empty, answers hold class numbers.
        batch_size: Samples per batch.
        block_rows: Rows per part; by default for 256 parts of 4 batches to 8,192 rows. With a budget, a job should have
            50 parts per worker.
        backend: A name in `offramp.runtime.BACKENDS`; by default "eager", or the backend that the points were tuned on.
        threads: Number of torch threads per worker.
        progress: Show a bar on a terminal; elsewhere, a line every 30 s.

    Raises:
        BudgetError: If the budget is lower than the cost of the cheapest point.
        StoreError: If the folder holds answers of another job.
        BusyError: If another process is writing there.

    Example:
        >>> import offramp
        >>> from tempfile import TemporaryDirectory
        >>> from offramp.features import ArraySource
        >>> from offramp.backbone import CifarResNet
        >>> images, labels = torch.randn(60, 3, 32, 32), torch.arange(60) % 10
        >>> quick = offramp.JointSettings(cost_weights=(1.0,), warmup_epochs=1, epochs=1)
        >>> data = (images[:30], labels[:30]), (images[30:], labels[30:])
        >>> model = offramp.fit(CifarResNet(8), *data, settings=quick, anyway=True, progress=False).at(cost=1.1)
        >>> with TemporaryDirectory() as folder:
        ...     summary = predict_on_cluster(model, ArraySource(images, labels, name="new"), folder, workers=1)
        ...     summary.rows, summary.parts, [file.name for file in summary.folder.glob("*.parquet")]
        (60, 1, ['part-000000000.parquet'])
    """
    check_local(folder)
    folder = Path(folder).absolute()
    plan = JobPlan(
        network=fingerprint(model, all_points=budget is not None),
        source=source.name,
        num_rows=len(source),
        budget=budget,
        miscoverage=miscoverage,
        classes=tuple(classes),
        backend=backend_name(model) if backend is None else backend,
        batch_size=batch_size,
        block_rows=block_rows if block_rows is not None else _choose_block_rows(len(source), batch_size),
        threads=threads,
    )
    _check_plan(plan, model)
    controller = None
    if budget is not None:
        controller = JobBudget(budget, costs=model.dial.costs, rows=len(source))
    model = replace(model, chosen=model.point)  # drop its cached properties: workers make their own
    check_counts(workers, threads)
    check_portable(model=model, source=source)
    spent, done, num_reused = 0.0, 0, 0
    with (
        begin_job(folder, plan),
        open_workers(workers, address, threads=threads) as crew,
        progress_bar(f"predicting {source.name}", plan.num_rows, unit="inputs", show=progress) as advance,
    ):
        finished_path(folder).unlink(missing_ok=True)
        # All blocks, finished ones too: workers check them, as that reads and hashes the files.
        for block, (part, reused) in crew.run(_blocks(plan, controller), _BlockWork(model, source, plan, folder)):
            rows = part.stop - part.start
            _check_visible(part_path(folder, block.number), part)
            if controller is not None:
                assert part.target is not None
                controller.record(block.number, rows=rows, target=part.target, spent=part.spent)
            spent, done, num_reused = spent + part.spent, done + rows, num_reused + reused
            advance(rows, f"{crew.count} workers, cost {spent / done:.3f}")
        cost = spent / max(1, plan.num_rows)
        finish_job(folder, plan, cost=cost)
    return JobSummary(folder, plan.num_rows, cost, plan.num_parts, num_reused)


@dataclass(frozen=True)
class _BlockJob:
    """Rows for one worker to classify."""

    number: int
    target: float | None
    """Target cost per sample; None without a budget."""


@dataclass(frozen=True)
class _BlockWork:
    """The work of the workers; each opens its backend once."""

    model: EarlyExitModel
    source: Source
    plan: JobPlan
    folder: Path

    @cached_property
    def ready(self) -> EarlyExitModel:
        """The model on its backend, which cannot be sent."""
        return self.model.on(self.plan.backend, example=self.source.read(0, min(2, len(self.source))).inputs)

    def __call__(self, block: _BlockJob) -> tuple[Part, bool]:
        """Return the part, and True if an earlier run had written it."""
        plan, folder = self.plan, self.folder
        check_shared(job_path(folder))
        part = read_part(folder, plan, block.number)
        if part is not None:
            return part, True
        rows = plan.rows_of(block.number)
        place = f"rows {rows.start} to {rows.stop - 1} of '{self.source.name}'"
        # The seed depends only on the rows: not on earlier blocks, nor on the worker.
        generator = torch.Generator().manual_seed(stable_hash(f"predict/{rows.start}"))
        batches = (
            self.source.read(start, min(start + plan.batch_size, rows.stop)).inputs
            for start in rows[:: plan.batch_size]
        )
        try:
            answer = self.ready.predict_many(batches, budget=block.target, generator=generator)
        except InputError as error:
            raise InputError(f"{place}: {error}") from error
        if len(answer.labels) != len(rows):
            raise InputError(
                place,
                expected=f"{len(rows)} answers",
                got=f"{len(answer.labels)}",
                hint="use preprocessing steps that keep samples apart",
            )
        return write_part(folder, plan, block.number, _keys(self.source, rows), answer, target=block.target), False


def _blocks(plan: JobPlan, controller: JobBudget | None) -> Iterator[_BlockJob]:
    """Yield the blocks in order; the target of each is set when it starts."""
    for number in range(plan.num_parts):
        yield _BlockJob(number, None if controller is None else controller.start(number, len(plan.rows_of(number))))


def _choose_block_rows(rows: int, batch_size: int) -> int:
    """Choose the rows per part: whole batches."""
    fewest = FEWEST_BATCHES * batch_size
    block_rows = min(max(fewest, MOST_ROWS), max(fewest, rows // BLOCKS))
    return block_rows - block_rows % max(1, batch_size)


def _check_plan(plan: JobPlan, model: EarlyExitModel) -> None:
    if not plan.num_rows:
        raise InputError(f"source '{plan.source}'", expected="at least one row", got="none")
    if plan.batch_size < 1 or plan.block_rows < 1:
        raise InputError(
            "batch_size and block_rows", expected="at least 1 each", got=f"{plan.batch_size} and {plan.block_rows}"
        )
    if plan.miscoverage not in model.point.conformal_thresholds:
        calibrated = ", ".join(map(str, sorted(model.point.conformal_thresholds)))
        raise InputError("miscoverage", expected=f"one that was calibrated ({calibrated})", got=f"{plan.miscoverage}")
    if plan.classes and len(plan.classes) != model.backbone.num_classes:
        raise InputError("classes", expected=f"{model.backbone.num_classes} names, or none", got=f"{len(plan.classes)}")
    BACKENDS.get(plan.backend)  # refuse an unknown name before any work
    if model.tuned_on is not None:
        model.on(plan.backend)  # refuse another backend than its own
        return
    if model.backend is not None:
        raise InputError(
            "model",
            expected="a model without a backend of its own",
            got="a model from model.on(...)",
            hint="pass the model before that, and backend='onnx' here",
        )
    if plan.backend == "int8":
        raise InputError(
            "backend",
            expected="eager, bfloat16 or onnx",
            got="int8, in which points chosen in float32 lose accuracy",
            hint="use 'onnx', or a model from model.with_backend('int8', ...)",
        )


def _check_visible(file: Path, part: Part) -> None:
    """Check that the driver sees the file that a worker wrote."""
    size = file.stat().st_size if file.exists() else None
    if size != part.bytes:
        raise StoreError(
            f"{file}, written by a worker",
            expected=f"{part.bytes} bytes",
            got="no file" if size is None else f"{size} bytes",
            hint="give a folder that all machines of the cluster share, and let no other run write to it",
        )


def _keys(source: Source, rows: range) -> Sequence[str]:
    """Return the names of rows in the answers."""
    if hasattr(source, "keys"):
        keys: Sequence[str] = source.keys(rows.start, rows.stop)
        return keys
    return [str(row) for row in rows]
