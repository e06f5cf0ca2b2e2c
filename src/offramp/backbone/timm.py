"""Image classifiers of the timm library as backbones, with the preparation they were trained with."""

from math import floor
from typing import Any

import torch
from torch import nn

from offramp.backbone.factory import Factory, check_classes, check_named, made_within_bounds
from offramp.backbone.preprocessing import Preprocessing, photo_preprocessing
from offramp.backbone.split import SplitBackbone, split
from offramp.backbone.weights_file import count_classes, read_weights
from offramp.errors import InputError, MissingExtraError

__all__ = ["pretrained_timm_backbone", "timm_backbone", "timm_by_name", "timm_preprocessing"]


def timm_backbone(model: nn.Module) -> SplitBackbone:
    """Cut a timm model into its blocks; it prepares byte images as its pretrained weights want them.

    Args:
        model: What `timm.create_model` gives, with a classifier on top.

    Returns:
        The backbone.
    """
    config = _config(model)
    example = torch.randn(3, *config["input_size"], generator=torch.Generator().manual_seed(0))
    backbone = split(
        model,
        example.to(next(model.parameters()).dtype),
        name=str(config.get("architecture") or type(model).__name__.lower()),
    )
    backbone.preprocessing = timm_preprocessing(model)
    if config.get("architecture"):
        options = {"model": config["architecture"], "num_classes": backbone.num_classes}
        backbone.factory = Factory("timm", options, backbone.preprocessing)
    return backbone


def timm_by_name(model: str, *, num_classes: int) -> SplitBackbone:
    """A timm model as the library makes it, without trained weights: what a saved frontier puts its own into.

    Args:
        model: The library's name of it.
        num_classes: K.
    """
    timm = _library()
    check_classes(num_classes)
    check_named("timm model", model, timm.list_models())  # other names may stand for a download
    made = made_within_bounds(lambda: timm.create_model(model, pretrained=False, num_classes=num_classes))
    return timm_backbone(made)


def pretrained_timm_backbone(model: str, *, weights: str | None = None) -> SplitBackbone:
    """Make a timm model with trained weights that are on this machine; nothing is downloaded.

    Args:
        model: The library's name of it, with or without a tag (`resnet18.a1_in1k`).
        weights: A file: safetensors, or the state dict that `torch.save` wrote; the number of classes is its own. If
            left out, the library's pretrained weights, if they are in the cache of the Hugging Face hub.

    Returns:
        The backbone; it prepares images as the library's own weights of this name want them.
    """
    timm = _library()
    check_named("timm model", model, [*timm.list_models(), *timm.list_pretrained()])
    blank = timm.create_model(model, pretrained=False)
    state = read_weights(_cached(blank, model) if weights is None else weights)
    classes = count_classes(state, blank.state_dict(), blank.num_classes)
    check_classes(classes)
    overlay = {"state_dict": state, "num_classes": classes}
    try:
        made = timm.create_model(model, pretrained=True, num_classes=classes, pretrained_cfg_overlay=overlay)
    except Exception as error:  # whatever the library ends with
        raise InputError(
            f"the weights do not fit the timm model '{model}': {str(error)[:300]}; name the architecture they are of"
        ) from error
    made.pretrained_cfg.pop("state_dict", None)  # or all weights would be held twice
    return timm_backbone(made)


def _cached(model: nn.Module, name: str) -> str:
    """Find the file of a model's pretrained weights in the cache of the Hugging Face hub."""
    from huggingface_hub import try_to_load_from_cache  # comes with timm

    repository = _config(model).get("hf_hub_id")
    found = try_to_load_from_cache(repository, "model.safetensors") if repository else None
    if not isinstance(found, str):
        raise InputError(
            f"expected weights of the timm model '{name}', found none on this machine: nothing is downloaded. Give a "
            f"file (timm:{name},weights=FILE), or fetch the library's own once, in Python: "
            f"timm.create_model('{name}', pretrained=True)"
        )
    return found


def _library() -> Any:
    try:
        import timm
    except ImportError as error:
        raise MissingExtraError("models of timm need the library: pip install 'offramp[timm]'") from error
    return timm


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
