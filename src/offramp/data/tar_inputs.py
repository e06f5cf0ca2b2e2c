"""Members of tar files as inputs, read where they lie."""

from collections.abc import Iterator, Sequence
from io import BytesIO
from typing import Any, final

import numpy as np
import numpy.typing as npt

from offramp.data.image_files import ImageFiles
from offramp.data.location import Location, read_range
from offramp.data.packed_texts import PackedTexts
from offramp.data.single_precision import first_unfit
from offramp.errors import InputError

__all__ = ["TarInputs", "decode_text"]

FETCHED_BYTES = 1 << 25  # at once, at most, unless one sample is larger
GAP_BYTES = 1 << 18  # less between two samples is read along: cheaper than to ask again


@final
class TarInputs:
    """A member of a tar file a row: images are a list of arrays, `.npy` one array, texts a list.

    Fractions are in single precision; what is not finite there is refused.

    Args:
        folder: Where the tar files lie.
        names: Their names.
        counts: Rows of each.
        keys: What each row is called.
        starts: First byte of each row's member, from the beginning of its file.
        sizes: Bytes of each.
        kind: `image`, `npy` or `txt`.

    Example:
        >>> from pathlib import Path
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     _ = Path(folder, "pets.tar").write_bytes(b"......purrs...barks")
        ...     keys, starts, sizes = PackedTexts(["tom", "rex"]), np.array([6, 14]), np.array([5, 5])
        ...     make = TarInputs(Path(folder), ["pets.tar"], [2], keys=keys, starts=starts, sizes=sizes, kind="txt")
        ...     make(0, 2), make.place(1) == f"'rex' in {Path(folder, 'pets.tar')}"
        (['purrs', 'barks'], True)
    """

    def __init__(
        self,
        folder: Location,
        names: Sequence[str],
        counts: Sequence[int],
        *,
        keys: PackedTexts,
        starts: npt.NDArray[np.int64],
        sizes: npt.NDArray[np.int64],
        kind: str,
    ) -> None:
        self.keys = keys
        self._folder = folder
        self._names = PackedTexts(names)
        self._firsts = np.cumsum([0, *counts])
        self._starts = starts
        self._sizes = sizes.astype(np.min_scalar_type(int(sizes.max(initial=0))))
        self._make = {"image": self._images, "npy": self._arrays, "txt": self._texts}[kind]
        if kind == "image":
            ImageFiles(folder, [])  # a missing Pillow is found now, not at the first row

    def __call__(self, start: int, stop: int) -> Any:
        """The inputs of rows `start` to `stop - 1`."""
        return self._make(start, stop)

    def place(self, row: int) -> str:
        """Where a row lies, for messages."""
        return f"'{self.keys[row]}' in {self._folder / self._names[self._shard(row)]}"

    def _images(self, start: int, stop: int) -> list[npt.NDArray[np.uint8]]:
        from offramp.data.image import decode_image  # here: tar files without images do without Pillow

        return [decode_image(content, place=self.place(row)) for row, content in self._contents(start, stop)]

    def _texts(self, start: int, stop: int) -> list[str]:
        return [decode_text(content, place=self.place(row)) for row, content in self._contents(start, stop)]

    def _arrays(self, start: int, stop: int) -> npt.NDArray[Any]:
        # Of no rows, the first of all says shape and type.
        rows = (start, stop) if start < stop else (0, 1)
        arrays = [self._array(row, content) for row, content in self._contents(*rows)]
        for row, array in enumerate(arrays, start):
            if (array.shape, array.dtype) != (arrays[0].shape, arrays[0].dtype):
                raise InputError(
                    f"expected {arrays[0].dtype} of shape {arrays[0].shape} in {self.place(row)}, as in row {start}, "
                    f"got {array.dtype} of shape {array.shape}; pad or convert it"
                )
        return np.stack(arrays)[: stop - start]

    def _array(self, row: int, content: bytes) -> npt.NDArray[Any]:
        try:
            array = np.lib.format.read_array(BytesIO(content), allow_pickle=False)
        except Exception as error:  # numpy raises whatever it stumbles over
            raise InputError(f"{self.place(row)} cannot be read as .npy: {error}; write it anew") from error
        if array.dtype.kind not in "biuf":
            raise InputError(f"expected numbers in {self.place(row)}, got {array.dtype}; convert them")
        if (wrong := first_unfit(array)) is not None:
            raise InputError(
                f"expected finite single-precision numbers in {self.place(row)}, got {array[wrong]}; mend it or leave "
                "the sample out"
            )
        return array.astype(np.float32) if array.dtype.kind == "f" else array

    def _contents(self, start: int, stop: int) -> Iterator[tuple[int, bytes]]:
        """Rows and their bytes; those close together in a file are fetched at once."""
        while start < stop:
            shard = self._shard(start)
            first = int(self._starts[start])
            last = start + 1
            while last < min(stop, int(self._firsts[shard + 1])) and self._is_near(last, first):
                last += 1
            content = read_range(self._folder / self._names[shard], first, self._end(last - 1))
            for row in range(start, last):
                yield row, content[int(self._starts[row]) - first : self._end(row) - first]
            start = last

    def _is_near(self, row: int, first: int) -> bool:
        gap = int(self._starts[row]) - self._end(row - 1)
        return 0 <= gap <= GAP_BYTES and self._end(row) - first <= FETCHED_BYTES

    def _end(self, row: int) -> int:
        return int(self._starts[row]) + int(self._sizes[row])

    def _shard(self, row: int) -> int:
        return int(np.searchsorted(self._firsts, row, side="right")) - 1


def decode_text(content: bytes, *, place: str) -> str:
    r"""A text from its bytes.

    Example:
        >>> decode_text(b"\xff", place="a member")
        Traceback (most recent call last):
        offramp.errors.InputError: a member is no text in UTF-8: 'utf-8' codec can't decode ...; write it anew
    """
    try:
        return content.decode("utf-8")
    except UnicodeError as error:
        raise InputError(f"{place} is no text in UTF-8: {error}; write it anew") from error
