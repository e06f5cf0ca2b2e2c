"""What an extraction writes, settled before its first row and recorded in the store."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, prod
from pathlib import Path
from typing import Any

import torch

from offramp.backbone import Preprocessing
from offramp.errors import CorruptFileError, InputError
from offramp.features.sealed import seal

__all__ = ["DTYPES", "Column", "Plan"]

DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}
"""Precisions features can be stored in."""


@dataclass(frozen=True)
class Column:
    """One tensor of a shard."""

    shape: tuple[int, ...]
    """Rows first; then views and width, where a view has its own."""
    dtype: torch.dtype


@dataclass(frozen=True)
class Plan:
    """Everything a store's bytes depend on, apart from the samples themselves.

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
    """Stages after which the network brings a classifier of its own."""
    poolings: Mapping[str, tuple[int, ...]]
    """Features of each stage, L numbers, by the pooling's registered name."""
    views: tuple[Preprocessing, ...]
    """How each view is prepared; the first is the clean one."""
    source: str
    """Name of the source."""
    num_rows: int
    """Rows of the source."""
    shard_rows: int
    """Rows of every shard but the last."""
    batch_size: int
    """Rows of a forward pass, which never reaches into the next shard: rounding depends on who shares a batch."""
    threads: int
    """Threads of torch during the forward passes."""
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
        return seal({key: content[key] for key in ("backbone", "poolings", "views", "dtype")})

    def rows_of(self, shard: int) -> range:
        """The rows a shard holds."""
        return range(shard * self.shard_rows, min((shard + 1) * self.shard_rows, self.num_rows))

    def columns(self, rows: int) -> dict[str, Column]:
        """The tensors of a shard of that many rows, by name."""
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
        """The plan as JSON holds it."""
        content = {**vars(self), "views": [view.describe() for view in self.views]}
        try:
            plain: dict[str, Any] = json.loads(json.dumps(content, allow_nan=False))
        except (TypeError, ValueError) as error:
            raise InputError(
                f"preprocessing parameters must be numbers, strings, or lists of them: {error}; got {content['views']}"
            ) from error
        return plain

    @classmethod
    def from_json(cls, content: Mapping[str, Any], path: Path | str) -> "Plan":
        """Read a plan back from the content of the file `path`, trusting nothing about it."""
        try:
            plan = cls(
                backbone=content["backbone"],
                num_classes=content["num_classes"],
                own_heads=tuple(content["own_heads"]),
                poolings={name: tuple(widths) for name, widths in content["poolings"].items()},
                views=tuple(
                    Preprocessing(tuple((name, dict(parameters)) for name, parameters in steps))
                    for steps in content["views"]
                ),
                source=content["source"],
                num_rows=content["num_rows"],
                shard_rows=content["shard_rows"],
                batch_size=content["batch_size"],
                threads=content["threads"],
                dtype=content["dtype"],
            )
            counts = [plan.num_classes, plan.num_rows, plan.shard_rows, plan.batch_size, plan.threads]
            counts += [width for widths in plan.poolings.values() for width in widths]
            sensible = (
                all(type(count) is int and count > 0 for count in counts)
                and all(type(stage) is int and stage >= 0 for stage in plan.own_heads)
                and plan.own_heads != ()
                and plan.views != ()
                and plan.dtype in DTYPES
                and isinstance(plan.backbone, str)
                and isinstance(plan.source, str)
                and plan.to_json() == content
            )
        except (AttributeError, InputError, KeyError, TypeError, ValueError):
            sensible = False
        if not sensible:
            raise CorruptFileError(f"{path} does not describe a feature store; delete it and extract again")
        return plan
