"""Image classifiers of torchvision as backbones, with the preparation they were trained with."""

from pathlib import Path
from typing import Any

import torch
from torch import nn

from offramp.backbone.factory import Factory, check_classes, check_named, within_bounds
from offramp.backbone.preprocessing import AS_IS, Preprocessing, photo_preprocessing
from offramp.backbone.split import SplitBackbone, split
from offramp.backbone.weights_file import count_classes, read_weights
from offramp.errors import InputError, MissingExtraError

SIDES = range(16, 1025)
"""Pixels of the sides of an example that what a file says may ask for."""

CLASSES = 1000
"""Of the library's models unless another number is asked for: ImageNet's."""

__all__ = [
    "pretrained_torchvision_backbone",
    "torchvision_backbone",
    "torchvision_by_name",
    "torchvision_preprocessing",
]


def torchvision_backbone(
    model: nn.Module, *, weights: Any = None, side: int = 224, name: str | None = None
) -> SplitBackbone:
    """Cut a torchvision classifier into its blocks.

    Args:
        model: A classifier of `torchvision.models`.
        weights: Its entry of the weights enumeration (`ResNet18_Weights.DEFAULT`); if given, the backbone prepares byte
            images as it says, and knows its classes where these are the weights'.
        side: Pixels of its images' sides, where there are no weights to say so.
        name: The library's name of it ("resnet18"), by which a saved frontier can make it again.

    Returns:
        The backbone.
    """
    preprocessing = AS_IS if weights is None else torchvision_preprocessing(weights)
    side = side if weights is None else _transforms(weights).crop_size[0]
    example = torch.randn(3, 3, side, side, generator=torch.Generator().manual_seed(0))
    backbone = split(model, example.to(next(model.parameters()).dtype))
    backbone.preprocessing = preprocessing
    categories = tuple(getattr(weights, "meta", {}).get("categories", ()))
    backbone.classes = categories if len(set(categories)) == backbone.num_classes else ()
    if name is not None:
        options = {"model": name, "num_classes": backbone.num_classes, "side": side}
        backbone.factory = Factory("torchvision", options, preprocessing)
    return backbone


def torchvision_by_name(model: str, *, num_classes: int, side: int = 224) -> SplitBackbone:
    """A torchvision classifier as the library makes it, without trained weights: a saved frontier puts its own into it.

    Args:
        model: The library's name of it.
        num_classes: K.
        side: Pixels of its images' sides.
    """
    models = _library()
    check_classes(num_classes)
    check_named("torchvision model", model, models.list_models(module=models))
    if type(side) is not int or side not in SIDES:
        raise InputError(f"expected images of {SIDES.start} to {SIDES.stop - 1} pixels a side, got {side!r}")
    with within_bounds():  # all sizes but the head's are the library's; not all of its models are made on no device
        made = models.get_model(model, weights=None, num_classes=num_classes)
    return torchvision_backbone(made, side=side, name=model)


def pretrained_torchvision_backbone(model: str, *, weights: str) -> SplitBackbone:
    """Make a torchvision classifier with trained weights of a file; nothing is downloaded.

    Args:
        model: The library's name of it.
        weights: A file: the state dict that `torch.save` wrote, or safetensors; the number of classes is its own.

    Returns:
        The backbone. It prepares images as the library's weights of this name want them: those that the file is of, by
        its name, whose classes it then has too; else those that the library recommends.
    """
    models = _library()
    check_named("torchvision model", model, models.list_models(module=models))
    state = read_weights(weights)
    with within_bounds():
        blank = models.get_model(model, weights=None)
        classes = count_classes(state, blank.state_dict(), CLASSES)
        check_classes(classes)
        made = blank if classes == CLASSES else models.get_model(model, weights=None, num_classes=classes)
    try:
        made.load_state_dict(state)
    except RuntimeError as error:
        raise InputError(
            f"{weights} does not fit the torchvision model '{model}': {str(error)[:300]}; name the architecture the "
            "weights are of"
        ) from error
    entries = models.get_model_weights(model)
    own = next((entry for entry in entries if entry.url.endswith(f"/{Path(weights).name}")), None)
    backbone = torchvision_backbone(made, weights=own or entries.DEFAULT, name=model)
    if own is None:
        backbone.classes = ()
    return backbone


def _library() -> Any:
    try:
        from torchvision import models
    except ImportError as error:
        raise MissingExtraError("models of torchvision need the library: pip install torchvision") from error
    return models


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
