"""The files of a prediction job: one Parquet file per block of rows, and a sealed record of each."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from offramp._files import (
    TEMPORARY,
    file_sha256,
    hold_lock,
    json_sha256,
    read_checked_json,
    write_checked_json,
    write_resumable,
)
from offramp.errors import MissingExtraError, StoreError
from offramp.model._answer import Answer
from offramp.model._model import EarlyExitModel

try:
    import pyarrow
    from pyarrow import parquet
except ImportError as error:
    raise MissingExtraError("answers as Parquet need pyarrow", hint="pip install 'offramp[ray]'") from error

__all__ = [
    "JobPlan",
    "Part",
    "begin_job",
    "fingerprint",
    "finish_job",
    "finished_path",
    "job_path",
    "part_path",
    "read_part",
    "write_answers",
    "write_part",
]

RECORDS = "_job"
"""Folder of the records: readers of Parquet skip names that begin with an underscore."""


@dataclass(frozen=True)
class JobPlan:
    """Everything that the answers of a job depend on; the samples are identified by the name of their source."""

    network: str
    """Fingerprint of the network at its operating point."""
    source: str
    """Name of the source."""
    num_rows: int
    """Rows of the source."""
    budget: float | None
    """Average cost per sample; None for the operating point of the network."""
    miscoverage: float
    """Miscoverage of the prediction sets."""
    classes: tuple[str, ...]
    """Names of the classes; empty for numbers."""
    backend: str
    """Name of the backend."""
    batch_size: int
    """Samples per batch."""
    block_rows: int
    """Rows per part; the last may have fewer."""
    threads: int
    """Number of torch threads per worker."""

    @property
    def num_parts(self) -> int:
        """The number of files."""
        return -(-self.num_rows // self.block_rows)

    def rows_of(self, part: int) -> range:
        """Return the rows of a part."""
        return range(part * self.block_rows, min((part + 1) * self.block_rows, self.num_rows))

    def to_json(self) -> dict[str, Any]:
        """Return the plan as JSON content."""
        return {**asdict(self), "classes": list(self.classes)}


@dataclass(frozen=True)
class Part:
    """The record of a part that was written."""

    start: int
    """Its first row."""
    stop: int
    """The row after its last."""
    bytes: int
    """Size of its file."""
    sha256: str
    """Hash of its file."""
    target: float | None
    """Target cost per sample; None without a budget."""
    spent: float
    """Cost of all its samples, in costs of the full network."""


def job_path(folder: Path) -> Path:
    """Return the file of a job's plan."""
    return folder / RECORDS / "job.json"


def finished_path(folder: Path) -> Path:
    """Return the file that says that a job is finished."""
    return folder / RECORDS / "finished.json"


def part_path(folder: Path, part: int) -> Path:
    """Return the Parquet file of a part."""
    return folder / f"part-{part:09d}.parquet"


def _record_path(folder: Path, part: int) -> Path:
    """Return the file of a part's record."""
    return folder / RECORDS / f"part-{part:09d}.json"


@contextmanager
def begin_job(folder: Path, plan: JobPlan) -> Iterator[None]:
    """Make the folder of a job, or check that it is of this job, and lock it against other writers.

    Args:
        folder: Folder of the answers.
        plan: The plan of the job.

    Raises:
        StoreError: If it holds answers of another job, or other Parquet files.
        BusyError: If another process is writing to it.
    """
    file = job_path(folder)
    try:
        foreign = folder.exists() and (not folder.is_dir() or any(folder.glob("*.parquet")))
        if foreign and not file.exists():
            raise StoreError(f"{folder} exists, and is not the folder of a job", hint="choose another folder")
        file.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        if isinstance(error, StoreError):
            raise
        raise StoreError(f"cannot make the folder {folder}: {error}", hint="choose another folder") from error
    with hold_lock(file.parent / "lock", wait_s=0):
        if not file.exists():
            write_checked_json(file, plan.to_json())
        _check_same_job(folder, plan)
        yield


def finish_job(folder: Path, plan: JobPlan, *, cost: float) -> None:
    """Delete temporary files, and record that all parts are written."""
    _clear_temporary(folder)
    content = {"rows": plan.num_rows, "cost": cost, "parts": plan.num_parts}
    write_checked_json(finished_path(folder), content)


def _check_same_job(folder: Path, plan: JobPlan) -> None:
    """Refuse a folder that holds answers of another job."""
    file = job_path(folder)
    try:
        before = read_checked_json(file)
    except StoreError as error:
        raise StoreError(
            f"{file} is damaged: the answers in {folder} cannot be attributed to a job", hint="delete the folder"
        ) from error
    now = plan.to_json()
    if differing := [name for name, value in now.items() if before.get(name) != value]:
        raise StoreError(
            f"{folder} holds answers of another job",
            expected=", ".join(f"{name} {before.get(name)!r}" for name in differing),
            got=", ".join(repr(now[name]) for name in differing),
            hint="choose another folder, or delete this one",
        )


