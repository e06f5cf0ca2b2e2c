"""Data that the Hugging Face library `datasets` reads: Parquet, JSON, Arrow, WebDataset, addresses."""

import glob
from collections.abc import Iterator, Sequence
from copy import copy
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from offramp.data._columns import Names
from offramp.data._dataset import Dataset, StoredDataset, check_numbers
from offramp.data._files import hash_files, hash_parts
from offramp.data._formats import Selection, choose_split
from offramp.data._images import check_files, decode_image, import_pillow, is_image_name
from offramp.data._labels import Labels, read_label_blocks
from offramp.errors import InputError, MissingExtraError

try:
    import datasets
    from pyarrow import types
except ImportError as error:
    raise MissingExtraError("reading this data needs datasets", hint="pip install 'offramp[datasets]'") from error

__all__ = ["open_files", "open_huggingface", "open_saved"]

BUILDERS = {
    ".arrow": "arrow",
    ".csv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".parquet": "parquet",
    ".tar": "webdataset",
    ".tsv": "csv",
    ".txt": "text",
}
"""Name of the reader of each kind of file in `datasets.load_dataset`."""

BLOCK_ROWS = 1000  # read together to find paths of images
LABEL_ROWS = 1 << 16  # labels that are read together


def open_saved(path: Path, selection: Selection) -> Dataset:
    """Open a folder that `save_to_disk` of `datasets.Dataset` or `datasets.DatasetDict` wrote.

    Args:
        path: The folder. Paths of images are relative to it.
        selection: `split` selects from a `DatasetDict`.
    """
    try:
        saved = datasets.load_from_disk(str(path))
    except Exception as error:  # it may raise anything, for an empty dataset too
        raise InputError(
            f"{path} is empty or cannot be read as a saved dataset: {error}", hint="save it again"
        ) from error
    folder = path
    if isinstance(saved, datasets.DatasetDict):
        split = choose_split(path, selection.split, list(saved))
        folder, saved = path / split, saved[split]
    else:
        selection.refuse_split(path)
    stem = "-".join(part for part in (path.resolve().name, selection.split) if part)
    return open_huggingface(saved, selection, stem=stem, folder=folder)


def open_files(place: str | Path, selection: Selection) -> Dataset:
    """Open files with `datasets.load_dataset`, which keeps an Arrow copy of them in its cache.

    Args:
        place: A file, a pattern such as `shards/*.parquet`, or the address of either, such as
            `hf://datasets/user/pets/data/train-*.parquet`. Paths of images are relative to the folder of a file.
        selection: Columns and classes to read; files have no splits.
    """
    selection.refuse_split(place)
    name = Path(str(place).lower().removesuffix(".gz"))
    if name.suffix not in BUILDERS:
        raise InputError(expected=f"files that end with {', '.join(BUILDERS)}", got=str(place))
    options = {"sep": "\t"} if name.suffix == ".tsv" else {}
    # In the name of a single file, no character is part of a pattern.
    files = glob.escape(str(place)) if isinstance(place, Path) and place.exists() else str(place)
    try:
        loaded = datasets.load_dataset(BUILDERS[name.suffix], data_files=files, split="train", **options)
    except Exception as error:  # it may raise anything
        raise InputError(f"{place} cannot be read by datasets: {error.__cause__ or error}") from error
    folder = place.parent if isinstance(place, Path) else Path()
    stem = Path(place).name[: len(name.stem)]
    return open_huggingface(loaded, selection, stem=stem, folder=folder)


