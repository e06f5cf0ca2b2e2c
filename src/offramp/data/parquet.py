"""Parquet: one file, or a folder of shards; of each only the row groups that are asked for."""

import json
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

from offramp.data.arrow import ArrowInputs, label_values
from offramp.data.dataset import Dataset, StoredDataset
from offramp.data.identity import files_digest, joint_digest, large_file_digest
from offramp.data.labels import Labels, read_labels, unlabelled
from offramp.data.location import Location, folder_name, names_in, opened
from offramp.data.selection import Selection
from offramp.data.shards import find_shards, is_shard_name, map_shards
from offramp.data.unpacking import check_unpacked
from offramp.errors import InputError, MissingExtraError

try:
    import pyarrow
    from pyarrow import parquet
except ImportError as error:
    raise MissingExtraError("reading Parquet needs pyarrow; pip install 'offramp[parquet]'") from error

__all__ = ["open_parquet"]


def open_parquet(path: Location, selection: Selection) -> Dataset:
    """Open a Parquet file or a folder of `*.parquet` shards, in the order of their names.

    Columns are chosen as in other tables, and read by their types: see `ArrowInputs`. Class names that Hugging Face
    left in the file count.

    Args:
        path: The file or folder; of a folder without shards, as the Hugging Face hub has them, the folder `data` in it.
            Paths of images count from the folder of the shards.
        selection: `split` chooses among shards called `train.parquet`, `train-00000-of-00002.parquet` and the like.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     table = pyarrow.table({"text": ["purrs", "barks"], "label": ["cat", "dog"]})
        ...     parquet.write_table(table, Path(folder, "pets.parquet"))
        ...     rows = open_parquet(Path(folder, "pets.parquet"), Selection()).read(0, 2)
        >>> rows.inputs, rows.labels.tolist()
        (['purrs', 'barks'], [0, 1])
    """
    whole = path.is_file()
    if whole:
        selection.refuse_split(path)
    folder, files = (path.parent, [path.name]) if whole else _found(path, selection)
    groups = _RowGroups(folder, files)
    columns = selection.columns(groups.schema.names)
    groups.check_types([*columns.inputs, *([columns.label] if columns.label else [])])
    first = groups.read(0, 1, columns.inputs)
    make = ArrowInputs(first, folder=folder, chosen=selection.column is not None)
    content = large_file_digest(path) if whole else files_digest(folder, files)
    images: Sequence[str]
    images, sizes = make.files(groups.pieces(columns.inputs[0])) if make.may_name_files else ((), ())
    return StoredDataset(
        _Inputs(groups, make, columns.inputs),
        _labels(path, groups, columns.label, selection),
        stem="-".join(part for part in (path.stem if whole else folder_name(path), selection.split) if part),
        content=joint_digest(content, files_digest(folder, images, sizes)) if images else content,
        columns=columns.inputs,
        keys=images if len(images) == len(groups) else (),
    )


def _found(path: Location, selection: Selection) -> tuple[Location, list[str]]:
    """The folder of the shards, and their names."""
    # As the Hugging Face hub has them, they are one folder further.
    here = any(is_shard_name(name, ".parquet") for name in names_in(path))
    folder = path if here else path / "data"
    return folder, find_shards(folder, selection, ".parquet")


@dataclass(frozen=True)
class _Inputs:
    """Rows as inputs."""

    groups: "_RowGroups"
    make: ArrowInputs
    names: tuple[str, ...]

    def __call__(self, start: int, stop: int) -> Any:
        return self.make(self.groups.read(start, stop, self.names), start)


def _labels(path: Location, groups: "_RowGroups", label: str | None, selection: Selection) -> Labels:
    if label is None:
        return unlabelled(len(groups), selection.classes)
    values = label_values(groups.column(label), place=f"column '{label}' of {path}")
    names = _class_names(groups.schema.metadata or {}, label)
    return read_labels(values, classes=selection.classes, names=names, place=lambda row: f"row {row} of {path}")


def _class_names(metadata: dict[bytes, bytes], label: str) -> Sequence[str]:
    try:
        names = json.loads(metadata[b"huggingface"])["info"]["features"][label]["names"]
    except (KeyError, TypeError, ValueError):
        return ()
    return names if isinstance(names, list) and all(isinstance(name, str) for name in names) else ()


