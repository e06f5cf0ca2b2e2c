"""Offline batch inference by many workers: answers as Parquet, for a budget that holds over all of them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import torch

from offramp.errors import InputError, StoreError
from offramp.features import Source
from offramp.features.sealed import write_sealed
from offramp.features.stable_hash import stable_hash
from offramp.files import check_local
from offramp.network import EarlyExitNetwork
from offramp.progress import progress_bar
from offramp.runtime import BACKENDS
from offramp.scale.answers import write_answers
from offramp.scale.budget import JobBudget
from offramp.scale.cluster import check_counts, check_portable, check_shared, cluster
from offramp.scale.parts import (
    BOOKS,
    JobPlan,
    Part,
    begin_job,
    begun_block_rows,
    clear_temporary,
    entry_path,
    fingerprint,
    part_path,
    read_part,
    write_part,
)

__all__ = ["JobSummary", "predict_on_cluster"]

BLOCKS = 256
"""Parts a job is cut into where rows allow: a budget is steered from part to part, and workers end together."""

FEWEST_BATCHES = 4
"""Of a part: with fewer, those who stay would not fill a batch again."""

MOST_ROWS = 8192
"""Of a part: its answers are held in memory, and made again where a worker is lost."""


@dataclass(frozen=True)
class JobSummary:
    """What a job of answers came to."""

    folder: Path
    """Of the answers: `part-*.parquet`."""
    rows: int
    """Answers in all."""
    cost: float
    """What a sample cost on average, as a share of the full network's."""
    budget: float | None
    """What it was to cost; None without a budget."""
    parts: int
    """Files."""
    found: int
    """Of them, those that were there before."""
    mended: tuple[str, ...]
    """Names of those that were there, but not as they had been written, and were made again."""


def predict_on_cluster(
    network: EarlyExitNetwork,
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
    backend: str = "eager",
    threads: int = 1,
    progress: bool = True,
) -> JobSummary:
    """Answer all inputs of a source with many workers, into a folder of Parquet files.

    Each worker runs `network.predict_many` on a block of rows and writes it as one file, `part-000000000.parquet` and
    so on: any reader of Parquet takes the folder as one table, in the order of the rows. Lost workers and machines cost
    the blocks they were at; after Ctrl-C, an error or a lost driver the same call goes on where it stopped. Parts that
    are there are kept as they are, if every byte is as it was written.

    Without a budget the bytes depend on the arguments alone (and the kind of processor), whatever is lost on the way
    and however many workers there are. With one, each block is asked for what the blocks that ended by then leave
    (`JobBudget`), so the bytes depend on which those were; what was asked of each stands in its entry.

    Args:
        network: As `frontier.choose` gives it. It is sent to the workers, so it must survive pickling.
        source: Raw samples, sent to the workers too: it should hold paths and open them when first read. Labels are
            not looked at. Inputs are called as its `keys` says if it has that (see `offramp.data.Dataset`), else by
            their row.
        folder: Of the answers, the same on every machine; made if it is not there.
        workers: How many to use; see `offramp.scale.cluster`.
        address: Of a Ray cluster; without it workers are started on this machine.
        budget: What a sample may cost on average over the whole job, as a share of the full network's cost; as the
            network's operating point has it if left out.
        miscoverage: Prediction sets may miss the true class this often.
        classes: Names of the classes, `frontier.classes`; their numbers if empty.
        batch_size: Samples at a time.
        block_rows: Rows of a part; those of the job that is there, or 256 parts of 4 batches to 8,192 rows, if left
            out. With a budget the job should have 25 parts for each block under way, two a worker.
        backend: What computes, by its name in `offramp.runtime.BACKENDS`.
        threads: Of torch, of each worker.
        progress: Show a bar on a terminal; elsewhere, a line every 30 s.

    Returns:
        What it came to.

    Raises:
        BudgetError: If the budget is lower than the cheapest setting.
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
        >>> network = offramp.fit(CifarResNet(8), *data, settings=quick, anyway=True, progress=False).choose(cost=1.1)
        >>> with TemporaryDirectory() as folder:
        ...     summary = predict_on_cluster(network, ArraySource(images, labels, name="new"), folder, workers=1)
        ...     summary.rows, summary.parts, [file.name for file in summary.folder.glob("*.parquet")]
        (60, 1, ['part-000000000.parquet'])
    """
    check_local(folder)
    folder = Path(folder).absolute()
    plan = JobPlan(
        network=fingerprint(network, dialled=budget is not None),
        source=source.name,
        num_rows=len(source),
        budget=budget,
        miscoverage=miscoverage,
        classes=tuple(classes),
        backend=backend,
        batch_size=batch_size,
        block_rows=block_rows if block_rows is not None else _block_rows(folder, len(source), batch_size),
        threads=threads,
    )
    _check(plan, network)
    controller = None
    if budget is not None:
        controller = JobBudget(budget, settings=network.dial.costs, rows=len(source))
    network = replace(network)  # without what it made for itself, of which workers make their own
    check_counts(workers, threads)
    check_portable(network=network, source=source)
    spent, done, found, mended = 0.0, 0, 0, []
    with (
        begin_job(folder, plan),
        cluster(workers, address, threads=threads) as crew,
        progress_bar(f"predicting {source.name}", plan.num_rows, unit="inputs", show=progress) as advance,
    ):
        (folder / BOOKS / "finished.json").unlink(missing_ok=True)
        # Of all parts: to see whether one is finished it is read and hashed, which is work for many as well.
        for asked, made in crew.run(_asked(plan, controller), _Answering(network, source, plan, folder)):
            part = made.part
            _check_shared(part_path(folder, asked.part), part)
            if controller is not None:
                assert part.asked is not None
                controller.record(asked.part, rows=part.stop - part.start, asked=part.asked, spent=part.spent)
            spent, done, found = spent + part.spent, done + part.stop - part.start, found + made.found
            if made.mended:
                mended.append(part_path(folder, asked.part).name)
            advance(part.stop - part.start, f"{crew.count} workers, cost {spent / done:.3f}")
        clear_temporary(folder)
        cost = spent / max(1, plan.num_rows)
        write_sealed(folder / BOOKS / "finished.json", {"rows": plan.num_rows, "cost": cost, "parts": plan.num_parts})
    return JobSummary(folder, plan.num_rows, cost, budget, plan.num_parts, found, tuple(sorted(mended)))


