"""Steps that prepare images, and the usual sequences of them."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from offramp.errors import InputError
from offramp.preprocessing._preprocessing import Preprocessing
from offramp.preprocessing._raw import describe_inputs

__all__ = [
    "center_crop",
    "channels_first",
    "image_preprocessing",
    "normalize",
    "photo_preprocessing",
    "resize",
    "shift_and_flip",
]

Side = Annotated[int, range(1, 4097)]
"""Pixels of a side; bounded, as the number may come from a file."""

Shift = Annotated[int, range(257)]
"""Pixels an image may move by."""

MOST_RATIO = 100
"""Largest ratio of the sides of an image: resizing the shorter side enlarges the longer one with it."""

LUMINANCE = (0.299, 0.587, 0.114)
"""Weights of red, green and blue in gray (ITU-R BT.601), as in Pillow."""


def image_preprocessing(*, mean: Sequence[float], std: Sequence[float], scale: float = 1 / 255) -> Preprocessing:
    """Prepare byte images `N x H x W x 3`: channels first, then normalised.

    Args:
        mean: Channel means, after scaling.
        std: Channel standard deviations, after scaling.
        scale: Factor for the bytes.

    Example:
        >>> prepare = image_preprocessing(mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5))
        >>> prepare(np.full((1, 2, 2, 3), 255, np.uint8)).unique()
        tensor([1.])
    """
    parameters = {"scale": scale, "mean": list(mean), "std": list(std)}
    return Preprocessing((("channels_first", {}), ("normalize", parameters)))


def photo_preprocessing(
    side: int, *, resized: int, mode: str, mean: Sequence[float], std: Sequence[float], squash: bool = False
) -> Preprocessing:
    """Prepare byte photographs `N x H x W x 3`: shorter side resized, center cropped, normalised.

    Args:
        side: Pixels of the cropped square.
        resized: Pixels of the shorter side before cropping.
        mode: "bilinear" or "bicubic".
        mean: Channel means of pixels from 0 to 1.
        std: Channel standard deviations.
        squash: Resize both sides to `resized`, whatever the shape.
    """
    prepared = image_preprocessing(mean=mean, std=std)
    resizing = {"size": resized, "mode": mode, **({"squash": True} if squash else {})}
    steps = (("resize", resizing), ("center_crop", {"size": side}))
    return Preprocessing((prepared.steps[0], *steps, *prepared.steps[1:]))


def channels_first(inputs: Any, _generator: torch.Generator, /) -> Tensor:
    """Permute `N x H x W x C` to `N x C x H x W`."""
    try:
        # Copied: a memory map is read-only, and torch warns of tensors that share such memory.
        images = inputs if isinstance(inputs, Tensor) else torch.tensor(np.asarray(inputs))
    except (TypeError, ValueError):
        images = torch.empty(0)
    expected, got = "images N x H x W x C", describe_inputs(inputs)
    if images.ndim == 3:
        axis, index = ("batch", "None") if images.shape[2] <= 4 else ("channel", "..., None")
        raise InputError(
            expected=expected, got=f"{got}: the {axis} axis is missing", hint=f"add it with inputs[{index}]"
        )
    if images.ndim != 4:
        raise InputError(expected=expected, got=got, hint="give a batch, channels last")
    return images.permute(0, 3, 1, 2)


def normalize(
    inputs: Tensor, _generator: torch.Generator, /, *, scale: float, mean: Sequence[float], std: Sequence[float]
) -> Tensor:
    """Return `(inputs * scale - mean) / std` in float32, channel by channel."""
    if inputs.is_floating_point() and scale < 0.1 and inputs.numel() and 0 < float(inputs.max()) <= 1:
        raise InputError(
            expected=f"images of bytes, 0 to 255, which are multiplied by {scale:.4g}",
            got=f"numbers up to {float(inputs.max()):.3g}",
            hint="give the bytes, or a preprocessing with scale=1",
        )
    shape = (1, len(mean), 1, 1)
    if len(mean) == 1 and inputs.shape[1] == 3:
        inputs = _luminance(inputs)  # image files are read in colour, gray ones too
    if inputs.shape[1] != len(mean):
        raise InputError(
            expected=f"images of {len(mean)} channel{'s' * (len(mean) > 1)}",
            got=f"{inputs.shape[1]}",
            hint="convert them first",
        )
    return (inputs.float() * scale - torch.tensor(mean).view(shape)) / torch.tensor(std).view(shape)


def _luminance(images: Tensor) -> Tensor:
    """Convert `N x 3 x H x W` images to gray, as Pillow does; of bytes, the result is whole numbers."""
    gray = (images.float() * torch.tensor(LUMINANCE).view(1, 3, 1, 1)).sum(1, keepdim=True)
    return gray if images.is_floating_point() else gray.round()


def shift_and_flip(inputs: Tensor, generator: torch.Generator, /, *, shift: Shift) -> Tensor:
    """Move each image by up to `shift` pixels, filling with zeros, and mirror half of them."""
    count, _, height, width = inputs.shape
    padded = F.pad(inputs, (shift, shift, shift, shift))
    top, left = torch.randint(0, 2 * shift + 1, (2, count), generator=generator)
    mirrored = torch.rand(count, generator=generator) < 0.5
    rows = top[:, None] + torch.arange(height)
    columns = torch.arange(width).expand(count, width)
    columns = left[:, None] + torch.where(mirrored[:, None], columns.flip(1), columns)
    return padded[torch.arange(count)[:, None, None], :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)


def resize(
    inputs: Tensor,
    _generator: torch.Generator,
    /,
    *,
    size: Side,
    mode: Literal["bilinear", "bicubic"],
    squash: bool = False,
) -> Tensor:
    """Resize the shorter side to `size` pixels (with `squash`, both sides), antialiased, in float32."""
    height, width = inputs.shape[2:]
    if not squash and max(height, width) > MOST_RATIO * min(height, width):
        raise InputError(
            expected=f"images whose longer side is at most {MOST_RATIO} times the shorter", got=f"{height} x {width}"
        )
    # The longer side rounded down, as torchvision does.
    shape = (size, size) if squash else tuple(size * side // min(height, width) for side in (height, width))
    resized = F.interpolate(inputs.float(), shape, mode=mode, antialias=True, align_corners=False)
    # Bicubic curves overshoot at sharp edges; networks were trained on bytes, which end at 255.
    return resized if inputs.is_floating_point() else resized.clamp(0, 255)


def center_crop(inputs: Tensor, _generator: torch.Generator, /, *, size: Side) -> Tensor:
    """Crop the square of `size` pixels in the middle."""
    height, width = inputs.shape[2:]
    if min(height, width) < size:
        raise InputError(expected=f"images of at least {size} x {size} pixels to crop", got=f"{height} x {width}")
    top, left = round((height - size) / 2), round((width - size) / 2)  # as torchvision does
    return inputs[:, :, top : top + size, left : left + size]
