"""CSV, TSV and plain text files: a column of texts or of image paths, or columns of numbers."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, final

import numpy as np
import numpy.typing as npt

from offramp.data._columns import Names
from offramp.data._dataset import Dataset, StoredDataset, find_unfit
from offramp.data._files import hash_file, hash_files, hash_parts
from offramp.data._formats import Selection
from offramp.data._images import ImageFiles, check_files, is_image_name
from offramp.data._labels import Labels, read_label_blocks
from offramp.data._records import Records, open_records
from offramp.errors import InputError

__all__ = ["open_table"]

BLOCK_ROWS = 4096
"""Rows that are read together to check a column."""


def open_table(path: Path, selection: Selection) -> Dataset:
    """Open a CSV, TSV or text file; its cells are checked at once, and read on demand.

    Args:
        path: The file. Paths of images are relative to its folder.
        selection: `column` names a column of texts, or of image paths if the first cell has the suffix of an image. By
            default, the inputs are the column `text`, else `image`, else all columns but the label, as numbers.
    """
    selection.refuse_split(path)
    records = open_records(path)
    columns = selection.columns(records.header)
    content = hash_file(path)
    labels = Labels.missing(len(records), selection.classes)
    if columns.label is not None:
        labels = read_label_blocks(
            Column(records, columns.label).blocks(), classes=selection.classes, place=records.place
        )
    inputs: Any
    keys = None
    if _are_images(records, columns.inputs, selection):
        keys = Names(check_files(_named_images(records, columns.inputs[0]), path.parent))
        # The content of the images counts too: the same paths may hold other images.
        content = hash_parts(content, hash_files(path.parent, keys))
        inputs = ImageFiles(path.parent, keys)
    elif columns.inputs == ("text",) or selection.column is not None:
        inputs = Column(records, columns.inputs[0])
    else:
        inputs = Numbers(records, columns.inputs)
        for start in range(0, len(records), BLOCK_ROWS):
            inputs(start, min(start + BLOCK_ROWS, len(records)))
    stem = path.name[: path.name.lower().removesuffix(".gz").rindex(".")]
    return StoredDataset(inputs, labels, stem=stem, content=content, columns=columns.inputs, keys=keys)


@final
class Column:
    """The texts of one column, read from the file.

    Args:
        records: The rows of the file.
        name: The column.
    """

    def __init__(self, records: Records, name: str) -> None:
        self._records, self._name = records, name
        self._place = records.header.index(name)

    def __call__(self, start: int, stop: int) -> list[str]:
        """Return the texts of rows `start` to `stop - 1`."""
        return [cells[self._place] for _, cells in self._records.read(start, stop)]

    def part(self, start: int, stop: int) -> "Column":
        """Return a column that reads these rows only."""
        return Column(self._records.part(start, stop), self._name)

    def blocks(self) -> Iterator[list[str]]:
        """Yield the texts of all rows in blocks."""
        for start in range(0, len(self._records), BLOCK_ROWS):
            yield self(start, min(start + BLOCK_ROWS, len(self._records)))


@final
class Numbers:
    """Columns of numbers, read from the file and checked.

    Args:
        records: The rows of the file.
        columns: The columns.
    """

    def __init__(self, records: Records, columns: tuple[str, ...]) -> None:
        if "" in columns:
            raise InputError(
                f"column {records.header.index('') + 1} of {records.path} has no name",
                hint="name it, or remove it if it has row numbers",
            )
        self._records, self._columns = records, columns

    def __call__(self, start: int, stop: int) -> npt.NDArray[np.float32]:
        """Return the numbers of rows `start` to `stop - 1`, one row each."""
        places = [self._records.header.index(column) for column in self._columns]
        rows = self._records.read(start, stop)
        values = np.fromiter((_parse(cells[place]) for _, cells in rows for place in places), np.float64)
        numbers = values.reshape(len(rows), len(places))
        if index := find_unfit(numbers):
            row, column = index
            line, cells = rows[row]
            raise InputError(
                expected=f"a number in column '{self._columns[column]}', line {line} of {self._records.path}",
                got=f"'{cells[places[column]]}'",
                hint=f"fill it in, or name the column to read: column='{self._columns[column]}'",
            )
        return numbers.astype(np.float32)

    def part(self, start: int, stop: int) -> "Numbers":
        """Return columns that read these rows only."""
        return Numbers(self._records.part(start, stop), self._columns)


def _parse(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return float("nan")


def _are_images(records: Records, inputs: tuple[str, ...], selection: Selection) -> bool:
    if not len(records) or len(inputs) > 1:
        return False
    named = selection.column is not None and inputs != ("text",)
    return inputs == ("image",) or (named and is_image_name(Column(records, inputs[0])(0, 1)[0]))


def _named_images(records: Records, column: str) -> Iterator[tuple[str, str]]:
    """Yield the place of each image's name, for messages, and the name."""
    place = records.header.index(column)
    for start in range(0, len(records), BLOCK_ROWS):
        for line, cells in records.read(start, min(start + BLOCK_ROWS, len(records))):
            yield f"line {line} of {records.path}", cells[place]
