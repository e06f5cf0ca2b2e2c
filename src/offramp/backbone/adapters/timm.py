"""Image classifiers of the timm library as backbones, with the preprocessing of their weights."""

from math import floor
from typing import Any

import torch
from torch import nn

from offramp.backbone._factory import Factory, check_classes, check_known, make_within_bounds
from offramp.backbone._splitting import SplitBackbone, split
from offramp.backbone.adapters._weights_file import count_classes, read_weights
from offramp.errors import InputError, MissingExtraError
from offramp.preprocessing import Preprocessing, photo_preprocessing

__all__ = ["timm_backbone"]


def timm_backbone(model: nn.Module) -> SplitBackbone:
    """Split a timm model into its blocks, with the preprocessing of its pretrained weights.

    Args:
        model: A model of `timm.create_model`, with a classifier on top.
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


def untrained_timm_backbone(model: str, *, num_classes: int) -> SplitBackbone:
    """Make a timm model without trained weights; a saved model adds its own.

    Args:
        model: The library's name of it.
        num_classes: K.
    """
    timm = _library()
    check_classes(num_classes)
    check_known("timm model", model, timm.list_models())  # other names may cause a download
    return timm_backbone(
        make_within_bounds(lambda: timm.create_model(model, pretrained=False, num_classes=num_classes))
    )


def pretrained_timm_backbone(model: str, *, weights: str | None = None) -> SplitBackbone:
    """Make a timm model with trained weights that are on this machine; nothing is downloaded.

    Args:
        model: The library's name of it, with or without a tag (`resnet18.a1_in1k`).
        weights: A file: safetensors, or a state dict that `torch.save` wrote, with any number of classes. By default
            the library's pretrained weights, if they are in the cache of the Hugging Face hub.

    Returns:
        The backbone, with the preprocessing of the library's weights of this name.
    """
    timm = _library()
    check_known("timm model", model, [*timm.list_models(), *timm.list_pretrained()])
    blank = timm.create_model(model, pretrained=False)
    state = read_weights(_cached_weights(blank, model) if weights is None else weights)
    classes = count_classes(state, blank.state_dict(), blank.num_classes)
    check_classes(classes)
    overlay = {"state_dict": state, "num_classes": classes}
    try:
        loaded = timm.create_model(model, pretrained=True, num_classes=classes, pretrained_cfg_overlay=overlay)
    except Exception as error:  # the library may raise anything
        raise InputError(
            f"the weights do not fit the timm model '{model}': {str(error)[:300]}",
            hint="name the architecture of the weights",
        ) from error
    loaded.pretrained_cfg.pop("state_dict", None)  # a second copy of all weights
    return timm_backbone(loaded)


def _cached_weights(model: nn.Module, name: str) -> str:
    """Return the file of a model's pretrained weights in the cache of the Hugging Face hub."""
    from huggingface_hub import try_to_load_from_cache  # a dependency of timm

    repository = _config(model).get("hf_hub_id")
    file = try_to_load_from_cache(repository, "model.safetensors") if repository else None
    if not isinstance(file, str):
        raise InputError(
            expected=f"weights of the timm model '{name}' on this machine",
            got="none, and nothing is downloaded",
            hint=f"give a file (timm:{name},weights=FILE), or fetch the library's own once, in Python: "
            f"timm.create_model('{name}', pretrained=True)",
        )
    return file


def _library() -> Any:
    try:
        import timm
    except ImportError as error:
        raise MissingExtraError("models of timm need the library", hint="pip install 'offramp[timm]'") from error
    return timm


def timm_preprocessing(model: nn.Module) -> Preprocessing:
    """Return the preprocessing of byte images `N x H x W x 3` for a timm model's pretrained weights."""
    config = _config(model)
    (height, side), crop = config["input_size"][-2:], config.get("crop_mode") or "center"
    if height != side or crop not in ("center", "squash"):
        raise InputError(
            expected="square images, cropped from the center or squashed",
            got=f"{height} x {side} pixels and crop_mode '{crop}'",
            hint="use offramp.split(model, example) and prepare them yourself",
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
            expected="a timm model with a pretrained_cfg, which describes its inputs",
            got=type(model).__name__,
            hint="use offramp.split(model, example)",
        )
    return dict(config)
