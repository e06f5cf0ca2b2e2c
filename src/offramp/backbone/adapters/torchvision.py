"""Image classifiers of torchvision as backbones, with the preprocessing of their weights."""

from pathlib import Path
from typing import Any

import torch
from torch import nn

from offramp.backbone._factory import Factory, check_classes, check_known, check_side, within_bounds
from offramp.backbone._splitting import SplitBackbone, split
from offramp.backbone.adapters._weights_file import count_classes, read_weights
from offramp.errors import InputError, MissingExtraError
from offramp.preprocessing import Preprocessing, photo_preprocessing
from offramp.preprocessing._preprocessing import AS_IS

__all__ = ["torchvision_backbone"]

IMAGENET_CLASSES = 1000
"""The number of classes of the library's models by default."""


def torchvision_backbone(
    model: nn.Module, *, weights: Any = None, side: int = 224, name: str | None = None
) -> SplitBackbone:
    """Split a torchvision classifier into its blocks.

    Args:
        model: A classifier of `torchvision.models`.
        weights: Its entry of the weights enumeration (`ResNet18_Weights.DEFAULT`), which brings the preprocessing of
            byte images and, if their number fits, the class names.
        side: Pixels of its images' sides, if `weights` is left out.
        name: The library's name of it ("resnet18"), by which a saved model can make it again.
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


def untrained_torchvision_backbone(model: str, *, num_classes: int, side: int = 224) -> SplitBackbone:
    """Make a torchvision classifier without trained weights; a saved model adds its own.

    Args:
        model: The library's name of it.
        num_classes: K.
        side: Pixels of its images' sides.
    """
    models = _library()
    check_classes(num_classes)
    check_known("torchvision model", model, models.list_models(module=models))
    check_side(side)
    with within_bounds():  # no trial on the meta device: not all of the library's models support it
        blank = models.get_model(model, weights=None, num_classes=num_classes)
    return torchvision_backbone(blank, side=side, name=model)


def pretrained_torchvision_backbone(model: str, *, weights: str) -> SplitBackbone:
    """Make a torchvision classifier with trained weights from a file; nothing is downloaded.

    Args:
        model: The library's name of it.
        weights: A file: safetensors, or a state dict that `torch.save` wrote, with any number of classes.

    Returns:
        The backbone. If the file has the name of one of the library's own weights, it has their preprocessing and
        classes; else the preprocessing of the weights that the library recommends.
    """
    models = _library()
    check_known("torchvision model", model, models.list_models(module=models))
    state = read_weights(weights)
    with within_bounds():
        network = models.get_model(model, weights=None)
        classes = count_classes(state, network.state_dict(), IMAGENET_CLASSES)
        check_classes(classes)
        if classes != IMAGENET_CLASSES:
            network = models.get_model(model, weights=None, num_classes=classes)
    try:
        network.load_state_dict(state)
    except RuntimeError as error:
        raise InputError(
            f"{weights} does not fit the torchvision model '{model}': {str(error)[:300]}",
            hint="name the architecture of the weights",
        ) from error
    entries = models.get_model_weights(model)
    own = next((entry for entry in entries if entry.url.endswith(f"/{Path(weights).name}")), None)
    backbone = torchvision_backbone(network, weights=own or entries.DEFAULT, name=model)
    if own is None:
        backbone.classes = ()
    return backbone


def _library() -> Any:
    try:
        from torchvision import models
    except ImportError as error:
        raise MissingExtraError("models of torchvision need the library", hint="pip install torchvision") from error
    return models


def torchvision_preprocessing(weights: Any) -> Preprocessing:
    """Return the preprocessing of byte images `N x H x W x 3` for an entry of a weights enumeration."""
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
            expected="an entry of torchvision's weights of a classifier (ResNet18_Weights.DEFAULT)", got=weights
        )
    return transforms
