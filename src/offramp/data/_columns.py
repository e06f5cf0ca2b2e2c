"""Columns of many rows: in temporary files mapped into memory, and cut into the rows that another process needs."""

import os
from collections.abc import Iterable, Iterator
from tempfile import TemporaryFile
from typing import IO, Any, Protocol, final

import numpy as np
import numpy.typing as npt

__all__ = ["Names", "TextColumn", "Window", "map_numbers"]

INDEX_EVERY = 256
"""Names between two entries of the index."""

BLOCK_NAMES = 4096


class TextColumn(Protocol):
    """Texts of consecutive rows, read by slice."""

    def __len__(self) -> int:
        """Return the number of rows."""

    def __getitem__(self, rows: slice) -> list[str]:
        """Return the texts of rows `rows.start` to `rows.stop - 1`."""


def map_numbers(blocks: Iterable[npt.NDArray[np.int64]]) -> npt.NDArray[np.int64]:
    """Write numbers that come in blocks into a temporary file, and map it into memory.

    The system may drop mapped pages when memory is short. The file has no name, and is gone with the array.
    """
    with TemporaryFile(prefix="offramp-") as file:
        for block in blocks:
            block.astype(np.int64, copy=False).tofile(file)
        return _map(file, np.int64)


def _map(file: IO[bytes], dtype: Any) -> npt.NDArray[Any]:
    file.flush()
    if not os.fstat(file.fileno()).st_size:
        return np.empty(0, dtype)
    return np.asarray(np.memmap(file, dtype, "r"))  # a plain array, which is pickled without a copy


@final
class Names:
    """File names in a temporary file that is mapped into memory, read by slice.

    Example:
        >>> names = Names(f"cats/{row}.png" for row in range(1000))
        >>> len(names), names[997:999]
        (1000, ['cats/997.png', 'cats/998.png'])
    """

    def __init__(self, names: Iterable[str]) -> None:
        index, self._count, position = [], 0, 0
        with TemporaryFile(prefix="offramp-") as file:
            for name in names:
                if self._count % INDEX_EVERY == 0:
                    index.append(position)
                position += file.write(os.fsencode(name) + b"\0")  # the only character that no name has
                self._count += 1
            self._content = _map(file, np.uint8)
        self._index = np.array([*index, position])

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, rows: slice) -> list[str]:
        start, stop, _ = rows.indices(self._count)
        first, last = start // INDEX_EVERY, -(-stop // INDEX_EVERY)
        content = self._content[self._index[first] : self._index[last]].tobytes()
        names = content.split(b"\0")[start - first * INDEX_EVERY : stop - first * INDEX_EVERY]
        return [os.fsdecode(name) for name in names]

    def __iter__(self) -> Iterator[str]:
        for start in range(0, self._count, BLOCK_NAMES):
            yield from self[start : start + BLOCK_NAMES]


@final
class Window:
    """Some consecutive rows of a sequence, read by slice under their numbers in it.

    Args:
        rows: A list or array of the rows from `start` on.
        start: Number of the first of them.
        total: Length of the whole sequence.

    Example:
        >>> window = Window(["c", "d", "e"], 2, 26)
        >>> window[3:5], len(window)
        (['d', 'e'], 26)
    """

    def __init__(self, rows: Any, start: int, total: int) -> None:
        self._rows, self._start, self._total = rows, start, total

    def __len__(self) -> int:
        return self._total

    def __getitem__(self, rows: slice) -> Any:
        return self._rows[rows.start - self._start : rows.stop - self._start]