def write_part(
    folder: Path, plan: JobPlan, part: int, keys: Sequence[str], answer: Answer, *, target: float | None
) -> Part:
    """Write the answers of a part, then its record: a part without a record counts as missing.

    Args:
        folder: Folder of the answers.
        plan: The plan of the job.
        part: The number of the part.
        keys: Names of its inputs.
        answer: The answers for its inputs.
        target: The target cost per sample.
    """
    written = write_answers(part_path(folder, part), keys, answer, miscoverage=plan.miscoverage, classes=plan.classes)
    rows, spent = plan.rows_of(part), float(answer.relative_cost.double().sum())
    record = Part(rows.start, rows.stop, *written, target, spent)
    write_checked_json(_record_path(folder, part), {**asdict(record), "job": json_sha256(plan.to_json())})
    return record


def read_part(folder: Path, plan: JobPlan, part: int) -> Part | None:
    """Return the record of a part if its file is unchanged since it was written, else None."""
    rows = plan.rows_of(part)
    try:
        content = read_checked_json(_record_path(folder, part))
        if content.pop("job", None) != json_sha256(plan.to_json()) or content.keys() != {
            item.name for item in fields(Part)
        }:
            return None
        record = Part(**content)
        if (record.start, record.stop) != (rows.start, rows.stop):
            return None
        return record if file_sha256(part_path(folder, part)) == record.sha256 else None
    except StoreError:
        return None


def write_answers(
    path: Path, keys: Sequence[str], answer: Answer, *, miscoverage: float, classes: Sequence[str] = ()
) -> tuple[int, str]:
    """Write answers into a Parquet file, atomically, with the columns of `offramp predict`.

    Columns are `input` (its key), `label`, `confidence`, `exit` (from 0), `cost` (relative to the full network), `set`
    (a list) and `probabilities` (a list, in the order of the classes). Pages carry checksums.

    Args:
        path: The file.
        keys: Names of N inputs.
        answer: The answers for these inputs.
        miscoverage: Miscoverage of the prediction sets, one that the answer has.
        classes: Names of the classes; empty for numbers.

    Returns:
        Bytes and sha256 of the written content; another writer may have replaced the file since.
    """
    count, num_classes = answer.probabilities.shape
    members = answer.prediction_sets[miscoverage].numpy()
    ends = np.concatenate([np.zeros(1, np.int64), members.sum(1).cumsum()]).astype(np.int32)
    probabilities = pyarrow.array(answer.probabilities.flatten().numpy(), pyarrow.float32())
    table = pyarrow.table(
        {
            "input": pyarrow.array(list(keys), pyarrow.string()),
            "label": _name_labels(answer.labels.numpy(), classes),
            "confidence": pyarrow.array(answer.probabilities.amax(1).numpy(), pyarrow.float32()),
            "exit": pyarrow.array(answer.exits.numpy(), pyarrow.int32()),
            "cost": pyarrow.array(answer.relative_cost.numpy(), pyarrow.float64()),
            "set": pyarrow.ListArray.from_arrays(pyarrow.array(ends), _name_labels(members.nonzero()[1], classes)),
            "probabilities": pyarrow.ListArray.from_arrays(
                pyarrow.array(np.arange(count + 1, dtype=np.int32) * num_classes), probabilities
            ),
        }
    )
    with write_resumable(path) as temporary:
        parquet.write_table(table, temporary, write_page_checksum=True)
        return temporary.stat().st_size, file_sha256(temporary)


def _name_labels(labels: Any, classes: Sequence[str]) -> Any:
    """Return the names of labels, or their numbers if the classes have no names."""
    if not classes:
        return pyarrow.array(labels, pyarrow.int64())
    return pyarrow.array(list(classes), pyarrow.string()).take(pyarrow.array(labels, pyarrow.int64()))


def _clear_temporary(folder: Path) -> None:
    """Delete the files of killed writers, which readers of the folder would fail on."""
    for place in (folder, folder / RECORDS):
        for file in place.glob(f"*{TEMPORARY}"):
            file.unlink(missing_ok=True)


def fingerprint(network: EarlyExitModel, *, all_points: bool) -> str:
    """Hash everything that the answers of a network depend on, its weights included.

    Args:
        network: The network.
        all_points: True if budgets may take samples to any of its points, not only its own.
    """
    digest = hashlib.sha256()
    points = [network.point, *(network.dial_points if all_points else ())]
    exits = [str(network.exits_in_force), network.exits_in_force.state_dict()]
    rules = [[point.policy, point.parameters, point.active, point.temperatures, point.classifier] for point in points]
    figures = [[dict(point.tune_metrics), dict(point.conformal_thresholds)] for point in points]
    costs = [list(vars(table).values()) for table in network.costs[network.point.policy].tables]
    parts = [network.feature_backbone.fingerprint(), network.pooling.name, network.preprocessing.describe()]
    _update_digest(digest, [parts, exits, rules, figures, costs])
    return digest.hexdigest()


def _update_digest(digest: Any, value: Any) -> None:
    """Add a nested value to a hash, in a fixed order."""
    if isinstance(value, Tensor):
        plain = value.detach().cpu().contiguous()
        digest.update(f"{plain.dtype} {tuple(plain.shape)}".encode() + plain.numpy().tobytes())
    elif isinstance(value, Mapping):
        for key in sorted(value, key=repr):
            digest.update(f"key {key!r} ".encode())
            _update_digest(digest, value[key])
    elif isinstance(value, Sequence) and not isinstance(value, str):
        digest.update(f"{len(value)} of ".encode())
        for item in value:
            _update_digest(digest, item)
    else:
        digest.update(f"{value!r} ".encode())
