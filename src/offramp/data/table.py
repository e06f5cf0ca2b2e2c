"""Tables of text files: a column of texts or of image paths, or columns of numbers."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from offramp.data.dataset import Dataset, StoredDataset
from offramp.data.delimited import Cells, read_cells
from offramp.data.identity import file_digest, files_digest, joint_digest
from offramp.data.image_files import ImageFiles, is_image_name, named_files
from offramp.data.labels import read_labels, unlabelled
from offramp.data.location import Location
from offramp.data.packed_texts import PackedTexts
from offramp.data.selection import Selection
from offramp.data.single_precision import first_unfit
from offramp.errors import InputError

__all__ = ["open_table"]


def open_table(path: Location, selection: Selection) -> Dataset:
    r"""Open a CSV, TSV or text file; its cells are read at once, images when asked for.

    Args:
        path: The file. Paths of images count from its folder.
        selection: `column` names a column of texts, or of image paths if the first cell ends like one. Without it, the
            inputs are the column `text`, else `image`, else all columns but the label, as numbers.

    Example:
        >>> from pathlib import Path
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     _ = Path(folder, "iris.csv").write_text("length,width,label\n5.1,3.5,0\n6.2,2.9,1\n")
        ...     data = open_table(Path(folder, "iris.csv"), Selection())
        >>> data.read(0, 2).inputs
        array([[5.1, 3.5],
               [6.2, 2.9]], dtype=float32)
    """
    selection.refuse_split(path)
    cells = read_cells(path)
    columns = selection.columns(cells.header)
    content = file_digest(path)
    labels = unlabelled(len(cells.rows), selection.classes)
    if columns.label is not None:
        values = cells.column(columns.label)
        labels = read_labels(values, classes=selection.classes, place=lambda row: f"line {cells.lines[row]} of {path}")
    inputs: Callable[[int, int], Any]
    keys: Sequence[str] = ()
    if _are_images(cells, columns.inputs, selection):
        places = (f"line {line} of {path}" for line in cells.lines)
        keys, sizes = named_files(zip(places, cells.column(columns.inputs[0]), strict=True), path.parent)
        # The table is only half of the content: with other images under the same paths, these are other samples.
        content = joint_digest(content, files_digest(path.parent, keys, sizes))
        inputs = ImageFiles(path.parent, keys)
    elif columns.inputs == ("text",) or selection.column is not None:
        inputs = partial(_texts, PackedTexts(cells.column(columns.inputs[0])))
    else:
        inputs = partial(_rows, _numbers(path, cells, columns.inputs))
    stem = path.name[: path.name.lower().removesuffix(".gz").rindex(".")]
    return StoredDataset(inputs, labels, stem=stem, content=content, columns=columns.inputs, keys=keys)


def _texts(texts: PackedTexts, start: int, stop: int) -> list[str]:
    return texts[start:stop]


def _rows(numbers: npt.NDArray[np.float32], start: int, stop: int) -> npt.NDArray[np.float32]:
    return numbers[start:stop].copy()


def _are_images(cells: Cells, inputs: tuple[str, ...], selection: Selection) -> bool:
    if not cells.rows or len(inputs) > 1:
        return False
    chosen = selection.column is not None and inputs != ("text",)
    return inputs == ("image",) or (chosen and is_image_name(cells.column(inputs[0])[0]))


def _numbers(path: Location, cells: Cells, columns: tuple[str, ...]) -> npt.NDArray[np.float32]:
    if "" in columns:
        raise InputError(f"column {cells.header.index('') + 1} of {path} has no name; is it a row number? Remove it")
    places = [cells.header.index(column) for column in columns]
    values = np.fromiter((_number(row[place]) for row in cells.rows for place in places), np.float64)
    numbers = values.reshape(len(cells.rows), len(places))
    wrong = first_unfit(numbers)
    if wrong is not None:
        row, column = wrong
        raise InputError(
            f"expected a number in column '{columns[column]}', line {cells.lines[row]} of {path}, got "
            f"'{cells.rows[row][places[column]]}'; fill it in, or name the column to read: column='{columns[column]}'"
        )
    return numbers.astype(np.float32)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return float("nan")
