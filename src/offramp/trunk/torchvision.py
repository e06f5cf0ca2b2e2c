"""Image classifiers of torchvision as trunks, with the preparation they were trained with."""

from typing import Any

import torch
from torch import nn

from offramp.errors import InputError
from offramp.trunk.preprocessing import AS_IS, Preprocessing, photo_preprocessing
from offramp.trunk.split import SplitTrunk, split

__all__ = ["torchvision_preprocessing", "torchvision_trunk"]


def torchvision_trunk(model: nn.Module, *, weights: Any = None, side: int = 224) -> SplitTrunk:
    """Cut a torchvision classifier into its blocks.

    Args:
        model: A classifier of `torchvision.models`.
        weights: Its entry of the weights enumeration (`ResNet18_Weights.DEFAULT`); if given, the trunk prepares byte
            images as it says.
        side: Pixels of its images' sides, where there are no weights to say so.

    Returns:
        The trunk.
    """
    preprocessing = AS_IS if weights is None else torchvision_preprocessing(weights)
    side = side if weights is None else _transforms(weights).crop_size[0]
    example = torch.randn(3, 3, side, side, generator=torch.Generator().manual_seed(0))
    trunk = split(model, example.to(next(model.parameters()).dtype))
    trunk.preprocessing = preprocessing
    return trunk


def torchvision_preprocessing(weights: Any) -> Preprocessing:
    """How torchvision weights want byte images `N x H x W x 3` prepared, as data."""
    transforms = _transforms(weights)
    mode = str(getattr(transforms.interpolation, "value", "bilinear"))
    return photo_preprocessing(
        transforms.crop_size[0], resized=transforms.resize_size[0], mode=mode, mean=transforms.mean, std=transforms.std
    )


def _transforms(weights: Any) -> Any:
    transforms = getattr(weights, "transforms", None)
    transforms = transforms() if callable(transforms) else None
    if not hasattr(transforms, "crop_size"):
        raise InputError(
            f"expected an entry of torchvision's weights of a classifier (ResNet18_Weights.DEFAULT), got {weights!r}"
        )
    return transforms
