"""A folder of images: a sub-folder a class, or all in one place without labels."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from offramp.data.dataset import Dataset, StoredDataset
from offramp.data.identity import files_digest
from offramp.data.image_files import ImageFiles, is_image_name
from offramp.data.labels import Labels, named_labels, unlabelled
from offramp.data.location import Location, file_sizes, folder_name
from offramp.data.packed_texts import PackedTexts
from offramp.data.remote import RemotePath
from offramp.data.selection import Selection
from offramp.data.splits import choose_split, is_split_name
from offramp.errors import InputError
from offramp.registry import unknown_name

__all__ = ["open_folder"]

LITTER = {"$RECYCLE.BIN", "@eaDir", "System Volume Information", "__MACOSX", "__pycache__", "lost+found"}
"""Folders that systems and programs leave behind; no class is called so."""


def open_folder(path: Location, selection: Selection) -> Dataset:
    """Open a folder of images, `path/<class>/.../<image>`.

    The classes are the sub-folders in the order of their names as texts, "10" before "2", as torchvision numbers them
    in training; an empty sub-folder counts, so that the others keep their numbers. Passed over are hidden files and
    folders, folders that systems leave behind (`__MACOSX` and the like), and files that are no images.

    Args:
        path: The folder. At an address, where no folder is empty, each class needs an image.
        selection: `split` names a sub-folder to take for the whole; `classes` says what sub-folders there may be.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> from PIL import Image
        >>> with TemporaryDirectory() as folder:
        ...     for kind in ("dogs", "cats"):
        ...         Path(folder, kind).mkdir()
        ...         Image.new("RGB", (3, 2)).save(Path(folder, kind, "1.png"))
        ...     data = open_folder(Path(folder), Selection())
        ...     data.classes, data.read(0, 2).inputs[1].shape
        (('cats', 'dogs'), (2, 3, 3))
    """
    selection.refuse_column(path)
    root = _split(path, selection)
    names, sizes = _files(root)
    if not names:
        raise InputError(
            f"expected images in {root}, found none; put them into a sub-folder a class, or straight inside without"
        )
    return StoredDataset(
        ImageFiles(root, names),
        _labels(root, names, selection),
        stem="-".join(part for part in (folder_name(path), selection.split) if part),
        content=files_digest(root, names, sizes),
        keys=names,
    )


def _split(path: Location, selection: Selection) -> Location:
    folders = _sub_folders(path)
    # Not classes: taken for such, the network would be judged on telling train from test.
    splits = folders and all(map(is_split_name, folders)) and not {*folders} <= {*selection.classes}
    if selection.split is None and not splits:
        return path
    return path / choose_split(path, selection.split, folders)


def _labels(root: Location, names: Sequence[str], selection: Selection) -> Labels:
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


def _sub_folders(path: Location) -> list[str]:
    if isinstance(path, RemotePath):
        return sorted(name for name in path.folders() if not _is_litter(name))
    assert isinstance(path, Path), type(path)
    with os.scandir(path) as entries:
        return sorted(entry.name for entry in entries if entry.is_dir() and not _is_litter(entry.name))


def _files(root: Location) -> tuple[PackedTexts, Sequence[int | None]]:
    """Paths of the images from the root, sorted, with `/` on every system, and their sizes."""
    if isinstance(root, RemotePath):
        listed = root.sizes()
        names = sorted(name for name in listed if is_image_name(name) and not any(map(_is_litter, name.split("/"))))
        return PackedTexts(names), [listed[name] for name in names]
    assert isinstance(root, Path), type(root)
    packed = PackedTexts(sorted(_images(root)))
    return packed, file_sizes(root, packed)


def _is_litter(name: str) -> bool:
    return name.startswith(".") or name in LITTER


def _images(root: Path, above: str = "", parents: tuple[str, ...] = ()) -> Iterator[str]:
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
