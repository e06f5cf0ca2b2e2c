"""Columns of Arrow tables as inputs and labels: what Parquet and Hugging Face datasets share.

Nothing here imports pyarrow: whoever opened the data has, and its tables bring their methods along.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from offramp.data.image_files import ImageFiles, is_image_name
from offramp.errors import InputError

__all__ = ["ArrowInputs", "label_values"]

TEXTS = {"string", "large_string", "string_view"}
BYTES = {"binary", "large_binary", "binary_view"}


def label_values(column: Any, *, place: str) -> Any:
    """The cells of a label column, as `read_labels` takes them.

    Args:
        column: An Arrow column.
        place: What to call it in messages.

    Example:
        >>> import pyarrow
        >>> label_values(pyarrow.chunked_array([[1, 0]]), place="a column")
        array([1, 0])
    """
    array = _whole(column, place)
    if str(array.type) in TEXTS:
        return array.to_pylist()
    values = array.to_numpy(zero_copy_only=False)
    if values.dtype.kind not in "biu":
        raise InputError(f"expected integers or texts in {place}, got {array.type}; convert them")
    return values


class ArrowInputs:
    """Rows of a table as inputs, by the types of the columns.

    Texts are a list; images (bytes, or the structs that Hugging Face writes, or texts in a column called `image` or
    chosen and ending like an image) are a list of decoded arrays; lists of numbers are an array, several such columns a
    dictionary; columns of single numbers together are one `N x D` array of float32.

    Args:
        first: The first row of the table, its input columns only.
        folder: Where paths of images count from.
        chosen: Whether the caller named the column.

    Example:
        >>> import pyarrow
        >>> table = pyarrow.table({"length": [5, 6], "width": [3.5, 2.5]})
        >>> ArrowInputs(table.slice(0, 1), folder=Path(), chosen=False)(table, 0)
        array([[5. , 3.5],
               [6. , 2.5]], dtype=float32)
    """

    def __init__(self, first: Any, *, folder: Path, chosen: bool) -> None:
        self._folder = folder
        self._names: Sequence[str] = first.column_names
        self._make: Callable[[Any, int], Any]
        types = [_plain_type(first.column(name).type) for name in self._names]
        if len(types) == 1 and (str(types[0]) in TEXTS | BYTES or _has_bytes(types[0])):
            name = self._names[0]
            text = str(types[0]) in TEXTS
            path = text and chosen and name != "text" and is_image_name(str(first.column(name)[0].as_py()))
            self._make = self._texts if text and name != "image" and not path else self._images
            if self._make == self._images:
                ImageFiles([])  # a missing Pillow is found now, not at the first row
        elif all(_is_number(kind) for kind in types):
            self._make = self._matrix
        elif all("list" in str(kind).partition("<")[0] for kind in types):
            self._make = self._arrays
        else:
            kinds = ", ".join(f"{name} ({kind})" for name, kind in zip(self._names, types, strict=True))
            raise InputError(
                f"expected a column text or image, or numbers only, got {kinds}; name the column to read: column=..."
            )

    def __call__(self, table: Any, start: int) -> Any:
        """The rows of `table` as inputs; `start` is the number of its first row, for messages."""
        return self._make(table, start)

    def _texts(self, table: Any, start: int) -> list[str]:
        texts: list[str] = self._whole(table, self._names[0], start).to_pylist()
        return texts

    def _images(self, table: Any, start: int) -> list[npt.NDArray[np.uint8]]:
        from offramp.data.image import decode_image  # here: tables without images do without Pillow

        cells = self._whole(table, self._names[0], start).to_pylist()
        places = (f"row {row} of column '{self._names[0]}'" for row in range(start, start + len(cells)))
        return [
            decode_image(self._content(cell, place), place=place) for cell, place in zip(cells, places, strict=True)
        ]

    def _content(self, cell: Any, place: str) -> bytes | Path:
        if isinstance(cell, dict):
            cell = cell["bytes"] if cell["bytes"] is not None else cell.get("path")
        if cell is None:
            raise InputError(f"{place} has neither bytes nor a path; fill it in or leave it out")
        return self._folder / cell if isinstance(cell, str) else bytes(cell)

    def _matrix(self, table: Any, start: int) -> npt.NDArray[np.float32]:
        columns = [_numbers(self._whole(table, name, start), self._place(name, start)) for name in self._names]
        matrix = np.stack(columns, 1).astype(np.float32)
        wrong = np.argwhere(~np.isfinite(matrix))
        if len(wrong):
            row, column = wrong[0]
            raise InputError(
                f"expected a number in row {start + row} of column '{self._names[column]}', got {matrix[row, column]}"
            )
        return matrix

    def _arrays(self, table: Any, start: int) -> Any:
        arrays = {name: _numbers(self._whole(table, name, start), self._place(name, start)) for name in self._names}
        return arrays if len(arrays) > 1 else next(iter(arrays.values()))

    def _whole(self, table: Any, name: str, start: int) -> Any:
        return _whole(table.column(name), self._place(name, start))

    def _place(self, name: str, start: int) -> str:
        return f"column '{name}' from row {start} on"


def _whole(column: Any, place: str) -> Any:
    """The column as one array without nulls, dictionaries and extension types."""
    array = column.combine_chunks()
    if str(array.type).startswith("dictionary"):
        array = array.dictionary_decode()
    array = getattr(array, "storage", array)
    if array.null_count:
        row = array.is_null().to_pylist().index(True)
        raise InputError(f"expected no empty cells in {place}, got one {row} rows further; fill it in or leave it out")
    return array


def _numbers(array: Any, place: str) -> npt.NDArray[Any]:
    """Numbers, or equally long lists of them, as an array; floats in single precision."""
    shape = [len(array)]
    while "list" in str(array.type).partition("<")[0]:
        fixed = getattr(array.type, "list_size", None)
        lengths = np.full(len(array), fixed) if fixed is not None else np.asarray(array.value_lengths())
        if len(set(lengths.tolist())) > 1:
            raise InputError(f"expected lists of one length in {place}, got {sorted(set(lengths.tolist()))}; pad them")
        shape.append(int(lengths[0]) if len(lengths) else 0)
        array = array.flatten()
        if array.null_count:
            raise InputError(f"expected no empty cells in the lists of {place}, got {array.null_count}; fill them in")
    values = np.array(array.to_numpy(zero_copy_only=False))
    if values.dtype.kind not in "biuf":
        raise InputError(f"expected numbers in {place}, got {array.type}; name the column to read: column=...")
    return (values.astype(np.float32) if values.dtype.kind == "f" else values).reshape(shape)


def _plain_type(kind: Any) -> Any:
    kind = getattr(kind, "storage_type", kind)
    return kind.value_type if str(kind).startswith("dictionary") else kind


def _has_bytes(kind: Any) -> bool:
    return str(kind).startswith("struct<") and kind.get_field_index("bytes") >= 0


def _is_number(kind: Any) -> bool:
    return str(kind).rstrip("0123456789") in {"int", "uint", "float", "halffloat", "double", "bool"}