def open_huggingface(
    dataset: "datasets.Dataset", selection: Selection, *, stem: str = "dataset", folder: Path = Path()
) -> Dataset:
    """Read a `datasets.Dataset`.

    Columns are selected as in other tables, and read by their types. Texts are a list. Images are a list of decoded
    arrays; an image is the feature `Image`, bytes, or a path in a column that is called `image`, or that the caller
    names and whose first cell has the suffix of an image. Lists of numbers are an array, several such columns a
    dictionary; columns of single numbers together are one `N x D` array of float32. The names of a `ClassLabel` are the
    classes; if its labels are all -1, as in many test splits, the data is unlabelled.

    Args:
        dataset: The dataset; a format such as "torch" makes no difference.
        selection: Columns and classes to read.
        stem: First part of the name of the result.
        folder: The folder that paths of images are relative to.

    Example:
        >>> pets = datasets.Dataset.from_dict({"text": ["purrs", "barks"], "label": ["cat", "dog"]})
        >>> rows = open_huggingface(pets, Selection()).read(0, 2)
        >>> rows.inputs, rows.labels.tolist()
        (['purrs', 'barks'], [0, 1])
    """
    if not isinstance(dataset, datasets.Dataset):
        raise InputError(
            expected="a path, an address or a datasets.Dataset",
            got=type(dataset).__name__,
            hint="of a DatasetDict give one split: data['train']",
        )
    if dataset.format["type"] == "custom":
        raise InputError(
            expected="a dataset without set_transform", got="one with it", hint="use dataset.map(...) instead"
        )
    columns = selection.columns(dataset.column_names)
    # As Arrow, images are decoded here, from bytes or local files; `datasets` would follow addresses.
    rows = dataset.with_format("arrow")
    inputs = _Inputs(rows.select_columns(list(columns.inputs)), folder=folder, named=selection.column is not None)
    content = str(dataset._fingerprint)  # depends on the content, or on its origin
    files = Names(check_files(inputs.files(), folder))
    return StoredDataset(
        inputs,
        _read_labels(rows, columns.label, selection),
        stem=stem,
        content=hash_parts(content, hash_files(folder, files)) if len(files) else content,
        columns=columns.inputs,
        keys=files if len(files) == len(dataset) else None,
    )


def _read_labels(rows: Any, label: str | None, selection: Selection) -> Labels:
    if label is None:
        return Labels.missing(len(rows), selection.classes)
    feature = rows.features[label]
    names = feature.names if isinstance(feature, datasets.ClassLabel) else ()
    place = f"row {{}} of column '{label}'".format
    return read_label_blocks(_read_cells(rows, label), classes=selection.classes, names=names, place=place)


def _read_cells(rows: Any, label: str) -> Iterator[list[Any]]:
    """Yield the labels in blocks: integers, texts or None."""
    column = rows.select_columns([label])
    for start in range(0, len(rows), LABEL_ROWS):
        cells = _flatten(column[start : start + LABEL_ROWS].column(label))
        if not (_is_text(cells.type) or types.is_integer(cells.type) or types.is_boolean(cells.type)):
            if cells.null_count < len(cells):
                raise InputError(
                    expected=f"integers or texts in column '{label}'", got=str(cells.type), hint="convert them"
                )
        yield cells.to_pylist()


