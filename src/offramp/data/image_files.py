"""Files that are images by their name, and the inputs they make."""

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from offramp.data.location import Location, contents, file_sizes
from offramp.data.packed_texts import PackedTexts
from offramp.errors import InputError

__all__ = ["ImageFiles", "is_image_name", "named_files"]

SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp")
LONGEST_SHOWN = 100  # a column called `image` may hold whole images as texts, which are no paths


def is_image_name(name: str) -> bool:
    """Whether a file of this name is an image.

    Example:
        >>> is_image_name("cats/Tom.JPG"), is_image_name("cats/notes.txt"), is_image_name("cats/._tom.jpg")
        (True, False, False)
    """
    last = name.rpartition("/")[2]
    return last.lower().endswith(SUFFIXES) and not last.startswith(".")


def named_files(cells: Iterable[tuple[str, str]], folder: Location) -> tuple[PackedTexts, Sequence[int | None]]:
    """The image files that a table names, each of which must be there.

    Args:
        cells: Where each name stands, for messages, and the name.
        folder: Where the names count from.

    Returns:
        Names and sizes, as `files_digest` takes them.

    Example:
        >>> from pathlib import Path
        >>> named_files([("line 2", "tom.png")], Path("pets"))
        Traceback (most recent call last):
        offramp.errors.InputError: line 2 names the image 'tom.png', but there is no file pets/tom.png; add it
    """
    places = list(cells)
    names = PackedTexts(name for _, name in places)
    sizes = file_sizes(folder, names)
    if None in sizes:
        place, name = places[sizes.index(None)]
        shown = name if len(name) <= LONGEST_SHOWN else f"{name[:LONGEST_SHOWN]}..."
        raise InputError(f"{place} names the image '{shown}', but there is no file {folder / shown}; add it")
    return names, sizes


class ImageFiles:
    """Image files as inputs, decoded when asked for.

    Args:
        folder: Where the files lie.
        names: The path of each row's file from there.

    Example:
        >>> from pathlib import Path
        >>> from tempfile import TemporaryDirectory
        >>> from PIL import Image
        >>> with TemporaryDirectory() as folder:
        ...     Image.new("RGB", (3, 2)).save(Path(folder, "tom.png"))
        ...     [image.shape for image in ImageFiles(Path(folder), ["tom.png"])(0, 1)]
        [(2, 3, 3)]
    """

    def __init__(self, folder: Location, names: Sequence[str]) -> None:
        from offramp.data.image import decode_image  # here: tables without images do without Pillow

        self._folder = folder
        self._names = names
        self._decode = decode_image

    def __call__(self, start: int, stop: int) -> list[npt.NDArray[np.uint8]]:
        """The images of rows `start` to `stop - 1`, `H x W x 3` each."""
        names = self._names[start:stop]
        files = zip(contents(self._folder, names), names, strict=True)
        return [self._decode(content, place=str(self._folder / name)) for content, name in files]