class _RowGroups:
    """Row groups of files one after the other; the last one read is kept, as the next rows are likely from it."""

    def __init__(self, folder: Location, names: Sequence[str]) -> None:
        self._groups: list[tuple[Location, int]] = []
        self._schemas: dict[Location, Any] = {}
        rows: list[int] = []
        footers = map_shards(_footer, folder, names)
        self.schema = footers[0][0]
        for name, (schema, counts) in zip(names, footers, strict=True):
            # One object for all shards that agree, as thousands of them do.
            self._schemas[folder / name] = self.schema if schema.equals(self.schema) else schema
            for group, count in enumerate(counts):
                if count:
                    self._groups.append((folder / name, group))
                    rows.append(count)
        if not rows:
            raise InputError(f"{folder / names[0]} is empty; give at least one row")
        self._starts = [0, *accumulate(rows)]
        self._forget()

    def __getstate__(self) -> dict[str, Any]:
        # Another process reads its own rows.
        return {name: value for name, value in vars(self).items() if name not in ("_kept", "_metadata")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._forget()

    def _forget(self) -> None:
        self._kept: tuple[Any, Any] = (None, None)
        self._metadata: tuple[Any, Any] = (None, None)

    def __len__(self) -> int:
        return self._starts[-1]

    def check_types(self, names: Sequence[str]) -> None:
        """Refuse shards in which a column is missing or of another type than in the first."""
        for file, schema in self._schemas.items():
            for name in names:
                kind = schema.field(name).type if name in schema.names else "no such column"
                if kind != self.schema.field(name).type:
                    expected = self.schema.field(name).type
                    raise InputError(f"expected '{name}' in {file} as {expected}, as in the first shard, got {kind}")

    def read(self, start: int, stop: int, names: Sequence[str]) -> Any:
        """Columns `names` of rows `start` to `stop - 1`, as one table."""
        at = bisect_right(self._starts, start, hi=len(self._groups)) - 1
        pieces = [self._slice(at, start, stop, names)]
        while self._starts[at + 1] < stop:
            at += 1
            pieces.append(self._slice(at, self._starts[at], stop, names))
        return pyarrow.concat_tables(pieces)

    def pieces(self, name: str) -> Iterator[tuple[int, Any]]:
        """First row and table of each row group, but not where `<name>.bytes` is known to be there in every row.

        Images are mostly in the file, and then to look for paths must not mean to read them all.
        """
        for at, (file, group) in enumerate(self._groups):
            with _opened(file) as opened:
                facts = opened.metadata.row_group(group)
                chunks = (facts.column(place) for place in range(facts.num_columns))
                inside = next((chunk for chunk in chunks if chunk.path_in_schema == f"{name}.bytes"), None)
                counts = inside.statistics if inside is not None else None
                filled = counts is not None and counts.has_null_count and counts.null_count == 0
            if not filled:
                yield self._starts[at], self._slice(at, self._starts[at], self._starts[at + 1], [name])

    def column(self, name: str) -> Any:
        """One column of all rows."""
        pieces = []
        for file in self._schemas:
            with _opened(file) as opened:
                _check_growth(file, opened.metadata, range(opened.metadata.num_row_groups), [name])
                pieces.append(opened.read(columns=[name]).select([name]).replace_schema_metadata())
        return pyarrow.concat_tables(pieces).column(name)

    def _slice(self, at: int, start: int, stop: int, names: Sequence[str]) -> Any:
        key = (at, tuple(names))
        kept_key, table = self._kept
        if kept_key != key:
            file, group = self._groups[at]
            known, metadata = self._metadata
            # A store answers slowly: the end of a file, which says where its columns lie, is fetched once.
            with _opened(file, metadata if known == file else None) as opened:
                _check_growth(file, opened.metadata, [group], names)
                table = opened.read_row_group(group, columns=list(names)).select(list(names)).replace_schema_metadata()
                self._metadata = (file, opened.metadata)
            self._kept = (key, table)
        first = self._starts[at]
        return table.slice(start - first, min(stop, self._starts[at + 1]) - start)


def _check_growth(file: Location, metadata: Any, groups: Iterable[int], names: Sequence[str]) -> None:
    """Refuse columns that take too much memory unpacked; equal numbers may be stored once, but take 8 bytes each."""
    needed = packed = 0
    for facts in map(metadata.row_group, groups):
        for chunk in map(facts.column, range(facts.num_columns)):
            if chunk.path_in_schema.partition(".")[0] in names:
                needed += max(chunk.total_uncompressed_size, 8 * chunk.num_values)
                packed += chunk.total_compressed_size
    check_unpacked(needed, packed=packed, place=str(file))


def _footer(file: Location) -> tuple[Any, list[int]]:
    """Schema of a file, and how many rows each of its row groups has."""
    with _opened(file) as opened:
        facts = opened.metadata
        return opened.schema_arrow, [facts.row_group(group).num_rows for group in range(facts.num_row_groups)]


@contextmanager
def _opened(file: Location, metadata: Any = None) -> Iterator[Any]:
    try:
        if isinstance(file, Path):
            with parquet.ParquetFile(file, metadata=metadata) as reader:
                yield reader
        else:
            # What a row group needs is fetched together, and nothing beyond.
            with (
                opened(file, ahead=False) as stream,
                parquet.ParquetFile(stream, metadata=metadata, pre_buffer=True) as reader,
            ):
                yield reader
    except (pyarrow.ArrowException, OSError) as error:
        raise InputError(f"{file} cannot be read as Parquet: {error}; write it anew") from error
