"""Image classifiers of the transformers library as backbones, and their preprocessor_config.json as preprocessing."""

from collections.abc import Mapping
from math import isclose
from typing import Any

import torch
from torch import nn

from offramp.backbone.factory import Factory, check_classes, check_named, made_within_bounds
from offramp.backbone.preprocessing import AS_IS, Preprocessing, photo_preprocessing
from offramp.backbone.split import SplitBackbone, split
from offramp.backbone.transformers import class_names, extract_config, plain_config
from offramp.errors import InputError, MissingExtraError

__all__ = ["image_backbone", "image_by_config", "image_preparation"]

SIDES = range(16, 1025)
"""Pixels of the sides of an example that what a file says may ask for."""

MODES = {2: "bilinear", 3: "bicubic"}
"""Pillow's numbers of the ways to resize."""

OTHERWISE = ("LevitImageProcessor", "PoolFormerImageProcessor")
"""Processors whose file looks as others do and means another size to resize to."""

CONVNEXT_SQUASHED = 384
"""Pixels from which `ConvNextImageProcessor` resizes both sides and crops nothing."""


def image_backbone(
    model: nn.Module, *, side: int, preprocessing: Preprocessing = AS_IS, name: str | None = None
) -> SplitBackbone:
    """Cut an image classifier into its layers.

    Args:
        model: A `...ForImageClassification`.
        side: Pixels of the sides of its images.
        preprocessing: From raw images to what the model takes, `N x 3 x side x side`.
        name: Part of the fingerprint; the architecture's name if left out.

    Returns:
        The backbone.
    """
    if type(side) is not int or side not in SIDES:
        raise InputError(f"expected images of {SIDES.start} to {SIDES.stop - 1} pixels a side, got {side!r}")
    config: Any = model.config
    example = torch.randn(3, 3, side, side, generator=torch.Generator().manual_seed(0))
    precise = example.to(next(model.parameters()).dtype)
    backbone = split(model, precise, name=config.model_type if name is None else name)
    backbone.classes = class_names(config, backbone.num_classes)
    backbone.preprocessing = preprocessing
    options = {
        "config": extract_config(model),
        "num_classes": backbone.num_classes,
        "name": backbone.name,
        "side": side,
    }
    backbone.factory = Factory("transformers_images", options, preprocessing)
    return backbone


def image_by_config(*, config: Mapping[str, Any], num_classes: int, name: str, side: int) -> SplitBackbone:
    """Make an image classifier without trained weights: a saved frontier puts its own into it.

    Args:
        config: The network's sizes as the library's configuration holds them, `model_type` among them.
        num_classes: K.
        name: Part of the fingerprint.
        side: Pixels of the sides of its images.
    """
    try:
        from transformers import AutoConfig, AutoModelForImageClassification
        from transformers.models.auto.modeling_auto import MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES as KNOWN
    except ImportError as error:
        raise MissingExtraError(
            "image networks of it need transformers: pip install 'offramp[transformers]'"
        ) from error
    check_classes(num_classes)
    check_named("kind of image classifier", config.get("model_type"), KNOWN)
    maker: Any = AutoModelForImageClassification  # untyped
    sizes = AutoConfig.for_model(**{**plain_config(config), "num_labels": num_classes})
    return image_backbone(made_within_bounds(lambda: maker.from_config(sizes)), side=side, name=name)


def image_preparation(content: Mapping[str, Any]) -> tuple[Preprocessing, int]:
    """Turn the content of a preprocessor_config.json into preprocessing of byte images, and the side it gives.

    Args:
        content: What an image processor of the transformers library saved.

    Returns:
        The preprocessing, and pixels of the sides of its images.

    Raises:
        InputError: The processor does what no step here does.
    """
    kind = str(content.get("image_processor_type", content.get("feature_extractor_type", ""))).removesuffix("Fast")
    if kind.replace("FeatureExtractor", "ImageProcessor") in OTHERWISE:
        raise _unlike(content)
    try:
        return _preparation(content)
    except (TypeError, ValueError, ZeroDivisionError) as error:
        raise _unlike(content) from error


def _preparation(content: Mapping[str, Any]) -> tuple[Preprocessing, int]:
    size, crop = _sides(content.get("size")), _sides(content.get("crop_size"))
    steps = ("do_resize", "do_rescale", "do_normalize")
    plain = all(content.get(step, True) for step in steps) and not content.get("do_pad", False)
    mode = MODES.get(content.get("resample", 2))
    scaled = isclose(content.get("rescale_factor", 1 / 255), 1 / 255, rel_tol=1e-6)
    if size is None or mode is None or not plain or not scaled:
        raise _unlike(content)
    side, squash = size
    resized = side
    if content.get("do_center_crop", False):
        if crop is None or not crop[1] or crop[0] > side:
            raise _unlike(content)
        side = crop[0]
    elif not squash and "crop_pct" in content:  # ConvNeXt: resized so that the middle, a share of it, has the size
        squash = side >= CONVNEXT_SQUASHED
        resized = side if squash else int(side / content["crop_pct"])
    elif not squash:
        raise _unlike(content)  # images would keep their shapes, and make no batch
    mean, std = content.get("image_mean"), content.get("image_std")
    if not isinstance(mean, list | tuple) or not isinstance(std, list | tuple):
        raise _unlike(content)
    return photo_preprocessing(side, resized=resized, mode=mode, mean=mean, std=std, squash=squash), side


def _sides(value: Any) -> tuple[int, bool] | None:
    """Return pixels, and whether both sides have as many; None where a size is not square."""
    if type(value) is int:
        return value, True
    if not isinstance(value, Mapping):
        return None
    sides = [value.get(key) for key in ("height", "width")]
    if type(sides[0]) is int and sides[0] == sides[1]:
        return sides[0], True
    shortest = value.get("shortest_edge")
    return (shortest, False) if type(shortest) is int and len(value) == 1 else None


def _unlike(content: Mapping[str, Any]) -> InputError:
    keys = ("image_processor_type", "size", "crop_size", "do_center_crop", "do_pad", "resample", "rescale_factor")
    told = {key: content[key] for key in (*keys, "image_mean", "image_std") if key in content}
    return InputError(
        f"expected a preprocessor_config.json that resizes to a square, or crops one, and normalises; got {told}; in "
        "Python: backbone = offramp.split(model, example), then set backbone.preprocessing"
    )
