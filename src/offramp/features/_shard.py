"""The shards of a store: the plan that fixes their content, and the files that hold them."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from math import ceil, prod
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from offramp._files import (
    Place,
    file_sha256,
    json_sha256,
    place_size,
    read_checked_json,
    write_checked_json,
    write_resumable,
)
from offramp.errors import CorruptFileError, InputError, StoreError
from offramp.preprocessing import Preprocessing

__all__ = [
    "DTYPES",
    "REDO",
    "Column",
    "Entry",
    "Plan",
    "check_size",
    "entry_path",
    "is_finished",
    "map_shard",
    "read_entry",
    "shard_path",
    "write_shard",
]

DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}
"""Precisions that features can be stored in."""

AnyPlace = TypeVar("AnyPlace", bound=Place)

REDO = "delete it and run the same extraction again"
RESTORE = "run the same extraction again to restore it"


@dataclass(frozen=True)
class Column:
    """Shape and type of one tensor of a shard."""

    shape: tuple[int, ...]
    """Rows first; then, for features and logits, views and width."""
    dtype: torch.dtype

    def allocate(self) -> Tensor:
        """Allocate the tensor through numpy, so that freed memory is reused.

        torch asks for aligned blocks. glibc before 2.38 cannot place such a block where another of the same size was
        freed, so that the process would grow by a dozen batches.
        """
        memory = np.empty(prod(self.shape) * self.dtype.itemsize, np.uint8)
        return torch.from_numpy(memory).view(self.dtype).view(self.shape)


@dataclass(frozen=True)
class Plan:
    """Everything that the bytes of a store depend on, apart from the samples themselves.

    Two extractions with equal plans over the same source write the same bytes, wherever they were interrupted.

    Example:
        >>> plan = Plan("5eed", 10, (1,), {"mean": (16, 32)}, (Preprocessing(),), "toy", 5, 2, 2, 1, "float16")
        >>> [list(plan.rows_of(shard)) for shard in range(plan.num_shards)]
        [[0, 1], [2, 3], [4]]
        >>> plan.columns(2)["features.mean"].shape
        (2, 1, 48)
    """

    backbone: str
    """Fingerprint of the backbone."""
    num_classes: int
    """K."""
    own_heads: tuple[int, ...]
    """Stages after which the network has a classifier of its own."""
    poolings: Mapping[str, tuple[int, ...]]
    """Number of features of each stage, L numbers, by the registered name of the pooling."""
    views: tuple[Preprocessing, ...]
    """Preprocessing of each view; the first is without augmentation."""
    source: str
    """Name of the source."""
    num_rows: int
    """Number of rows of the source."""
    shard_rows: int
    """Rows of every shard but the last."""
    batch_size: int
    """Rows of a forward pass, all of one shard: the rounding of a row depends on the rest of its batch."""
    threads: int
    """Threads of torch in forward passes."""
    dtype: str
    """Precision of the features, a key of `DTYPES`."""

    @property
    def num_shards(self) -> int:
        """Number of shards."""
        return ceil(self.num_rows / self.shard_rows)

    @property
    def fingerprint(self) -> str:
        """Hash of backbone, poolings and preprocessing: stores with the same hash hold the same columns."""
        content = self.to_json()
        return json_sha256({key: content[key] for key in ("backbone", "poolings", "views", "dtype")})

    def rows_of(self, shard: int) -> range:
        """Return the row numbers of a shard."""
        return range(shard * self.shard_rows, min((shard + 1) * self.shard_rows, self.num_rows))

    def columns(self, rows: int) -> dict[str, Column]:
        """Return shape and type of the tensors of a shard with that many rows, by name."""
        views = len(self.views)
        columns = {
            f"features.{pooling}": Column((rows, views, sum(widths)), DTYPES[self.dtype])
            for pooling, widths in self.poolings.items()
        }
        for stage in self.own_heads:
            columns[f"logits.{stage}"] = Column((rows, views, self.num_classes), torch.float32)
        columns["labels"] = Column((rows,), torch.int64)
        columns["ids"] = Column((rows,), torch.int64)
        columns["sizes"] = Column((rows,), torch.float32)
        return columns

    @property
    def row_bytes(self) -> int:
        """Bytes of one row, all columns and views."""
        return sum(prod(column.shape) * column.dtype.itemsize for column in self.columns(1).values())

    def to_json(self) -> dict[str, Any]:
        """Return the plan as plain JSON values."""
        content = {**vars(self), "views": [view.describe() for view in self.views]}
        try:
            plain: dict[str, Any] = json.loads(json.dumps(content, allow_nan=False))
        except (TypeError, ValueError) as error:
            raise InputError(
                "preprocessing parameters",
                expected="numbers, strings, or lists of them",
                got=f"{content['views']}: {error}",
            ) from error
        return plain

    @classmethod
    def from_json(cls, content: Mapping[str, Any], path: Place) -> "Plan":
        """Make a plan from the content of the file `path`, after checking every field."""
        try:
            views = tuple(
                Preprocessing(tuple((name, dict(parameters)) for name, parameters in steps))
                for steps in content["views"]
            )
            poolings = {name: tuple(widths) for name, widths in content["poolings"].items()}
            own_heads = tuple(content["own_heads"])
            plan = cls(**{**content, "views": views, "poolings": poolings, "own_heads": own_heads})
            counts = [plan.num_classes, plan.num_rows, plan.shard_rows, plan.batch_size, plan.threads]
            counts += [width for widths in plan.poolings.values() for width in widths]
            valid = (
                all(type(count) is int and count > 0 for count in counts)
                and all(type(stage) is int and stage >= 0 for stage in plan.own_heads)
                and plan.views != ()
                and plan.dtype in DTYPES
                and isinstance(plan.backbone, str)
                and isinstance(plan.source, str)
                and plan.to_json() == content
            )
        except (AttributeError, InputError, KeyError, TypeError, ValueError):
            valid = False
        if not valid:
            raise CorruptFileError(f"{path} does not describe a feature store", hint="delete it and extract again")
        return plan


@dataclass(frozen=True)
class Entry:
    """Row range, size and hash of a shard, as its JSON file and the manifest record them."""

    start: int
    """First row."""
    stop: int
    """Last row plus 1."""
    bytes: int
    """Size of the file."""
    sha256: str
    """Hash of the file."""


def shard_path(path: AnyPlace, shard: int) -> AnyPlace:
    """Return the file of a shard."""
    return cast(AnyPlace, path / "shards" / f"{shard:06d}.safetensors")


def entry_path(path: AnyPlace, shard: int) -> AnyPlace:
    """Return the file of the entry of a shard."""
    return cast(AnyPlace, path / "shards" / f"{shard:06d}.json")


def write_shard(path: Place, plan: Plan, shard: int, columns: Mapping[str, Tensor]) -> Entry:
    """Write a shard, then its entry: a shard without an entry does not count."""
    rows = plan.rows_of(shard)
    with write_resumable(shard_path(path, shard)) as temporary:
        save_file(dict(columns), temporary)
        entry = Entry(rows.start, rows.stop, temporary.stat().st_size, file_sha256(temporary))
    write_checked_json(entry_path(path, shard), {**asdict(entry), "plan": json_sha256(plan.to_json())})
    return entry


def is_finished(path: Place, plan: Plan, shard: int) -> bool:
    """Return whether a shard is there and all its bytes match its entry."""
    try:
        return file_sha256(shard_path(path, shard)) == read_entry(path, plan, shard).sha256
    except StoreError:
        return False


def read_entry(path: Place, plan: Plan, shard: int) -> Entry:
    """Read the entry of a shard; refuse one of another plan."""
    file = entry_path(path, shard)
    content = read_checked_json(file)
    rows = plan.rows_of(shard)
    required = {"plan": json_sha256(plan.to_json()), "start": rows.start, "stop": rows.stop}
    if content.keys() != {"plan", "start", "stop", "bytes", "sha256"} or not required.items() <= content.items():
        raise CorruptFileError(f"{file} does not match the plan of this store", hint=REDO)
    return Entry(rows.start, rows.stop, content["bytes"], content["sha256"])


def map_shard(file: Path, plan: Plan, shard: int) -> dict[str, Tensor]:
    """Map the columns of a shard's file into memory, after checking names, shapes and types."""
    expected = plan.columns(len(plan.rows_of(shard)))
    try:
        with safe_open(file, framework="pt") as opened:
            columns: dict[str, Tensor] = {name: opened.get_tensor(name) for name in expected}
    except (OSError, SafetensorError) as error:
        raise CorruptFileError(f"cannot map {file}: {error}", hint=RESTORE) from error
    for name, column in columns.items():
        if Column(tuple(column.shape), column.dtype) != expected[name]:
            raise CorruptFileError(
                f"'{name}' in {file}",
                expected=f"{expected[name].dtype} of shape {expected[name].shape}",
                got=f"{column.dtype} of shape {tuple(column.shape)}",
                hint=REDO,
            )
    return columns


def check_size(file: Place, entry: Entry) -> None:
    """Refuse a shard file of another size than its entry says."""
    try:
        size = place_size(file)
    except OSError as error:
        raise StoreError(f"cannot read {file}: {error}", hint=RESTORE) from error
    if size != entry.bytes:
        raise CorruptFileError(
            f"size of {file}",
            expected=f"{entry.bytes} bytes",
            got=f"{size} bytes",
            hint="run the same extraction again: it redoes only this shard",
        )
