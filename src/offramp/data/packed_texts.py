"""Millions of short texts in two arrays: a Python string each would take several times as much."""

from array import array
from collections.abc import Iterable, Sequence
from typing import final, overload

import numpy as np

__all__ = ["PackedTexts"]


@final
class PackedTexts(Sequence[str]):
    """Texts, held as bytes and where each ends: 8 bytes a text beside its own.

    Args:
        texts: What to hold; file names that are no text keep their bytes.

    Example:
        >>> texts = PackedTexts(["purrs", "", "müde"])
        >>> len(texts), texts[2], texts[0:2]
        (3, 'müde', ['purrs', ''])
    """

    def __init__(self, texts: Iterable[str]) -> None:
        content, ends = bytearray(), array("q", [0])
        for text in texts:
            content += text.encode("utf-8", "surrogatepass")
            ends.append(len(content))
        self._bytes = np.frombuffer(bytes(content), np.uint8)
        self._ends = np.frombuffer(ends, np.int64)

    def __len__(self) -> int:
        return len(self._ends) - 1

    @overload
    def __getitem__(self, row: int) -> str: ...

    @overload
    def __getitem__(self, row: slice) -> list[str]: ...

    def __getitem__(self, row: int | slice) -> str | list[str]:
        if isinstance(row, slice):
            return [self[each] for each in range(*row.indices(len(self)))]
        place = range(len(self))[row]
        piece = self._bytes[self._ends[place] : self._ends[place + 1]]
        return piece.tobytes().decode("utf-8", "surrogatepass")
