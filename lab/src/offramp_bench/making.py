"""Make the files of the data folder from original images and texts: sheets of images, and tables of texts.

`offramp-bench data` says which arrays go into which file. With Pillow 13.0.0 (libwebp 1.6.0) and numpy 2 the files have
the hashes of `data.sha256`; another libwebp or zlib may write other bytes, which hold the same pixels and texts.
"""

import gzip
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image

from offramp._files import write_atomically
from offramp.errors import InputError, StoreError
from offramp_bench.cifar import SHEET_ROWS, SHEET_SIDE, Sheets

__all__ = ["write_sheets", "write_texts"]

SIDE = 32
"""Pixels along each side of an image."""


def write_sheets(
    folder: Path,
    split: str,
    images: npt.NDArray[np.uint8],
    labels: npt.NDArray[np.integer],
    *,
    photographs: npt.NDArray[np.integer] | None = None,
) -> list[Path]:
    """Write images as lossless WebP sheets, and their labels, then read them back and compare.

    A sheet has 50 rows of 50 images, in order; what is left of the last sheet is black.

    Args:
        folder: Folder of the dataset; created if needed.
        split: Beginning of the file names, "train" or "test".
        images: `n x 32 x 32 x 3` bytes, RGB.
        labels: `N` classes, 0 to 255; at least as many as there are images (SVHN has more).
        photographs: `N` numbers of the photographs that the images were cut from, for SVHN; the column `src`.

    Returns:
        The files: sheets `<split>-00.webp` and so on, then `<split>-labels.npz`.

    Raises:
        InputError: If an array has another shape or type.
        StoreError: If a file does not give the same values when read back.
    """
    if images.dtype != np.uint8 or images.shape[1:] != (SIDE, SIDE, 3) or not len(images):
        raise InputError(
            "images",
            expected="an array n x 32 x 32 x 3 of uint8",
            got=f"{' x '.join(map(str, images.shape))} of {images.dtype}",
            hint="put the color channels last and scale to 0 to 255",
        )
    columns = {"y": _convert_column("labels", labels, len(images), np.uint8)}
    if photographs is not None:
        columns["src"] = _convert_column("photographs", photographs, len(labels), np.int32)
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for sheet, start in enumerate(range(0, len(images), SHEET_ROWS)):
        tiles = np.zeros((SHEET_ROWS, SIDE, SIDE, 3), np.uint8)
        part = images[start : start + SHEET_ROWS]
        tiles[: len(part)] = part
        rows = tiles.reshape(SHEET_SIDE, SHEET_SIDE, SIDE, SIDE, 3).transpose(0, 2, 1, 3, 4)
        files.append(folder / f"{split}-{sheet:02d}.webp")
        with write_atomically(files[-1]) as temporary:
            # Effort 80 and method 4 are the defaults of Pillow, written out because the hashes depend on them.
            pixels = Image.fromarray(rows.reshape(SHEET_SIDE * SIDE, SHEET_SIDE * SIDE, 3))
            pixels.save(temporary, "WEBP", lossless=True, quality=80, method=4)
    files.append(folder / f"{split}-labels.npz")
    with write_atomically(files[-1]) as temporary, open(temporary, "wb") as file:
        np.savez_compressed(file, **columns)  # type: ignore[arg-type]
    _compare_sheets(Sheets(folder, split, len(images)), images, labels)
    return files


def write_texts(path: Path, labels: Sequence[int], texts: Sequence[str], *, named: bool = False) -> None:
    r"""Write texts as a gzip table, then read it back and compare.

    The first line is `label<TAB>text`; then one line per text, UTF-8, without quoting. Readers split at the first tab.

    Args:
        path: The file, `<name>.tsv.gz`.
        labels: `N` classes.
        texts: `N` texts without line breaks.
        named: Keep the name of the table in the header of the gzip file, as `sst2` and two files of `clinc150` do.

    Raises:
        InputError: If there are not as many labels as texts, or a text has a line break.
        StoreError: If the file does not give the same rows when read back.
    """
    if len(labels) != len(texts):
        raise InputError(
            "labels", expected=f"one per text, {len(texts)}", got=f"{len(labels)}", hint="pass one label per text"
        )
    broken = next((text for text in texts if "\n" in text or "\r" in text), None)
    if broken is not None:
        raise InputError("texts", expected="texts of one line", got=broken, hint="replace line breaks by blanks")
    rows = [(str(int(label)), text) for label, text in zip(labels, texts, strict=True)]
    table = "".join(f"{label}\t{text}\n" for label, text in [("label", "text"), *rows])
    path.parent.mkdir(parents=True, exist_ok=True)
    with write_atomically(path) as temporary, open(temporary, "wb") as file:
        # Without a time in the header, the same rows give the same bytes.
        with gzip.GzipFile(path.name.removesuffix(".gz") if named else "", "wb", 9, file, mtime=0) as packed:
            packed.write(table.encode())
    with gzip.open(path, "rt", encoding="utf-8") as saved:
        if [tuple(line.rstrip("\n").split("\t", 1)) for line in saved][1:] != rows:
            raise _unequal(path)


def _convert_column(
    name: str, values: npt.NDArray[np.integer], at_least: int, dtype: type[np.integer]
) -> npt.NDArray[np.integer]:
    converted = values.astype(dtype)
    if values.ndim != 1 or len(values) < at_least or not np.array_equal(converted, values):
        raise InputError(
            name,
            expected=f"at least {at_least} numbers that {np.dtype(dtype).name} can hold",
            got=f"{' x '.join(map(str, values.shape))} of {values.dtype}",
            hint="pass one number per image, in the order of the images",
        )
    return converted


def _compare_sheets(sheets: Sheets, images: npt.NDArray[np.uint8], labels: npt.NDArray[np.integer]) -> None:
    for start in range(0, len(images), SHEET_ROWS):
        part = images[start : start + SHEET_ROWS]
        rows = sheets.read(start, start + len(part))
        if not np.array_equal(rows.inputs, part) or not np.array_equal(rows.labels, labels[start:][: len(part)]):
            raise _unequal(sheets.name)


def _unequal(file: object) -> StoreError:
    return StoreError(f"{file} gives other values when read back", hint="check the disk, and write it again")
