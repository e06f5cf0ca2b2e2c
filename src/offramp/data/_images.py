"""Images, decoded to upright 8-bit RGB arrays: single files, files that a table names, and folders."""

import os
from collections.abc import Iterable, Iterator, Sequence
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import numpy as np
import numpy.typing as npt

from offramp._registry import unknown_name
from offramp.data._columns import Names, TextColumn, Window, map_numbers
from offramp.data._dataset import Dataset, StoredDataset
from offramp.data._files import MAX_BYTES, allowed_bytes, check_unpacked, file_size, hash_files
from offramp.data._formats import Selection, choose_split
from offramp.data._labels import Labels
from offramp.errors import InputError, MissingExtraError

if TYPE_CHECKING:
    from PIL.Image import Image

__all__ = ["ImageFiles", "check_files", "decode_image", "import_pillow", "is_image_name", "open_folder"]

SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp")
PILLOW_FORMATS = ("BMP", "GIF", "JPEG", "PNG", "TIFF", "WEBP")  # Pillow knows more, some of which run other programs
MOST_SCANS = 32  # a progressive JPEG has about ten; each scan goes through the whole image, and takes a few bytes only
PIXEL_BYTES = 10  # memory per pixel while decoding: 4 in Pillow, and 3 twice until it is an array
LONGEST_SHOWN = 100  # a column `image` may hold encoded images instead of paths
BLOCK_ROWS = 4096  # names that are read together
SPLITS = {"dev", "eval", "test", "train", "training", "val", "valid", "validation"}
IGNORED = {"$RECYCLE.BIN", "@eaDir", "System Volume Information", "__MACOSX", "__pycache__", "lost+found"}
"""Folders that operating systems and programs create; never classes."""


def open_folder(path: Path, selection: Selection) -> Dataset:
    """Open a folder of images, `path/<class>/.../<image>`, or `path/<image>` without labels.

    The classes are the sub-folders, sorted as texts ("10" before "2"), as in torchvision; empty sub-folders count, so
    that the others keep their numbers. Hidden files and folders, folders of the operating system such as `__MACOSX`,
    and files that are not images are ignored.

    Args:
        path: The folder.
        selection: `split` names a sub-folder to read instead; `classes` lists the sub-folders that may exist.
    """
    if selection.column is not None:
        raise InputError(
            expected=f"no column for {path}, which has none", got=f"'{selection.column}'", hint="leave it out"
        )
    folders = _list_folders(path)
    # Folders named train and test are splits, not classes.
    splits = folders and all(name.lower() in SPLITS for name in folders) and not {*folders} <= {*selection.classes}
    root = path / choose_split(path, selection.split, folders) if selection.split is not None or splits else path
    names = Names(_list_images(root))
    if not len(names):
        raise InputError(
            expected=f"images in {root}",
            got="none",
            hint="put them into one sub-folder per class, or, without labels, into the folder itself; for other files "
            f"give a pattern, such as '{root}/*.parquet'",
        )
    return StoredDataset(
        ImageFiles(root, names),
        _read_labels(root, names, selection),
        stem="-".join(part for part in (path.resolve().name, selection.split) if part),
        content=hash_files(root, names),
        keys=names,
    )


def is_image_name(name: str) -> bool:
    """Return whether a file of this name is an image.

    Example:
        >>> is_image_name("cats/Tom.JPG"), is_image_name("cats/notes.txt"), is_image_name("cats/._tom.jpg")
        (True, False, False)
    """
    last = name.rpartition("/")[2]
    return last.lower().endswith(SUFFIXES) and not last.startswith(".")


def check_files(cells: Iterable[tuple[str, str]], folder: Path) -> Iterator[str]:
    """Yield the names of the image files of a table, after checking that each file exists.

    Args:
        cells: The place of each name, for messages, and the name.
        folder: The folder that the names are relative to.
    """
    for place, name in cells:
        if file_size(folder / name) is None:
            shown = name if len(name) <= LONGEST_SHOWN else f"{name[:LONGEST_SHOWN]}..."
            raise InputError(
                f"{place} names the image '{shown}', but there is no file {folder / shown}", hint="add the file"
            )
        yield name


@final
class ImageFiles:
    """Images that are decoded when they are read, `H x W x 3` each.

    Args:
        folder: The folder of the files.
        names: The path of each row's file in the folder.
    """

    def __init__(self, folder: Path, names: TextColumn) -> None:
        import_pillow()  # raise now if it is missing, not at the first row
        self._folder, self._names = folder, names

    def __call__(self, start: int, stop: int) -> list[npt.NDArray[np.uint8]]:
        """Return the images of rows `start` to `stop - 1`."""
        files = (self._folder / name for name in self._names[start:stop])
        return [decode_image(file, place=str(file)) for file in files]

    def part(self, start: int, stop: int) -> "ImageFiles":
        """Return the images of these rows only."""
        return ImageFiles(self._folder, Window(self._names[start:stop], start, len(self._names)))


