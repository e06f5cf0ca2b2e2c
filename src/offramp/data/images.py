"""Images as networks are trained on them, upright, RGB, 8 bits per channel: decoded, named by a table, in a folder."""

import os
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from offramp.data.dataset import Dataset, StoredDataset
from offramp.data.files import MAX_BYTES, allowed_bytes, check_unpacked, file_sizes, files_digest
from offramp.data.formats import Selection, choose_split
from offramp.data.labels import Labels, named_labels, unlabelled
from offramp.errors import InputError, MissingExtraError
from offramp.registry import unknown_name

if TYPE_CHECKING:
    from PIL.Image import Image

__all__ = ["decode_files", "decode_image", "is_image_name", "named_files", "open_folder"]

SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp")
PILLOW_FORMATS = ("BMP", "GIF", "JPEG", "PNG", "TIFF", "WEBP")  # Pillow knows more; some of those run other programs
PIXEL_BYTES = 10  # of memory while a pixel is decoded: 4 of Pillow's, and 3 twice until it is an array
LONGEST_SHOWN = 100  # a column called `image` may hold whole images as texts, which are no paths
SPLITS = {"dev", "eval", "test", "train", "training", "val", "valid", "validation"}
LITTER = {"$RECYCLE.BIN", "@eaDir", "System Volume Information", "__MACOSX", "__pycache__", "lost+found"}
"""Folders that systems and programs leave behind; no class is called so."""


def open_folder(path: Path, selection: Selection) -> Dataset:
    """Open a folder of images, `path/<class>/.../<image>`, or `path/<image>` without labels.

    The classes are the sub-folders in the order of their names as texts, "10" before "2", as torchvision numbers them
    in training; an empty sub-folder counts, so that the others keep their numbers. Passed over are hidden files and
    folders, folders that systems leave behind (`__MACOSX` and the like), and files that are no images.

    Args:
        path: The folder.
        selection: `split` names a sub-folder to take for the whole; `classes` says what sub-folders there may be.
    """
    if selection.column is not None:
        raise InputError(f"expected no column for {path}, which has none, got '{selection.column}'; leave it out")
    folders = _sub_folders(path)
    # Not classes: taken for such, the network would be judged on telling train from test.
    splits = folders and all(name.lower() in SPLITS for name in folders) and not {*folders} <= {*selection.classes}
    root = path / choose_split(path, selection.split, folders) if selection.split is not None or splits else path
    names = sorted(_images(root))
    if not names:
        raise InputError(
            f"expected images in {root}, found none; put them into a sub-folder a class, or straight inside without; "
            f"name files of another kind by a pattern, such as '{root}/*.parquet'"
        )
    return StoredDataset(
        decode_files(root, names),
        _labels(root, names, selection),
        stem="-".join(part for part in (path.resolve().name, selection.split) if part),
        content=files_digest(root, names),
        keys=names,
    )


def is_image_name(name: str) -> bool:
    """Tell whether a file of this name is an image.

    Example:
        >>> is_image_name("cats/Tom.JPG"), is_image_name("cats/notes.txt"), is_image_name("cats/._tom.jpg")
        (True, False, False)
    """
    last = name.rpartition("/")[2]
    return last.lower().endswith(SUFFIXES) and not last.startswith(".")


def named_files(cells: Iterable[tuple[str, str]], folder: Path) -> list[str]:
    """Return the names of the image files that a table names, each of which must be there.

    Args:
        cells: The place of each name, for messages, and the name.
        folder: The folder that the names count from.
    """
    places = list(cells)
    names = [name for _, name in places]
    sizes = file_sizes(folder, names)
    if None in sizes:
        place, name = places[sizes.index(None)]
        shown = name if len(name) <= LONGEST_SHOWN else f"{name[:LONGEST_SHOWN]}..."
        raise InputError(f"{place} names the image '{shown}', but there is no file {folder / shown}; add it")
    return names


def decode_files(folder: Path, names: Sequence[str]) -> "partial[list[npt.NDArray[np.uint8]]]":
    """Return a function that decodes the images of rows `start` to `stop - 1`, `H x W x 3` each.

    Args:
        folder: The folder of the files.
        names: The path of each row's file from there.
    """
    _pillow()  # if it is missing, say so now, not at the first row
    return partial(_decode, folder, names)


