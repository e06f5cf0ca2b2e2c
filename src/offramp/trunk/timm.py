"""Image classifiers of the timm library as trunks, with the preparation they were trained with."""

from math import floor
from typing import Any

import torch
from torch import nn

from offramp.errors import InputError, MissingExtraError
from offramp.trunk.factory import Factory, check_classes, check_named, made_within_bounds
from offramp.trunk.preprocessing import Preprocessing, photo_preprocessing
from offramp.trunk.split import SplitTrunk, split

__all__ = ["timm_by_name", "timm_preprocessing", "timm_trunk"]


def timm_trunk(model: nn.Module) -> SplitTrunk:
    """Cut a timm model into its blocks; it prepares byte images as its pretrained weights want them.

    Args:
        model: What `timm.create_model` gives, with a classifier on top.

    Returns:
        The trunk.
    """
    config = _config(model)
    example = torch.randn(3, *config["input_size"], generator=torch.Generator().manual_seed(0))
    trunk = split(
        model,
        example.to(next(model.parameters()).dtype),
        name=str(config.get("architecture") or type(model).__name__.lower()),
    )
    trunk.preprocessing = timm_preprocessing(model)
    if config.get("architecture"):
        options = {"model": config["architecture"], "num_classes": trunk.num_classes}
        trunk.factory = Factory("timm", options, trunk.preprocessing)
    return trunk


def timm_by_name(model: str, *, num_classes: int) -> SplitTrunk:
    """A timm model as the library makes it, without trained weights: what a saved frontier puts its own into.

    Args:
        model: The library's name of it.
        num_classes: K.
    """
    try:
        import timm
    except ImportError as error:
        raise MissingExtraError("models of timm need the library: pip install 'offramp[timm]'") from error
    check_classes(num_classes)
    check_named("timm model", model, timm.list_models())  # other names may stand for a download
    made = made_within_bounds(lambda: timm.create_model(model, pretrained=False, num_classes=num_classes))
    return timm_trunk(made)


def timm_preprocessing(model: nn.Module) -> Preprocessing:
    """How a timm model's pretrained weights want byte images `N x H x W x 3` prepared, as data."""
    config = _config(model)
    (height, side), crop = config["input_size"][-2:], config.get("crop_mode") or "center"
    if height != side or crop not in ("center", "squash"):
        raise InputError(
            f"expected square images, cropped from the center or squashed, got {height} x {side} pixels and crop_mode "
            f"'{crop}'; use offramp.split(model, example) and prepare them yourself"
        )
    return photo_preprocessing(
        side,
        resized=floor(side / (config.get("crop_pct") or 0.875)),  # both as timm does
        mode="bicubic" if config.get("interpolation") == "bicubic" else "bilinear",
        mean=config["mean"],
        std=config["std"],
        squash=crop == "squash",
    )


def _config(model: nn.Module) -> dict[str, Any]:
    config = getattr(model, "pretrained_cfg", None)
    if not config or "input_size" not in config:
        raise InputError(
            f"expected a timm model, which says how its inputs are prepared (pretrained_cfg), got "
            f"{type(model).__name__}; use offramp.split(model, example)"
        )
    return dict(config)
