"""Parquet: one file, or a folder of shards; of each only the row groups that are asked for."""

import json
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate
from pathlib import Path
from typing import Any

from offramp.data.arrow import ArrowInputs, label_values
from offramp.data.dataset import Dataset, StoredDataset
from offramp.data.identity import file_digest, files_digest, joint_digest
from offramp.data.labels import Labels, read_labels, unlabelled
from offramp.data.selection import Selection
from offramp.data.splits import choose_split, split_of_file
from offramp.errors import InputError, MissingExtraError

try:
    import pyarrow
    from pyarrow import parquet
except ImportError as error:
    raise MissingExtraError("reading Parquet needs pyarrow; pip install 'offramp[parquet]'") from error

__all__ = ["open_parquet"]


def open_parquet(path: Path, selection: Selection) -> Dataset:
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
    files = [path] if whole else _shards(path, selection)
    groups = _RowGroups(files)
    columns = selection.columns(groups.schema.names)
    groups.check_types([*columns.inputs, *([columns.label] if columns.label else [])])
    first = groups.read(0, 1, columns.inputs)
    make = ArrowInputs(first, folder=files[0].parent, chosen=selection.column is not None)
    content = file_digest(path) if whole else files_digest([(file.name, file) for file in files])
    images = make.files(groups.pieces(columns.inputs[0])) if make.may_name_files else []
    return StoredDataset(
        lambda start, stop: make(groups.read(start, stop, columns.inputs), start),
        _labels(path, groups, columns.label, selection),
        stem="-".join(part for part in (path.stem if whole else path.resolve().name, selection.split) if part),
        content=joint_digest(content, files_digest(images)) if images else content,
        columns=columns.inputs,
        keys=[name for name, _ in images] if len(images) == len(groups) else (),
    )


def _shards(path: Path, selection: Selection) -> list[Path]:
    files = sorted(path.glob("[!.]*.parquet")) or sorted(path.glob("data/[!.]*.parquet"))
    split_of = {file: split_of_file(file) for file in files}
    splits = sorted({split for split in split_of.values() if split is not None})
    if not splits:
        selection.refuse_split(path)
    if selection.split is None and len({*split_of.values()}) == 1:
        return files
    split = choose_split(path, selection.split, splits)
    return [file for file in files if split_of[file] == split]


def _labels(path: Path, groups: "_RowGroups", label: str | None, selection: Selection) -> Labels:
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

    def __init__(self, files: Sequence[Path]) -> None:
        self._groups: list[tuple[Path, int]] = []
        self._schemas: dict[Path, Any] = {}
        rows: list[int] = []
        for file in files:
            with _opened(file) as opened:
                self._schemas[file] = opened.schema_arrow
                for group in range(opened.metadata.num_row_groups):
                    count = opened.metadata.row_group(group).num_rows
                    if count:
                        self._groups.append((file, group))
                        rows.append(count)
        if not rows:
            raise InputError(f"{files[0]} is empty; give at least one row")
        self.schema = self._schemas[files[0]]
        self._starts = [0, *accumulate(rows)]
        self._kept: tuple[Any, Any] = (None, None)

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
                pieces.append(opened.read(columns=[name]).select([name]).replace_schema_metadata())
        return pyarrow.concat_tables(pieces).column(name)

    def _slice(self, at: int, start: int, stop: int, names: Sequence[str]) -> Any:
        key = (at, tuple(names))
        kept_key, table = self._kept
        if kept_key != key:
            file, group = self._groups[at]
            with _opened(file) as opened:
                table = opened.read_row_group(group, columns=list(names)).select(list(names)).replace_schema_metadata()
            self._kept = (key, table)
        first = self._starts[at]
        return table.slice(start - first, min(stop, self._starts[at + 1]) - start)


@contextmanager
def _opened(file: Path) -> Iterator[Any]:
    try:
        with parquet.ParquetFile(file) as opened:
            yield opened
    except (pyarrow.ArrowException, OSError) as error:
        raise InputError(f"{file} cannot be read as Parquet: {error}; write it anew") from error