def _decode(folder: Path, names: Sequence[str], start: int, stop: int) -> list[npt.NDArray[np.uint8]]:
    return [decode_image(folder / name, place=str(folder / name)) for name in names[start:stop]]


def decode_image(content: Path | bytes, *, place: str) -> npt.NDArray[np.uint8]:
    """Decode one image.

    It is turned as its EXIF orientation says. Of an animation the first frame is taken; transparency is dropped, not
    blended; 16 bits per channel become 8 by their high byte.

    Args:
        content: A file, or its bytes.
        place: What to call it in messages.

    Returns:
        `H x W x 3` RGB.
    """
    pillow = _pillow()
    if MAX_BYTES in os.environ and pillow.Image.MAX_IMAGE_PIXELS is not None:  # our limit was raised, and so is its
        pillow.Image.MAX_IMAGE_PIXELS = max(pillow.Image.MAX_IMAGE_PIXELS, allowed_bytes() // PIXEL_BYTES)
    stream = BytesIO(content) if isinstance(content, bytes) else content
    try:
        with pillow.Image.open(stream, formats=PILLOW_FORMATS) as image:
            _check_size(image, pillow.Image.MAX_IMAGE_PIXELS)
            pillow.ImageOps.exif_transpose(image, in_place=True)
            return np.array(_rgb(image))
    except Exception as error:  # Pillow's decoders raise whatever they stumble over
        raise InputError(f"{place} cannot be decoded as an image: {error}; replace it or leave it out") from error


def _pillow() -> Any:
    """Import Pillow: tables and texts do without it."""
    try:
        import PIL.Image
        import PIL.ImageOps
    except ImportError as error:
        raise MissingExtraError("reading images needs Pillow; pip install 'offramp[images]'") from error
    return PIL


def _check_size(image: "Image", limit: int | None) -> None:
    # The header has been read by now, but no pixel. Pillow itself only warns up to twice its limit.
    count = image.width * image.height
    check_unpacked(PIXEL_BYTES * count, place=f"an image of {image.width} x {image.height} pixels")
    if limit is not None and count > limit:
        raise InputError(f"{count} pixels are more than the {limit} that PIL.Image.MAX_IMAGE_PIXELS allows")


def _rgb(image: "Image") -> "Image":
    if image.mode.startswith("I") or image.mode == "F":
        # Pillow would clip values above 255, which turns 16-bit images white.
        values = np.asarray(image)
        lowest, highest = values.min(), values.max()
        if values.dtype.kind == "f" or lowest < 0 or highest > 0xFFFF:
            raise InputError(f"expected 8 or 16 bits per channel, got {lowest} to {highest} (mode {image.mode})")
        high: Image = _pillow().Image.fromarray((values.astype(np.uint32) >> 8).astype(np.uint8))
        return high.convert("RGB")
    if image.mode == "P" and "transparency" in image.info:
        return image.convert("RGBA").convert("RGB")  # straight to RGB, Pillow warns
    return image if image.mode == "RGB" else image.convert("RGB")


def _labels(root: Path, names: Sequence[str], selection: Selection) -> Labels:
    inside = [name for name in names if "/" not in name]
    if inside and len(inside) < len(names):
        raise InputError(
            f"expected the images of {root} in sub-folders or straight inside, got both; move {inside[0]} or the others"
        )
    if inside:
        return unlabelled(len(names), selection.classes)
    folders = _sub_folders(root)
    for folder in folders:
        if selection.classes and folder not in selection.classes:
            raise unknown_name("class", folder, selection.classes)
    # Names even where they are "0", "1", "10": see the order above.
    return named_labels([name.partition("/")[0] for name in names], selection.classes or folders)


def _sub_folders(path: Path) -> list[str]:
    with os.scandir(path) as entries:
        return sorted(entry.name for entry in entries if entry.is_dir() and not _is_litter(entry.name))


def _is_litter(name: str) -> bool:
    return name.startswith(".") or name in LITTER


def _images(root: Path, above: str = "", parents: tuple[str, ...] = ()) -> Iterator[str]:
    """Yield the paths of all images from the root, with `/` on every system."""
    here = os.path.realpath(root / above)
    if here in parents:
        return  # a link to a folder above: it would go round for ever
    with os.scandir(here) as entries:
        for entry in entries:
            if entry.is_dir():
                if not _is_litter(entry.name):
                    yield from _images(root, f"{above}{entry.name}/", (*parents, here))
            elif is_image_name(entry.name):
                yield above + entry.name