def decode_image(
    content: Path | bytes,
    *,
    place: str,
    most_pixels: int | None = None,
    formats: Sequence[str] = PILLOW_FORMATS,
) -> npt.NDArray[np.uint8]:
    """Decode one image.

    The EXIF orientation is applied. Of an animation the first frame is taken; transparency is dropped, not blended; of
    16 bits per channel, the high 8 are kept.

    Args:
        content: A file, or its bytes.
        place: Name of the image in messages.
        most_pixels: Largest number of pixels, below the limit of Pillow; that one if left out.
        formats: Formats of files, by their names in Pillow.

    Returns:
        `H x W x 3` RGB.
    """
    pillow = import_pillow()
    if MAX_BYTES in os.environ and pillow.Image.MAX_IMAGE_PIXELS is not None:  # raise the limit of Pillow with ours
        pillow.Image.MAX_IMAGE_PIXELS = max(pillow.Image.MAX_IMAGE_PIXELS, allowed_bytes() // PIXEL_BYTES)
    stream = BytesIO(content) if isinstance(content, bytes) else content
    try:
        with pillow.Image.open(stream, formats=formats) as image:
            is_jpeg = image.format in ("JPEG", "MPO")
            if is_jpeg and isinstance(content, bytes) and content.count(b"\xff\xda") > MOST_SCANS:
                raise InputError(expected=f"a JPEG file of at most {MOST_SCANS} scans", got="more")
            _check_size(image, pillow.Image.MAX_IMAGE_PIXELS)
            _check_size(image, most_pixels)
            pillow.ImageOps.exif_transpose(image, in_place=True)
            return np.array(_as_rgb(image))
    except pillow.UnidentifiedImageError as error:  # its message has addresses in memory
        raise InputError(
            f"{place} cannot be decoded as an image",
            expected=f"a file of {', '.join(formats)}",
            got="another",
            hint="replace it or leave it out",
        ) from error
    except Exception as error:  # the decoders of Pillow may raise anything
        raise InputError(
            f"{place} cannot be decoded as an image: {error}", hint="replace it or leave it out"
        ) from error


def import_pillow() -> Any:
    """Import Pillow, which tables and texts do not need."""
    try:
        import PIL.Image
        import PIL.ImageOps
    except ImportError as error:
        raise MissingExtraError("reading images needs Pillow", hint="pip install 'offramp[images]'") from error
    return PIL


def _check_size(image: "Image", limit: int | None) -> None:
    # Only the header has been read yet. Pillow itself only warns up to twice its limit.
    count = image.width * image.height
    check_unpacked(PIXEL_BYTES * count, place=f"an image of {image.width} x {image.height} pixels")
    if limit is not None and count > limit:
        raise InputError(expected=f"at most {limit} pixels", got=f"{count}")


def _as_rgb(image: "Image") -> "Image":
    if image.mode.startswith("I") or image.mode == "F":
        # Pillow would clip values above 255, and turn 16-bit images white.
        values = np.asarray(image)
        lowest, highest = values.min(), values.max()
        if values.dtype.kind == "f" or lowest < 0 or highest > 0xFFFF:
            raise InputError(
                expected="8 or 16 bits per channel", got=f"values from {lowest} to {highest} (mode {image.mode})"
            )
        high: Image = import_pillow().Image.fromarray((values.astype(np.uint32) >> 8).astype(np.uint8))
        return high.convert("RGB")
    if image.mode == "P" and "transparency" in image.info:
        return image.convert("RGBA").convert("RGB")  # converting to RGB directly makes Pillow warn
    return image if image.mode == "RGB" else image.convert("RGB")


def _read_labels(root: Path, names: Names, selection: Selection) -> Labels:
    num_loose, loose = 0, ""
    for name in names:
        if "/" not in name:
            num_loose, loose = num_loose + 1, loose or name
    if 0 < num_loose < len(names):
        raise InputError(
            expected=f"the images of {root} all in sub-folders, or none",
            got="both",
            hint=f"move {loose} or the others",
        )
    if num_loose:
        return Labels.missing(len(names), selection.classes)
    folders = _list_folders(root)
    for folder in folders:
        if selection.classes and folder not in selection.classes:
            raise unknown_name("class", folder, selection.classes)
    # Names even if they are "0", "1", "10", to keep the order of torchvision.
    classes = selection.classes or tuple(folders)
    starts = range(0, len(names), BLOCK_ROWS)
    blocks = ([name.partition("/")[0] for name in names[start : start + BLOCK_ROWS]] for start in starts)
    return Labels(map_numbers(Labels.from_names(block, classes).numbers for block in blocks), classes)


def _list_folders(path: Path) -> list[str]:
    with os.scandir(path) as entries:
        return sorted(entry.name for entry in entries if entry.is_dir() and not _is_ignored(entry.name))


def _is_ignored(name: str) -> bool:
    return name.startswith(".") or name in IGNORED


def _list_images(root: Path, above: str = "", parents: tuple[str, ...] = ()) -> Iterator[str]:
    """Yield the paths of all images below the root, with `/` on every system, in ascending order."""
    here = os.path.realpath(root / above)
    if here in parents:
        return  # a link to a folder above would recurse for ever
    with os.scandir(here) as entries:
        # With its `/` a folder stands where its files do among all paths.
        names = sorted(f"{entry.name}/" if entry.is_dir() else entry.name for entry in entries)
    for name in names:
        if name.endswith("/"):
            if not _is_ignored(name[:-1]):
                yield from _list_images(root, above + name, (*parents, here))
        elif is_image_name(name):
            yield above + name