class _Inputs:
    """A function that returns the inputs of rows `start` to `stop - 1`, by the types of the columns."""

    def __init__(self, rows: Any, *, folder: Path, named: bool) -> None:
        self._rows, self._folder, self._first = rows, folder, 0
        self._names: Sequence[str] = rows.column_names
        first = [_flatten(rows[:1].column(name)) for name in self._names]
        kinds = [cells.type for cells in first]
        kind, name = kinds[0], self._names[0]
        if len(kinds) == 1 and (_is_text(kind) or _is_image(kind)):
            path = (
                named
                and name != "text"
                and _is_text(kind)
                and len(first[0]) > 0
                and is_image_name(str(first[0][0].as_py()))
            )
            self._kind = "texts" if _is_text(kind) and name != "image" and not path else "images"
            if self._kind == "images":
                import_pillow()  # raise now if it is missing, not at the first row
        elif all(map(_is_number, kinds)):
            self._kind = "matrix"
        elif all(map(_is_list, kinds)):
            self._kind = "arrays"
        else:
            shown = ", ".join(f"{name} ({kind})" for name, kind in zip(self._names, kinds, strict=True))
            raise InputError(
                expected="a column text or image, or numbers only",
                got=shown,
                hint="name the column to read: column=...",
            )

    def __call__(self, start: int, stop: int) -> Any:
        read = {"texts": self._texts, "images": self._images, "matrix": self._matrix, "arrays": self._arrays}[
            self._kind
        ]
        begin, end = start - self._first, stop - self._first
        return read(self._rows[begin:end] if start < stop else self._rows[:1].slice(1), start)

    def part(self, start: int, stop: int) -> "_Inputs":
        """Return the inputs of these rows only."""
        part = copy(self)
        part._rows, part._first = self._rows.select(range(start - self._first, stop - self._first)), start
        return part

    def files(self) -> Iterator[tuple[str, str]]:
        """Yield place and path of each image that is given by its path."""
        if self._kind != "images":
            return
        for start in range(0, len(self._rows), BLOCK_ROWS):
            cells = _flatten(self._rows[start : start + BLOCK_ROWS].column(self._names[0]))
            for row, path in enumerate(_paths(cells), start):
                if path is None:
                    raise InputError(
                        f"{self._place(row)} has neither bytes nor a path", hint="fill it in or leave it out"
                    )
                if path:
                    yield self._place(row), path

    def _texts(self, table: Any, start: int) -> list[str]:
        texts: list[str] = self._cells(table, self._names[0], start).to_pylist()
        return texts

    def _images(self, table: Any, start: int) -> list[npt.NDArray[np.uint8]]:
        cells = self._cells(table, self._names[0], start).to_pylist()
        values = [cell if not isinstance(cell, dict) else cell["bytes"] or cell["path"] or b"" for cell in cells]
        return [
            decode_image(self._folder / value if isinstance(value, str) else value, place=self._place(row))
            for row, value in enumerate(values, start)
        ]

    def _matrix(self, table: Any, start: int) -> npt.NDArray[np.float32]:
        return np.stack([self._numbers(table, name, start) for name in self._names], 1).astype(np.float32)

    def _arrays(self, table: Any, start: int) -> Any:
        arrays = {name: self._numbers(table, name, start) for name in self._names}
        return arrays if len(arrays) > 1 else next(iter(arrays.values()))

    def _numbers(self, table: Any, name: str, start: int) -> npt.NDArray[Any]:
        values = _array(self._cells(table, name, start), f"column '{name}' from row {start} on")
        check_numbers(values, lambda row: self._place(start + row, name))
        return values.astype(np.float32) if values.dtype.kind == "f" else values

    def _cells(self, table: Any, name: str, start: int) -> Any:
        cells = _flatten(table.column(name))
        if cells.null_count:
            row = start + cells.is_null().to_pylist().index(True)
            raise InputError(
                expected="no empty cells", got=f"one in {self._place(row, name)}", hint="fill it in or leave it out"
            )
        return cells

    def _place(self, row: int, name: str | None = None) -> str:
        return f"row {row} of column '{name or self._names[0]}'"


def _flatten(column: Any) -> Any:
    """Return a column as one Arrow array without dictionaries and extension types."""
    cells = column.combine_chunks()
    if types.is_dictionary(cells.type):
        cells = cells.dictionary_decode()
    return getattr(cells, "storage", cells)


def _paths(cells: Any) -> Iterator[str | None]:
    """Yield the path of each image: empty if the image has bytes, None if it has neither."""
    if _is_text(cells.type):
        yield from (path or None for path in cells.to_pylist())
    elif types.is_struct(cells.type):
        # By field: whole cells would bring all bytes into memory.
        empty = cells.field("bytes").is_null().to_pylist()
        paths = cells.field("path").to_pylist()
        yield from ((path or None) if none else "" for none, path in zip(empty, paths, strict=True))


def _array(cells: Any, place: str) -> npt.NDArray[Any]:
    """Return numbers, or lists of numbers of equal lengths, as an array."""
    shape = [len(cells)]
    while _is_list(cells.type):
        lengths = sorted(set(cells.value_lengths().to_pylist()))
        if len(lengths) > 1:
            raise InputError(expected=f"lists of one length in {place}", got=lengths, hint="pad them")
        shape.append(lengths[0] if lengths else 0)
        cells = cells.flatten()
        if cells.null_count:
            raise InputError(
                expected=f"no empty cells in the lists of {place}", got=cells.null_count, hint="fill them in"
            )
    values = np.array(cells.to_numpy(zero_copy_only=False))
    if values.dtype.kind not in "biuf":
        raise InputError(
            expected=f"numbers in {place}", got=str(cells.type), hint="name the column to read: column=..."
        )
    return values.reshape(shape)


def _is_text(kind: Any) -> bool:
    return bool(types.is_string(kind) or types.is_large_string(kind))


def _is_image(kind: Any) -> bool:
    struct = types.is_struct(kind) and min(kind.get_field_index("bytes"), kind.get_field_index("path")) >= 0
    return bool(struct or types.is_binary(kind) or types.is_large_binary(kind))


def _is_number(kind: Any) -> bool:
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind))


def _is_list(kind: Any) -> bool:
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))
