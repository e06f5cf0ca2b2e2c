"""Files that are images by their name, and the inputs they make."""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

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


def named_files(cells: Iterable[tuple[str, str]], folder: Path) -> list[tuple[str, Path]]:
    """The image files that a table names, each of which must be there.

    Args:
        cells: Where each name stands, for messages, and the name.
        folder: Where the names count from.

    Returns:
        Name and path of each, as `files_digest` takes them.

    Example:
        >>> named_files([("line 2", "tom.png")], Path("pets"))
        Traceback (most recent call last):
        offramp.errors.InputError: line 2 names the image 'tom.png', but there is no file pets/tom.png; add it
    """
    files = []
    for place, name in cells:
        file = folder / name
        if not os.path.isfile(file):  # Path.is_file would raise where the name is too long for one
            shown = name if len(name) <= LONGEST_SHOWN else f"{name[:LONGEST_SHOWN]}..."
            raise InputError(f"{place} names the image '{shown}', but there is no file {folder / shown}; add it")
        files.append((name, file))
    return files


class ImageFiles:
    """Image files as inputs, decoded when asked for.

    Args:
        paths: One file a row.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> from PIL import Image
        >>> with TemporaryDirectory() as folder:
        ...     Image.new("RGB", (3, 2)).save(Path(folder, "tom.png"))
        ...     [image.shape for image in ImageFiles([Path(folder, "tom.png")])(0, 1)]
        [(2, 3, 3)]
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        from offramp.data.image import decode_image  # here: tables without images do without Pillow

        self._paths = paths
        self._decode = decode_image

    def __call__(self, start: int, stop: int) -> list[npt.NDArray[np.uint8]]:
        """The images of rows `start` to `stop - 1`, `H x W x 3` each."""
        return [self._decode(path, place=str(path)) for path in self._paths[start:stop]]
