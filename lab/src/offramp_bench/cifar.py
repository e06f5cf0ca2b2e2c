"""CIFAR-10, its pretrained ResNets and a cascade of two, from the folder named by OFFRAMP_DATA, for all benchmarks."""

import os
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image

from offramp.backbone import Cascade
from offramp.backbone._backbone import Backbone
from offramp.backbone._cascading import cascade
from offramp.backbone._cifar_resnet import load_cifar_resnet
from offramp.errors import InputError
from offramp.features import Source, extract, split_by_id
from offramp.features._source import Rows
from offramp.features._store import Store
from offramp.preprocessing import Preprocessing
from offramp.preprocessing._images import image_preprocessing
from offramp_bench import places
from offramp_bench.row_ids import row_ids

__all__ = [
    "AUGMENTED",
    "PREPROCESSING",
    "Sheets",
    "cifar10",
    "data_folder",
    "images_cascade",
    "resnet",
    "resnet_store",
    "split_test",
    "store_of",
]

PREPROCESSING = image_preprocessing(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))
"""The preprocessing that the ResNets were trained with."""

AUGMENTED = Preprocessing((PREPROCESSING.steps[0], ("shift_and_flip", {"shift": 4}), *PREPROCESSING.steps[1:]))
"""The same, with each image shifted by up to 4 pixels and half of the images mirrored."""

SHEET_SIDE = 50
"""Images along each side of a sheet."""

SHEET_ROWS = SHEET_SIDE * SHEET_SIDE


def data_folder() -> Path:
    """Return the folder of datasets and pretrained weights.

    Raises:
        InputError: If OFFRAMP_DATA is not set, or names no folder.
    """
    folder = os.environ.get("OFFRAMP_DATA")
    if not folder or not Path(folder).is_dir():
        raise InputError(
            "OFFRAMP_DATA",
            expected="the folder of datasets and pretrained weights",
            got=f"{folder}, which is no folder" if folder else "nothing",
            hint="set OFFRAMP_DATA to that folder; `offramp-bench data` says how to fill it",
        )
    return Path(folder)


class Sheets:
    """Images from sheets of 50 x 50. Read them in order: only one sheet is kept decoded, 7.7 MB.

    Args:
        folder: Folder of the sheets and their labels.
        split: "train" or "test", the beginning of the names of files.
        rows: Number of first rows to keep; needed where there are more labels than images.
    """

    def __init__(self, folder: Path, split: str, rows: int | None = None) -> None:
        with np.load(folder / f"{split}-labels.npz", allow_pickle=False) as labels:
            self.labels = labels["y"].astype(np.int64)[:rows]
        self.name = f"{folder.name}/{split}"
        self._folder = folder
        self._split = split
        self._decoded: tuple[int, npt.NDArray[np.uint8]] | None = None

    def __len__(self) -> int:
        return len(self.labels)

    def read(self, start: int, stop: int) -> Rows:
        """Read byte images `n x 32 x 32 x 3`."""
        parts = []
        for sheet in range(start // SHEET_ROWS, (stop - 1) // SHEET_ROWS + 1):
            first = sheet * SHEET_ROWS
            parts.append(self._sheet(sheet)[max(start - first, 0) : stop - first])
        return Rows(np.concatenate(parts), self.labels[start:stop], row_ids(self.name, range(start, stop)))

    def _sheet(self, sheet: int) -> npt.NDArray[np.uint8]:
        if self._decoded is None or self._decoded[0] != sheet:
            self._decoded = None  # before decoding, so that two are never held
            with Image.open(self._folder / f"{self._split}-{sheet:02d}.webp") as image:
                pixels = np.asarray(image.convert("RGB"))
            tiles = pixels.reshape(SHEET_SIDE, 32, SHEET_SIDE, 32, 3).transpose(0, 2, 1, 3, 4)
            self._decoded = sheet, tiles.reshape(SHEET_ROWS, 32, 32, 3)
        return self._decoded[1]


def cifar10(split: str, *, rows: int | None = None) -> Source:
    """Return CIFAR-10 in its official order, byte images `n x 32 x 32 x 3`.

    Args:
        split: "train" (50,000 rows, which the ResNets have seen) or "test" (10,000).
        rows: Number of first rows to keep.
    """
    return Sheets(data_folder() / "cifar10", split, rows)


def split_test(ids: npt.ArrayLike) -> list[npt.NDArray[np.int64]]:
    """Split the 10,000 test images, since the ResNets have seen all train images.

    Args:
        ids: Ids of the test images.

    Returns:
        Indices of 2,000 images to tune, 3,000 to calibrate and 5,000 to test.
    """
    return split_by_id(ids, (2_000, 3_000, 5_000), seed=0)


def resnet(layers: int) -> Backbone:
    """Return a pretrained ResNet of 20, 32, 44 or 56 layers."""
    files = sorted((data_folder() / "resnet_cifar10").glob(f"resnet{layers}-*.th"))
    if not files:
        raise InputError(f"no weights of a ResNet with {layers} layers in {data_folder()}; there are 20, 32, 44 and 56")
    backbone = load_cifar_resnet(files[0], layers)
    backbone.preprocessing = PREPROCESSING
    return backbone


def images_cascade() -> Cascade:
    """Return ResNet-20, then ResNet-56."""
    return cascade(resnet(20), resnet(56))


def resnet_store(split: str, pooling: str, *, augmented: bool = False) -> Store:
    """Return ResNet-56's features of a split under `lab/.cache`, extracted on first use: one pass per view.

    Args:
        split: "train" or "test".
        pooling: Name of a pooling.
        augmented: True to add a second view, shifted and mirrored.
    """
    name = f"resnet56-{split}-{pooling}" + ("-augmented" if augmented else "")
    views = (PREPROCESSING, AUGMENTED) if augmented else (PREPROCESSING,)
    return store_of(name, resnet(56), cifar10(split), *views, pooling=pooling)


def store_of(name: str, backbone: Backbone, source: Source, *views: Preprocessing, pooling: str = "auto") -> Store:
    """Return features under `lab/.cache`, extracted on first use.

    Args:
        name: Name of the folder.
        backbone: The network.
        source: The samples.
        *views: Preprocessing of each view; none if left out.
        pooling: Name of a pooling.
    """
    folder = places.CACHE / name
    if (folder / "manifest.json").exists():
        return Store.open(folder)
    return extract(backbone, source, folder, poolings=(pooling,), views=views or (Preprocessing(),))
