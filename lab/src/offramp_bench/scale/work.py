"""Random weights and random images for the parts about extraction, whose figures do not depend on them."""

import hashlib
from pathlib import Path

import numpy as np
import torch

from offramp.backbone import CifarResNet
from offramp.features import ArraySource
from offramp.preprocessing._images import image_preprocessing

__all__ = ["VIEWS", "hashes", "images", "network"]

VIEWS = (image_preprocessing(mean=(0.5, 0.5, 0.5), std=(0.25, 0.25, 0.25)),)


def network(layers: int) -> CifarResNet:
    """Return a ResNet for 32 x 32 images, with the same weights each time.

    Args:
        layers: Number of layers.
    """
    torch.manual_seed(0)
    return CifarResNet(layers).eval()


def images(rows: int) -> ArraySource:
    """Return random images of ten classes.

    Args:
        rows: Number of images.
    """
    pixels = np.random.default_rng(0).integers(0, 256, (rows, 32, 32, 3), np.uint8)
    return ArraySource(pixels, np.arange(rows) % 10, name="noise")


def hashes(path: Path) -> dict[str, str]:
    """Return the hash of every file in a folder, by name.

    Args:
        path: The folder.
    """
    files = [file for file in sorted(path.rglob("*")) if file.is_file() and not file.name.startswith(".")]
    return {str(file.relative_to(path)): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}