@dataclass(frozen=True)
class _Asked:
    """A block to answer."""

    part: int
    budget: float | None
    """What a sample is to cost."""


@dataclass(frozen=True)
class _Made:
    """What a worker did for a block."""

    part: Part
    found: bool
    """Whether it was there."""
    mended: bool
    """Whether it was there, but not as it had been written."""


@dataclass(frozen=True)
class _Answering:
    """What workers do with blocks; each makes its network ready once."""

    network: EarlyExitNetwork
    source: Source
    plan: JobPlan
    folder: Path

    @cached_property
    def ready(self) -> EarlyExitNetwork:
        """The network on its backend, which cannot be sent."""
        return self.network.on(self.plan.backend, example=self.source.read(0, min(2, len(self.source))).inputs)

    def __call__(self, asked: _Asked) -> _Made:
        plan, folder = self.plan, self.folder
        check_shared(folder / BOOKS / "job.json")
        there = entry_path(folder, asked.part).exists()
        found = read_part(folder, plan, asked.part) if there else None
        if found is not None:
            return _Made(found, found=True, mended=False)
        rows = plan.rows_of(asked.part)
        # The seed depends on the place alone: not on what was done before, nor on who does it.
        generator = torch.Generator().manual_seed(stable_hash(f"predict/{rows.start}"))
        batches = (
            self.source.read(start, min(start + plan.batch_size, rows.stop)).inputs
            for start in rows[:: plan.batch_size]
        )
        try:
            answer = self.ready.predict_many(batches, budget=asked.budget, generator=generator)
        except InputError as error:
            raise InputError(f"rows {rows.start} to {rows.stop - 1} of '{self.source.name}': {error}") from error
        if len(answer.labels) != len(rows):
            raise InputError(
                f"rows {rows.start} to {rows.stop - 1} of '{self.source.name}' gave {len(answer.labels)} answers; a "
                "preprocessing step must keep samples apart"
            )
        keys = _keys(self.source, rows)
        file = part_path(folder, asked.part)
        written = write_answers(file, keys, answer, miscoverage=plan.miscoverage, classes=plan.classes)
        spent = float(answer.relative_cost.double().sum())
        made = write_part(folder, plan, asked.part, written=written, asked=asked.budget, spent=spent)
        return _Made(made, found=False, mended=there)


def _asked(plan: JobPlan, controller: JobBudget | None) -> Iterator[_Asked]:
    """Blocks in order; what each is asked for is settled when it begins, not before."""
    for part in range(plan.num_parts):
        yield _Asked(part, None if controller is None else controller.ask(part, len(plan.rows_of(part))))


def _block_rows(folder: Path, rows: int, batch_size: int) -> int:
    """Rows of a part unless somebody knows better: as in the job that is there, or whole batches."""
    begun = begun_block_rows(folder)
    if begun is not None:
        return begun
    most = max(FEWEST_BATCHES * batch_size, MOST_ROWS)
    wanted = min(most, max(FEWEST_BATCHES * batch_size, rows // BLOCKS))
    return wanted - wanted % max(1, batch_size)


def _check(plan: JobPlan, network: EarlyExitNetwork) -> None:
    if not plan.num_rows:
        raise InputError(f"source '{plan.source}' is empty; give at least one row")
    if plan.batch_size < 1 or plan.block_rows < 1:
        raise InputError(f"batch_size and block_rows must be positive, got {plan.batch_size} and {plan.block_rows}")
    if plan.miscoverage not in network.point.conformal_thresholds:
        known = ", ".join(map(str, sorted(network.point.conformal_thresholds)))
        raise InputError(f"expected a miscoverage that was calibrated ({known}), got {plan.miscoverage}")
    if plan.classes and len(plan.classes) != network.backbone.num_classes:
        raise InputError(f"expected {network.backbone.num_classes} names of classes, or none, got {len(plan.classes)}")
    if network.backend is not None:
        raise InputError("expected a network as frontier.choose gives it, got one on a backend; name it: backend=...")
    BACKENDS.get(plan.backend)  # an unknown name is told of now


def _check_shared(file: Path, part: Part) -> None:
    """See that what a worker wrote is seen here."""
    size = file.stat().st_size if file.exists() else None
    if size != part.bytes:
        told = "is not there" if size is None else f"has {size}"
        raise StoreError(
            f"a worker wrote {part.bytes} bytes to {file}, which {told} for the driver; give a folder that all "
            "machines of the cluster share, and let no other run write to it"
        )


def _keys(source: Source, rows: range) -> Sequence[str]:
    """What to call rows in answers about them."""
    if hasattr(source, "keys"):
        named: Sequence[str] = source.keys(rows.start, rows.stop)
        return named
    return [str(row) for row in rows]
