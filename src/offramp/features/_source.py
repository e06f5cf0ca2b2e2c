"""Sources of raw samples: inputs with labels and sample ids, read by row range."""

from copy import copy
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, cast, final

import numpy as np
import numpy.typing as npt
from torch import Tensor
from torch.utils import _pytree as pytree

from offramp._progress import progress_bar
from offramp.errors import InputError
from offramp.features._ids import Ids
from offramp.preprocessing._raw import to_sliceable
from offramp.preprocessing._row_hashes import hash_rows

__all__ = ["ArraySource", "Rows", "Source", "read_ids", "take_part"]

READ_ROWS = 250
"""Rows that `read_ids` reads at a time."""


@dataclass(frozen=True)
class Rows:
    """Consecutive rows of a source: n raw samples."""

    inputs: Any
    """A pytree of arrays or tensors with n samples each, before preprocessing."""
    labels: npt.NDArray[np.int64]
    """`n` classes, 0 to K-1."""
    ids: Ids
    """`n` sample ids: a sample has the same id wherever it appears, and no other sample has it; see `hash_rows`."""


class Source(Protocol):
    """Labelled samples in a fixed order, read by row range."""

    @property
    def name(self) -> str:
        """Name of the data, as the store records it: "cifar10/train"."""

    def __len__(self) -> int:
        """Return the number of rows."""

    def read(self, start: int, stop: int) -> Rows:
        """Return rows `start` to `stop - 1`."""


T = TypeVar("T")


def take_part(source: T, start: int, stop: int) -> T:
    """Return a source with only what reading rows `start` to `stop - 1` needs, under the same row numbers.

    It is what a worker is sent: of many rows, a source may hold labels, names or places in files. A source is cut by
    its own method `part(start, stop)`; one without it is returned whole, so it should be small.

    Args:
        source: The source.
        start: First row.
        stop: Last row plus 1.

    Example:
        >>> whole = ArraySource(np.arange(8).reshape(4, 2), np.array([0, 1, 0, 1]), name="toy")
        >>> part = take_part(whole, 1, 3)
        >>> len(part), part.read(2, 3).inputs.tolist()
        (4, [[4, 5]])
    """
    part = getattr(source, "part", None)
    return source if part is None else cast(T, part(start, stop))


def read_ids(source: Source, *, progress: bool = True) -> Ids:
    """Read the sample ids of a whole source, holding nothing else.

    Args:
        source: The source.
        progress: Show a bar on a terminal; elsewhere, a line every 30 s.

    Returns:
        `N` ids.
    """
    pieces = []
    with progress_bar(f"reading {source.name}", len(source), unit="rows", show=progress) as advance:
        for start in range(0, len(source), READ_ROWS):
            pieces.append(source.read(start, min(start + READ_ROWS, len(source))).ids)
            advance(len(pieces[-1]))
    return np.concatenate(pieces) if pieces else np.empty(0, np.int64)


@final
class ArraySource:
    """A source over arrays: numpy arrays (also memory-mapped) or tensors.

    Args:
        inputs: An array, or a pytree of arrays, N samples along the first axis of each; or a list of texts or images.
        labels: `N` integer classes.
        name: Name of the data.
        ids: `N` integer sample ids, if the samples have ids of their own; by default, hashes of their content.

    Example:
        >>> source = ArraySource(np.zeros((4, 2)), np.array([0, 1, 0, 1]), name="toy")
        >>> rows = source.read(1, 3)
        >>> rows.inputs.shape, rows.labels.tolist(), len(source)
        ((2, 2), [1, 0], 4)
    """

    def __init__(self, inputs: Any, labels: Any, *, name: str, ids: Any = None) -> None:
        self.name = name
        self._inputs = to_sliceable(inputs)
        self._labels = _as_integers(labels, "labels")
        self._ids = None if ids is None else _as_integers(ids, "ids")
        counts = {"labels": len(self._labels)}
        counts |= {"ids": len(self._ids)} if self._ids is not None else {}
        counts |= {f"inputs, leaf {i}": len(leaf) for i, leaf in enumerate(pytree.tree_leaves(self._inputs))}
        if len(set(counts.values())) != 1:
            raise InputError(expected="as many labels and ids as inputs", got=counts)
        self._first, self._count = 0, len(self._labels)

    def __len__(self) -> int:
        return self._count

    def read(self, start: int, stop: int) -> Rows:
        """Return a copy of rows `start` to `stop - 1`."""
        inputs, labels, ids = self._cut(start, stop)
        ids = hash_rows(inputs) if ids is None else ids
        return Rows(inputs, labels.astype(np.int64), ids.astype(np.int64))

    def part(self, start: int, stop: int) -> "ArraySource":
        """Return the source with a copy of rows `start` to `stop - 1` alone; see `take_part`."""
        part = copy(self)
        part._inputs, part._labels, part._ids = self._cut(start, stop)
        part._first = start
        return part

    def _cut(self, start: int, stop: int) -> tuple[Any, Any, Any]:
        """Return a copy of the inputs, labels and, if they were given, ids of some rows."""
        rows = slice(start - self._first, stop - self._first)
        ids = None if self._ids is None else self._ids[rows].copy()
        return pytree.tree_map(lambda leaf: _copy(leaf[rows]), self._inputs), self._labels[rows].copy(), ids


def _copy(leaf: Any) -> Any:
    # torch would warn of a slice of a read-only memory map, and a preprocessing step could write through a slice.
    return leaf.clone() if isinstance(leaf, Tensor) else leaf.copy()


def _as_integers(values: Any, name: str) -> npt.NDArray[Any]:
    array = np.asarray(values)
    if array.ndim != 1 or not np.issubdtype(array.dtype, np.integer):
        raise InputError(name, expected="one integer per sample", got=f"{array.dtype} of shape {array.shape}")
    return array
