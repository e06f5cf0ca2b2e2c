"""Columns of Arrow tables as inputs and labels: what Parquet and Hugging Face datasets share.

Nothing here imports pyarrow: whoever opened the data has, and its tables bring their methods along.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from offramp.data.image_files import ImageFiles, is_image_name, named_files
from offramp.data.location import Location, contents
from offramp.data.packed_texts import PackedTexts
from offramp.data.single_precision import first_unfit
from offramp.errors import InputError

__all__ = ["ArrowInputs", "label_values"]

TEXTS = {"string", "large_string", "string_view"}
BYTES = {"binary", "large_binary", "binary_view"}


def label_values(column: Any, *, place: str) -> Any:
    """The cells of a label column, as `read_labels` takes them; empty ones are None.

    Args:
        column: An Arrow column.
        place: What to call it in messages.

    Example:
        >>> import pyarrow
        >>> label_values(pyarrow.chunked_array([[1, 0]]), place="a column")
        array([1, 0])
    """
    array = _plain(column.combine_chunks())
    if array.null_count or str(array.type) in TEXTS:
        return array.to_pylist()
    values = array.to_numpy(zero_copy_only=False)
    if values.dtype.kind not in "biu":
        raise InputError(f"expected integers or texts in {place}, got {array.type}; convert them")
    return values


class ArrowInputs:
    """Rows of a table as inputs, by the types of the columns.

    Texts are a list; images (bytes, or the structs that Hugging Face writes, or texts in a column called `image` or
    chosen and ending like an image) are a list of decoded arrays; lists of numbers are an array, several such columns a
    dictionary; columns of single numbers together are one `N x D` array of float32. Fractions are in single precision;
    what is not finite there is refused.

    Args:
        first: The first row of the table, its input columns only.
        folder: Where paths of images count from.
        chosen: Whether the caller named the column.

    Example:
        >>> from pathlib import Path
        >>> import pyarrow
        >>> table = pyarrow.table({"length": [5, 6], "width": [3.5, 2.5]})
        >>> ArrowInputs(table.slice(0, 1), folder=Path(), chosen=False)(table, 0)
        array([[5. , 3.5],
               [6. , 2.5]], dtype=float32)
    """

    def __init__(self, first: Any, *, folder: Location, chosen: bool) -> None:
        self._folder = folder
        self._names: Sequence[str] = first.column_names
        self._make: Callable[[Any, int], Any]
        self.may_name_files = False
        types = [_plain_type(first.column(name).type) for name in self._names]
        if len(types) == 1 and (str(types[0]) in TEXTS | BYTES or _has_bytes(types[0])):
            name = self._names[0]
            text = str(types[0]) in TEXTS
            path = text and chosen and name != "text" and is_image_name(str(first.column(name)[0].as_py()))
            self._make = self._texts if text and name != "image" and not path else self._images
            if self._make == self._images:
                ImageFiles(folder, [])  # a missing Pillow is found now, not at the first row
                self.may_name_files = str(types[0]) not in BYTES
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

    def files(self, pieces: Iterable[tuple[int, Any]]) -> tuple[PackedTexts, Sequence[int | None]]:
        """Names and sizes of the images that are files of their own; the table is only half of their content.

        Args:
            pieces: Tables, and the number of the first row of each.
        """
        return named_files(self._named(pieces), self._folder)

    def _named(self, pieces: Iterable[tuple[int, Any]]) -> Iterator[tuple[str, str]]:
        name = self._names[0]
        for first, table in pieces:
            for row, path in enumerate(_paths(table.column(name)), first):
                if path is None:
                    raise _nothing_in(f"row {row} of column '{name}'")
                if path:
                    yield f"row {row} of column '{name}'", path

    def _texts(self, table: Any, start: int) -> list[str]:
        texts: list[str] = self._whole(table, self._names[0], start).to_pylist()
        return texts

    def _images(self, table: Any, start: int) -> list[npt.NDArray[np.uint8]]:
        from offramp.data.image import decode_image  # here: tables without images do without Pillow

        cells = self._whole(table, self._names[0], start).to_pylist()
        places = (f"row {row} of column '{self._names[0]}'" for row in range(start, start + len(cells)))
        found = [(_bytes_or_path(cell, place), place) for cell, place in zip(cells, places, strict=True)]
        named = iter(contents(self._folder, [cell for cell, _ in found if isinstance(cell, str)]))
        return [decode_image(next(named) if isinstance(cell, str) else cell, place=place) for cell, place in found]

    def _matrix(self, table: Any, start: int) -> npt.NDArray[np.float32]:
        return np.stack([self._numbers(table, name, start) for name in self._names], 1).astype(np.float32)

    def _arrays(self, table: Any, start: int) -> Any:
        arrays = {name: self._numbers(table, name, start) for name in self._names}
        return arrays if len(arrays) > 1 else next(iter(arrays.values()))

    def _numbers(self, table: Any, name: str, start: int) -> npt.NDArray[Any]:
        values = _numbers(self._whole(table, name, start), self._place(name, start))
        if wrong := first_unfit(values):
            raise InputError(
                f"expected a finite single-precision number in row {start + wrong[0]} of column '{name}', got "
                f"{values[wrong]}; fill it in or leave the row out"
            )
        return values.astype(np.float32) if values.dtype.kind == "f" else values

    def _whole(self, table: Any, name: str, start: int) -> Any:
        return _whole(table.column(name), self._place(name, start))

    def _place(self, name: str, start: int) -> str:
        return f"column '{name}' from row {start} on"


def _bytes_or_path(cell: Any, place: str) -> bytes | str:
    if isinstance(cell, dict):
        cell = cell["bytes"] if cell["bytes"] is not None else cell.get("path")
    if cell is None:
        raise _nothing_in(place)
    return cell if isinstance(cell, str) else bytes(cell)


def _whole(column: Any, place: str) -> Any:
    """The column as one array without nulls, dictionaries and extension types."""
    array = _plain(column.combine_chunks())
    if array.null_count:
        row = array.is_null().to_pylist().index(True)
        raise InputError(f"expected no empty cells in {place}, got one {row} rows further; fill it in or leave it out")
    return array


def _plain(array: Any) -> Any:
    """The array without dictionaries and extension types."""
    if str(array.type).startswith("dictionary"):
        array = array.dictionary_decode()
    return getattr(array, "storage", array)


def _paths(column: Any) -> Iterator[str | None]:
    """The path that each cell of a column of images names: empty where it has bytes, None where it has neither."""
    for chunk in column.chunks:
        array = _plain(chunk)
        if str(array.type) in TEXTS:
            yield from (path or None for path in array.to_pylist())
            continue
        # Field by field: cells as a whole would bring all the bytes into memory.
        content = array.field("bytes").is_null().to_pylist()
        named = array.type.get_field_index("path") >= 0
        paths = array.field("path").to_pylist() if named else [None] * len(array)
        yield from ((path or None) if empty else "" for empty, path in zip(content, paths, strict=True))


def _nothing_in(place: str) -> InputError:
    return InputError(f"{place} has neither bytes nor a path; fill it in or leave it out")


def _numbers(array: Any, place: str) -> npt.NDArray[Any]:
    """Numbers, or equally long lists of them, as an array."""
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
    return values.reshape(shape)


def _plain_type(kind: Any) -> Any:
    kind = getattr(kind, "storage_type", kind)
    return kind.value_type if str(kind).startswith("dictionary") else kind


def _has_bytes(kind: Any) -> bool:
    return str(kind).startswith("struct<") and kind.get_field_index("bytes") >= 0


def _is_number(kind: Any) -> bool:
    return str(kind).rstrip("0123456789") in {"int", "uint", "float", "halffloat", "double", "bool"}
