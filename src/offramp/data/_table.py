"""CSV, TSV and plain text files: a column of texts or of image paths, or columns of numbers."""

import csv
import gzip
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any, BinaryIO, TextIO, cast

import numpy as np
import numpy.typing as npt

from offramp.data._dataset import Dataset, StoredDataset, find_unfit
from offramp.data._files import allowed_bytes, check_unpacked, hash_file, hash_files, hash_parts
from offramp.data._formats import Selection
from offramp.data._images import check_files, is_image_name, make_reader
from offramp.data._labels import Labels, read_labels
from offramp.errors import InputError

__all__ = ["Cells", "open_table", "read_cells"]

CHARACTER_BYTES, CELL_BYTES, ROW_BYTES = 5, 30, 150
"""Approximate memory of a table while it is read: 4 bytes per character in the csv module, and the cells."""

BLOCK_BYTES = 1 << 20  # unpacked at a time to count the content
LONGEST_CELL = 2**31 - 1  # the largest C long everywhere; Python's default, 131072, is too little for long documents


def open_table(path: Path, selection: Selection) -> Dataset:
    """Open a CSV, TSV or text file; its cells are read at once, images on demand.

    Args:
        path: The file. Paths of images are relative to its folder.
        selection: `column` names a column of texts, or of image paths if the first cell has the suffix of an image. By
            default, the inputs are the column `text`, else `image`, else all columns but the label, as numbers.
    """
    selection.refuse_split(path)
    cells = read_cells(path)
    columns = selection.columns(cells.header)
    content = hash_file(path)
    labels = Labels.missing(len(cells.rows), selection.classes)
    if columns.label is not None:
        values = cells.column(columns.label)
        labels = read_labels(values, classes=selection.classes, place=lambda row: f"line {cells.lines[row]} of {path}")
    inputs: Callable[[int, int], Any]
    keys: Sequence[str] = ()
    if _are_images(cells, columns.inputs, selection):
        places = (f"line {line} of {path}" for line in cells.lines)
        keys = check_files(zip(places, cells.column(columns.inputs[0]), strict=True), path.parent)
        # The content of the images counts too: the same paths may hold other images.
        content = hash_parts(content, hash_files(path.parent, keys))
        inputs = make_reader(path.parent, keys)
    elif columns.inputs == ("text",) or selection.column is not None:
        inputs = partial(_read_rows, cells.column(columns.inputs[0]))
    else:
        inputs = partial(_read_rows, _read_numbers(path, cells, columns.inputs))
    stem = path.name[: path.name.lower().removesuffix(".gz").rindex(".")]
    return StoredDataset(inputs, labels, stem=stem, content=content, columns=columns.inputs, keys=keys)


def _read_rows(values: Any, start: int, stop: int) -> Any:
    return values[start:stop].copy()


@dataclass(frozen=True)
class Cells:
    """A table of texts."""

    header: list[str]
    """Names of the columns."""
    rows: list[list[str]]
    """One list per row, with one cell per column."""
    lines: list[int]
    """Line of the file in which each row ends, from 1."""

    def column(self, name: str) -> list[str]:
        """Return the cells of one column."""
        place = self.header.index(name)
        return [row[place] for row in self.rows]


def read_cells(path: Path) -> Cells:
    r"""Read a text file, gzipped if its name ends with `.gz`.

    `.csv` has a header and the usual quotes. `.tsv` has a header and no quotes; of two columns, the second may contain
    tabs. `.txt` has one text per line, a column called `text`. Empty lines at the end are ignored.

    Args:
        path: The file, in UTF-8.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     _ = Path(folder, "pets.tsv").write_text('label\ttext\n0\ta "quote\n')
        ...     cells = read_cells(Path(folder, "pets.tsv"))
        >>> cells.header, cells.rows, cells.lines
        (['label', 'text'], [['0', 'a "quote']], [2])
    """
    kind = path.name.lower().removesuffix(".gz").rpartition(".")[2]
    try:
        with _open(path, newline="" if kind == "csv" else "\n") as file:
            records = list(RECORDS[kind](file))
    except (OSError, EOFError, zlib.error, UnicodeError, csv.Error) as error:
        raise InputError(f"{path} cannot be read as {kind.upper()} in UTF-8: {error}", hint="write it again") from error
    while records and not records[-1][1]:
        records.pop()
    if not records:
        raise InputError(f"{path} is empty", hint="give at least one row")
    if kind == "txt":
        return Cells(["text"], [cells or [""] for _, cells in records], [line for line, _ in records])
    header = [name.strip() for name in records[0][1]]
    for line, cells in records[1:]:
        if len(cells) != len(header):
            raise InputError(
                f"line {line} of {path}",
                expected=f"{len(header)} cells, as in the header",
                got=str(len(cells)),
                hint="put cells that contain the separator in quotes, which only CSV has",
            )
    return Cells(header, [cells for _, cells in records[1:]], [line for line, _ in records[1:]])


