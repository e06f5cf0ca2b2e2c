"""The rows of a batch as a network takes them."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from offramp.data._images import decode_image
from offramp.errors import InputError
from offramp.model._columns import Column

__all__ = ["read_rows"]

MISSING = "no input: the column is empty in this row"
"""Message of a row that has no value."""


def read_rows(
    columns: Mapping[str, Column], rows: range, unread: dict[int, str]
) -> Iterator[tuple[dict[str, Any], Sequence[int]]]:
    """Yield the inputs of some rows as a network takes them, and their rows: those of one shape together.

    Args:
        columns: Columns of the inputs.
        rows: The rows.
        unread: Gets the messages of rows that cannot be read.

    Example:
        >>> lists, unread = np.array([[1.0, 2.0], None, [3.0]], dtype=object), {}
        >>> [(inputs["x"].tolist(), rows) for inputs, rows in read_rows({"x": lists}, range(3), unread)], unread
        ([([[1.0, 2.0]], [0]), ([[3.0]], [2])], {1: 'no input: the column is empty in this row'})
    """
    if not any(column.dtype == object for column in columns.values()):
        parts = {name: column[rows.start : rows.stop] for name, column in columns.items()}
        # Copied from memory that is read-only, as Arrow's is: torch warns of tensors that share it.
        yield {name: part if part.flags.writeable else part.copy() for name, part in parts.items()}, rows
        return
    groups: dict[tuple[Any, ...], list[tuple[int, list[Any]]]] = {}
    for row in rows:
        try:
            samples = [_read_sample(column[row]) for column in columns.values()]
        except (InputError, ValueError) as error:
            unread[row] = str(error)
            continue
        groups.setdefault(tuple(map(_shape, samples)), []).append((row, samples))
    for group in sorted(groups.values(), key=len, reverse=True):  # the first batch sets the size of the others
        joined = map(_join, zip(*(samples for _, samples in group), strict=True))
        yield dict(zip(columns, joined, strict=True)), [row for row, _ in group]


def _read_sample(value: Any) -> Any:
    """Return one sample as preprocessing takes it.

    Raises:
        InputError: If there is none, its bytes are no image, or a list holds other things than numbers.
        ValueError: If nested lists differ in length.
    """
    if value is None or (isinstance(value, float) and value != value) or type(value).__name__ == "NAType":
        raise InputError(MISSING)
    if isinstance(value, bytes):
        return decode_image(value, place="its content")
    if isinstance(value, list | tuple | np.generic) or (isinstance(value, np.ndarray) and value.dtype == object):
        return _read_nested(value)
    return value


def _read_nested(value: Any) -> npt.NDArray[Any]:
    """Return nested lists of numbers, in any containers, as one array."""
    array = np.array(value.tolist() if isinstance(value, np.ndarray) else value)
    if array.dtype != object:
        return array
    if array.ndim == 0:  # None, a dictionary, a number that no type of numpy holds
        raise InputError(expected="numbers in lists", got="a missing value" if value is None else type(value).__name__)
    return np.array([_read_nested(part) for part in array])


def _shape(sample: Any) -> tuple[int, ...] | None:
    """Return the shape of an array; None for texts, and for images, which preprocessing brings to one size."""
    is_image = isinstance(sample, np.ndarray) and sample.dtype == np.uint8 and sample.ndim == 3
    return sample.shape if isinstance(sample, np.ndarray) and not is_image else None


def _join(samples: Sequence[Any]) -> Any:
    """Return samples of one shape as an array, others as a list."""
    return list(samples) if _shape(samples[0]) is None else np.stack(samples)
