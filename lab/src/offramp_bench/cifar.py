"""CIFAR-10 and its pretrained ResNets, from the folder named by OFFRAMP_DATA: what the benchmarks share."""

import os
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image

from offramp.backbone._backbone import Backbone
from offramp.backbone._cifar_resnet import load_cifar_resnet
from offramp.errors import InputError
from offramp.features import Source, extract
from offramp.features._source import Rows
from offramp.features._store import Store
from offramp.preprocessing import Preprocessing
from offramp.preprocessing._images import image_preprocessing
from offramp_bench import places
from offramp_bench.row_ids import row_ids

__all__ = ["AUGMENTED", "PREPROCESSING", "Sheets", "cached", "cifar10", "data_folder", "resnet", "store_of"]

PREPROCESSING = image_preprocessing(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))
"""What the ResNets were trained with."""

AUGMENTED = Preprocessing((PREPROCESSING.steps[0], ("shift_and_flip", {"shift": 4}), *PREPROCESSING.steps[1:]))
"""The same, each image moved by up to 4 pixels and half of them mirrored."""

SHEET_SIDE = 50
"""Images along each side of a sheet."""

SHEET_ROWS = SHEET_SIDE * SHEET_SIDE


def data_folder() -> Path:
    """Return the folder of datasets and pretrained weights.

    Raises:
        InputError: If OFFRAMP_DATA is not set, or names no folder.
    """
    named = os.environ.get("OFFRAMP_DATA")
    if not named or not Path(named).is_dir():
        raise InputError(
            "OFFRAMP_DATA",
            expected="the folder of datasets and pretrained weights",
            got=f"{named}, which is no folder" if named else "nothing",
            hint="set OFFRAMP_DATA to that folder; `offramp-bench data` says how to fill it",
        )
    return Path(named)


class Sheets:
    """Images from sheets of 50 x 50. One is kept decoded, 7.7 MB: meant to be read in order.

    Args:
        folder: Of the sheets and their labels.
        split: What their names begin with: "train" or "test".
        rows: Only so many of the first rows; needed where there are more labels than images.
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
        """Byte images `n x 32 x 32 x 3`."""
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
    """CIFAR-10 in its official order, byte images `n x 32 x 32 x 3`.

    Args:
        split: "train" (50,000 rows, which the ResNets have seen) or "test" (10,000).
        rows: Only so many of the first rows.
    """
    return Sheets(data_folder() / "cifar10", split, rows)


def resnet(layers: int) -> Backbone:
    """A pretrained ResNet: 20, 32, 44 or 56 layers."""
    found = sorted((data_folder() / "resnet_cifar10").glob(f"resnet{layers}-*.th"))
    if not found:
        raise InputError(f"no weights of a ResNet with {layers} layers in {data_folder()}; there are 20, 32, 44 and 56")
    backbone = load_cifar_resnet(found[0], layers)
    backbone.preprocessing = PREPROCESSING
    return backbone


def cached(layers: int, split: str, pooling: str, *, augmented: bool = False) -> Store:
    """The features of a split under `lab/.cache`, extracted on first use: a pass of the network for each view.

    Args:
        layers: Of the ResNet.
        split: "train" or "test".
        pooling: Name of a pooling.
        augmented: Whether a second view, moved and mirrored, stands beside the clean one.
    """
    name = f"resnet{layers}-{split}-{pooling}" + ("-augmented" if augmented else "")
    views = (PREPROCESSING, AUGMENTED) if augmented else (PREPROCESSING,)
    return store_of(name, resnet(layers), cifar10(split), *views, pooling=pooling)


def store_of(name: str, backbone: Backbone, source: Source, *views: Preprocessing, pooling: str = "auto") -> Store:
    """Features under `lab/.cache`, extracted on first use.

    Args:
        name: Of the folder.
        backbone: The network.
        source: What it runs over.
        *views: How each view is prepared; inputs as they are if left out.
        pooling: Name of a pooling.
    """
    folder = places.CACHE / name
    if (folder / "manifest.json").exists():
        return Store.open(folder)
    return extract(backbone, source, folder, poolings=(pooling,), views=views or (Preprocessing(),))
