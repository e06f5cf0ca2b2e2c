"""Files that are images by their name, and the inputs they make."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

__all__ = ["ImageFiles", "is_image_name"]

SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp")


def is_image_name(name: str) -> bool:
    """Whether a file of this name is an image.

    Example:
        >>> is_image_name("cats/Tom.JPG"), is_image_name("cats/notes.txt"), is_image_name("cats/._tom.jpg")
        (True, False, False)
    """
    last = name.rpartition("/")[2]
    return last.lower().endswith(SUFFIXES) and not last.startswith(".")


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
