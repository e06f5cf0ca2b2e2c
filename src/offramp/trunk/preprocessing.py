"""From raw inputs to what a trunk takes, as data: named steps and their parameters, never code."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from offramp.registry import Registry

__all__ = ["AS_IS", "STEPS", "Preprocessing", "Step", "image_preprocessing", "photo_preprocessing", "shift_and_flip"]


Step = Callable[..., Any]
"""One named step: (inputs, generator, **parameters) to inputs; random steps draw from `generator` alone."""


def channels_first(inputs: Any, generator: torch.Generator, /) -> Tensor:
    """`N x H x W x C` to `N x C x H x W`."""
    # Copied: a memory map is read-only, and torch warns of tensors that share such memory.
    images = inputs if isinstance(inputs, Tensor) else torch.tensor(inputs)
    return images.permute(0, 3, 1, 2)


def normalize(
    inputs: Tensor, generator: torch.Generator, /, *, scale: float, mean: Sequence[float], std: Sequence[float]
) -> Tensor:
    """`(inputs * scale - mean) / std` in float32, channel by channel."""
    shape = (1, len(mean), 1, 1)
    return (inputs.float() * scale - torch.tensor(mean).view(shape)) / torch.tensor(std).view(shape)


def shift_and_flip(inputs: Tensor, generator: torch.Generator, /, *, shift: int) -> Tensor:
    """Move each image by up to `shift` pixels, zeros coming in, and mirror half of them."""
    count, _, height, width = inputs.shape
    padded = F.pad(inputs, (shift, shift, shift, shift))
    top, left = torch.randint(0, 2 * shift + 1, (2, count), generator=generator)
    mirrored = torch.rand(count, generator=generator) < 0.5
    rows = top[:, None] + torch.arange(height)
    columns = torch.arange(width).expand(count, width)
    columns = left[:, None] + torch.where(mirrored[:, None], columns.flip(1), columns)
    return padded[torch.arange(count)[:, None, None], :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)


def resize(inputs: Tensor, generator: torch.Generator, /, *, size: int, mode: str) -> Tensor:
    """Shrink or enlarge images so that their shorter side has `size` pixels, smoothed, in float32 of the same range."""
    height, width = inputs.shape[2:]
    scale = size / min(height, width)
    shape = (max(size, round(height * scale)), max(size, round(width * scale)))
    return F.interpolate(inputs.float(), shape, mode=mode, antialias=True, align_corners=False)


def center_crop(inputs: Tensor, generator: torch.Generator, /, *, size: int) -> Tensor:
    """The square of `size` pixels in the middle."""
    top, left = (inputs.shape[2] - size) // 2, (inputs.shape[3] - size) // 2
    return inputs[:, :, top : top + size, left : left + size]


STEPS: Registry[Step] = Registry("preprocessing step")
STEPS.add("center_crop", center_crop)
STEPS.add("channels_first", channels_first)
STEPS.add("normalize", normalize)
STEPS.add("resize", resize)
STEPS.add("shift_and_flip", shift_and_flip)


@dataclass(frozen=True)
class Preprocessing:
    """Named steps applied in order.

    Example:
        >>> import numpy as np
        >>> prepare = image_preprocessing(mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5))
        >>> prepare(np.full((1, 2, 2, 3), 255, np.uint8)).unique()
        tensor([1.])
    """

    steps: tuple[tuple[str, Mapping[str, Any]], ...] = ()
    """Registered step names with their parameters (numbers, strings, lists of them)."""

    def __call__(self, inputs: Any, *, seed: int = 0) -> Any:
        """Apply every step; random steps depend on `seed` alone."""
        generator = torch.Generator().manual_seed(seed)
        for name, parameters in self.steps:
            inputs = STEPS.get(name)(inputs, generator, **parameters)
        return inputs

    def then(self, name: str, **parameters: Any) -> "Preprocessing":
        """The same steps and one more."""
        return Preprocessing((*self.steps, (name, parameters)))

    def followed_by(self, other: "Preprocessing") -> "Preprocessing":
        """These steps, then those of another."""
        return Preprocessing((*self.steps, *other.steps))

    def describe(self) -> list[Any]:
        """The steps as plain lists and dictionaries, as JSON would hold them."""
        return [[name, dict(parameters)] for name, parameters in self.steps]


AS_IS = Preprocessing()
"""Nothing: inputs as they are."""


def image_preprocessing(*, mean: Sequence[float], std: Sequence[float], scale: float = 1 / 255) -> Preprocessing:
    """The usual preparation of byte images `N x H x W x 3`.

    Args:
        mean: Channel means, after scaling.
        std: Channel standard deviations, after scaling.
        scale: What bytes are multiplied by first.
    """
    parameters = {"scale": scale, "mean": list(mean), "std": list(std)}
    return Preprocessing((("channels_first", {}), ("normalize", parameters)))


def photo_preprocessing(
    side: int, *, resized: int, mode: str, mean: Sequence[float], std: Sequence[float]
) -> Preprocessing:
    """The usual preparation of byte photographs `N x H x W x 3`: shorter side resized, middle square, normalised.

    Args:
        side: Pixels of the square.
        resized: Pixels of the shorter side before cropping.
        mode: "bilinear" or "bicubic".
        mean: Channel means, of numbers from 0 to 1.
        std: Channel standard deviations.
    """
    prepared = image_preprocessing(mean=mean, std=std)
    steps = (("resize", {"size": resized, "mode": mode}), ("center_crop", {"size": side}))
    return Preprocessing((prepared.steps[0], *steps, *prepared.steps[1:]))