@contextmanager
def _open(path: Path, newline: str) -> Iterator[TextIO]:
    limit = csv.field_size_limit(LONGEST_CELL)
    try:
        with open(path, "rb") as stream:
            content = _unpack(path, stream.read()) if path.name.lower().endswith(".gz") else stream
            with TextIOWrapper(content, encoding="utf-8-sig", newline=newline) as file:
                yield file
    finally:
        csv.field_size_limit(limit)


def _unpack(path: Path, packed: bytes) -> BinaryIO:
    """Return a stream of an unpacked table, after checking that the table fits into the memory allowed."""
    enough, needed = 16 * allowed_bytes(len(packed)), 0  # far beyond the limit, so that the message has the full size
    with gzip.GzipFile(fileobj=BytesIO(packed)) as file:
        while needed <= enough and (block := file.read(BLOCK_BYTES)):
            rows = block.count(b"\n")
            cells = rows + block.count(b",") + block.count(b"\t")
            needed += CHARACTER_BYTES * len(block) + CELL_BYTES * cells + ROW_BYTES * rows
    check_unpacked(needed, packed=len(packed), place=str(path))
    return cast(BinaryIO, gzip.GzipFile(fileobj=BytesIO(packed)))


def _csv(file: TextIO) -> Iterator[tuple[int, list[str]]]:
    reader = csv.reader(file, strict=True)  # an open quote would otherwise swallow the rest of the file
    try:
        for cells in reader:
            yield reader.line_num, cells
    except csv.Error as error:
        raise csv.Error(f"line {reader.line_num}: {error}") from error


def _tsv(file: TextIO) -> Iterator[tuple[int, list[str]]]:
    most = -1
    for number, texts in _txt(file):
        cells = texts[0].split("\t", most) if texts else []
        if number == 1 and len(cells) == 2:
            most = 1
        yield number, cells


def _txt(file: TextIO) -> Iterator[tuple[int, list[str]]]:
    for number, line in enumerate(file, 1):
        text = line.removesuffix("\n").removesuffix("\r")
        yield number, [text] if text else []


RECORDS = {"csv": _csv, "tsv": _tsv, "txt": _txt}
"""Functions that yield line numbers and cells of each kind of file; an empty line has no cells."""


def _are_images(cells: Cells, inputs: tuple[str, ...], selection: Selection) -> bool:
    if not cells.rows or len(inputs) > 1:
        return False
    named = selection.column is not None and inputs != ("text",)
    return inputs == ("image",) or (named and is_image_name(cells.column(inputs[0])[0]))


def _read_numbers(path: Path, cells: Cells, columns: tuple[str, ...]) -> npt.NDArray[np.float32]:
    if "" in columns:
        raise InputError(
            f"column {cells.header.index('') + 1} of {path} has no name",
            hint="name it, or remove it if it has row numbers",
        )
    places = [cells.header.index(column) for column in columns]
    values = np.fromiter((_parse(row[place]) for row in cells.rows for place in places), np.float64)
    numbers = values.reshape(len(cells.rows), len(places))
    if index := find_unfit(numbers):
        row, column = index
        raise InputError(
            expected=f"a number in column '{columns[column]}', line {cells.lines[row]} of {path}",
            got=f"'{cells.rows[row][places[column]]}'",
            hint=f"fill it in, or name the column to read: column='{columns[column]}'",
        )
    return numbers.astype(np.float32)


def _parse(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return float("nan")
