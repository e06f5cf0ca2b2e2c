"""Image classifiers of the timm library as trunks, with the preparation they were trained with."""

from typing import Any

import torch
from torch import nn

from offramp.errors import InputError
from offramp.trunk.preprocessing import Preprocessing, photo_preprocessing
from offramp.trunk.split import SplitTrunk, split

__all__ = ["timm_preprocessing", "timm_trunk"]


def timm_trunk(model: nn.Module) -> SplitTrunk:
    """Cut a timm model into its blocks; it prepares byte images as its pretrained weights want them.

    Args:
        model: What `timm.create_model` gives, with a classifier on top.

    Returns:
        The trunk.
    """
    config = _config(model)
    example = torch.randn(2, *config["input_size"], generator=torch.Generator().manual_seed(0))
    trunk = split(model, example, name=str(config.get("architecture") or type(model).__name__.lower()))
    trunk.preprocessing = timm_preprocessing(model)
    return trunk


def timm_preprocessing(model: nn.Module) -> Preprocessing:
    """How a timm model's pretrained weights want byte images `N x H x W x 3` prepared, as data."""
    config = _config(model)
    side = int(config["input_size"][-1])
    resized = round(side / float(config.get("crop_pct") or 1.0))
    mode = {"bicubic": "bicubic"}.get(str(config.get("interpolation")), "bilinear")
    return photo_preprocessing(side, resized=resized, mode=mode, mean=config["mean"], std=config["std"])


def _config(model: nn.Module) -> dict[str, Any]:
    config = getattr(model, "pretrained_cfg", None)
    if not config or "input_size" not in config:
        raise InputError(
            f"expected a timm model, which says how its inputs are prepared (pretrained_cfg), got "
            f"{type(model).__name__}; use offramp.split(model, example)"
        )
    return dict(config)
