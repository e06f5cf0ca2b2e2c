"""Answers of a job, a file a block of rows: what they depend on, and which of them are there."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from torch import Tensor

from offramp.errors import StoreError
from offramp.features.sealed import file_sha256, read_sealed, seal, write_sealed
from offramp.files import TEMPORARY, hold_lock
from offramp.network import EarlyExitNetwork

__all__ = [
    "JobPlan",
    "Part",
    "begin_job",
    "begun_block_rows",
    "clear_temporary",
    "entry_path",
    "fingerprint",
    "part_path",
    "read_part",
    "write_part",
]

BOOKS = "_job"
"""Folder of what is known of the answers: readers of Parquet pass over names that begin so."""


@dataclass(frozen=True)
class JobPlan:
    """Everything that the answers of a job depend on, but for the samples themselves, known by their source's name.

    Example:
        >>> plan = JobPlan("5eed", "new", 10, None, 0.05, (), "eager", 2, 4, 1)
        >>> plan.num_parts, plan.rows_of(2)
        (3, range(8, 10))
    """

    network: str
    """Fingerprint of the network at its operating point."""
    source: str
    """Name of the source."""
    num_rows: int
    """Its rows."""
    budget: float | None
    """What a sample may cost on average; None: as the operating point has it."""
    miscoverage: float
    """Of the prediction sets."""
    classes: tuple[str, ...]
    """Names of the classes; empty: numbers."""
    backend: str
    """What computes."""
    batch_size: int
    """Samples at a time."""
    block_rows: int
    """Rows of a part; the last may have fewer."""
    threads: int
    """Of torch, of each worker."""

    @property
    def num_parts(self) -> int:
        """How many files there will be."""
        return -(-self.num_rows // self.block_rows)

    def rows_of(self, part: int) -> range:
        """Rows of a part."""
        return range(part * self.block_rows, min((part + 1) * self.block_rows, self.num_rows))


@dataclass(frozen=True)
class Part:
    """What is known of a part once it is written."""

    start: int
    """Its first row."""
    stop: int
    """The row after its last."""
    bytes: int
    """Size of its file."""
    sha256: str
    """Hash of its file."""
    asked: float | None
    """What a sample was asked to cost; None without a budget."""
    spent: float
    """What its samples cost together, in costs of the full network."""


def part_path(folder: Path, part: int) -> Path:
    """File of a part."""
    return folder / f"part-{part:09d}.parquet"


def entry_path(folder: Path, part: int) -> Path:
    """File of what is known of a part."""
    return folder / BOOKS / f"part-{part:09d}.json"


@contextmanager
def begin_job(folder: Path, plan: JobPlan) -> Iterator[None]:
    """Make the folder of a job, or see that it is this job's, and hold it against other writers.

    Args:
        folder: Where the answers go.
        plan: What they depend on.

    Raises:
        StoreError: If it holds answers of another job, or Parquet files of somebody else.
        BusyError: If another process is at work on it; the message names the process.
    """
    file = folder / BOOKS / "job.json"
    try:
        begun = file.exists()
        if not begun and folder.exists() and (not folder.is_dir() or any(folder.glob("*.parquet"))):
            raise StoreError(f"{folder} is there, and not of a job of answers; choose another folder")
        file.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        if isinstance(error, StoreError):
            raise
        raise StoreError(f"cannot make the folder {folder}: {error}; choose another") from error
    with hold_lock(file.parent / "lock", wait_s=0):
        if not file.exists():
            write_sealed(file, _content(plan))
        _check_job(folder, file, plan)
        yield


def _check_job(folder: Path, file: Path, plan: JobPlan) -> None:
    """Refuse a folder that holds answers of another job."""
    try:
        found = read_sealed(file)
    except StoreError as error:
        raise StoreError(f"{file} is damaged, so nobody knows whose answers are in {folder}; delete it all") from error
    if differing := [name for name, value in _content(plan).items() if found.get(name) != value]:
        told = ", ".join(f"{name} was {found.get(name)!r}, now {_content(plan)[name]!r}" for name in differing)
        raise StoreError(f"{folder} holds answers of another job: {told}; choose another folder, or delete this one")


def begun_block_rows(folder: Path) -> int | None:
    """Rows of a part of the job that was begun in a folder, if there is one that can be read."""
    try:
        return int(read_sealed(folder / BOOKS / "job.json")["block_rows"])
    except (StoreError, KeyError):
        return None


def write_part(
    folder: Path, plan: JobPlan, part: int, *, written: tuple[int, str], asked: float | None, spent: float
) -> Part:
    """Vouch for a part whose file is written: one without that is as good as not there.

    Args:
        folder: Of the answers.
        plan: What they depend on.
        part: Which.
        written: Its bytes and sha256, as `write_answers` gives them.
        asked: What a sample was to cost.
        spent: What all of its samples cost.
    """
    rows = plan.rows_of(part)
    made = Part(rows.start, rows.stop, *written, asked, spent)
    write_sealed(entry_path(folder, part), {**asdict(made), "job": seal(_content(plan))})
    return made


def read_part(folder: Path, plan: JobPlan, part: int) -> Part | None:
    """What is known of a part, if it is there with every byte as it was written; None if it is to be made."""
    rows = plan.rows_of(part)
    try:
        content = read_sealed(entry_path(folder, part))
        of_job = content.pop("job", None) == seal(_content(plan))
        if not of_job or content.keys() != {field.name for field in fields(Part)}:
            return None
        found = Part(**content)
        if (found.start, found.stop) != (rows.start, rows.stop):
            return None
        return found if file_sha256(part_path(folder, part)) == found.sha256 else None
    except StoreError:
        return None


def clear_temporary(folder: Path) -> None:
    """Delete what killed writers left, which readers of the folder would stumble over."""
    for place in (folder, folder / BOOKS):
        for file in place.glob(f"*{TEMPORARY}"):
            file.unlink(missing_ok=True)


def _content(plan: JobPlan) -> dict[str, Any]:
    return {**asdict(plan), "classes": list(plan.classes)}


def fingerprint(network: EarlyExitNetwork, *, dialled: bool) -> str:
    """Hash of everything that decides what a network answers, its weights included.

    Args:
        network: The network.
        dialled: Whether budgets may take samples to any of its points, not only its own.
    """
    digest = hashlib.sha256()
    points = [network.point, *(network.points if dialled else ())]
    exits = [str(network.bank), network.bank.state_dict()]
    told = [[point.policy, point.parameters, point.active, point.temperatures, point.classifier] for point in points]
    promised = [[dict(point.promised), dict(point.conformal_thresholds)] for point in points]
    costs = [list(vars(table).values()) for table in network.costs.tables]
    named = [network.backbone.fingerprint(), network.pooling.name, network.preprocessing.describe()]
    _add(digest, [named, exits, told, promised, costs])
    return digest.hexdigest()


def _add(digest: Any, value: Any) -> None:
    """Feed a value into a hash: what is in it, in an order that is always the same."""
    if isinstance(value, Tensor):
        plain = value.detach().cpu().contiguous()
        digest.update(f"{plain.dtype} {tuple(plain.shape)}".encode() + plain.numpy().tobytes())
    elif isinstance(value, Mapping):
        for key in sorted(value, key=repr):
            digest.update(f"key {key!r} ".encode())
            _add(digest, value[key])
    elif isinstance(value, Sequence) and not isinstance(value, str):
        digest.update(f"{len(value)} of ".encode())
        for one in value:
            _add(digest, one)
    else:
        digest.update(f"{value!r} ".encode())
