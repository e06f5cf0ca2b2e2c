"""From raw inputs to what a backbone takes, as data: named steps and their parameters, never code."""

import reprlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from inspect import signature
from typing import Annotated, Any, Literal, get_args, get_origin

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from offramp.backbone.attachment import Attachment
from offramp.backbone.raw import differ_in_size, raw_batch
from offramp.errors import InputError, OfframpError
from offramp.registry import Registry

__all__ = ["AS_IS", "STEPS", "Preprocessing", "Step", "image_preprocessing", "photo_preprocessing", "shift_and_flip"]


Step = Callable[..., Any]
"""One named step: (inputs, generator, **parameters) to inputs; random steps draw from `generator` alone."""

Side = Annotated[int, range(1, 4097)]
"""Pixels of a side. Bounded, as every number here may come from a file."""

Shift = Annotated[int, range(257)]
"""Pixels an image may move by."""


def channels_first(inputs: Any, generator: torch.Generator, /) -> Tensor:
    """`N x H x W x C` to `N x C x H x W`."""
    try:
        # Copied: a memory map is read-only, and torch warns of tensors that share such memory.
        images = inputs if isinstance(inputs, Tensor) else torch.tensor(np.asarray(inputs))
    except (TypeError, ValueError):
        images = torch.empty(0)
    if images.ndim == 3:
        axis, index = ("batch", "None") if images.shape[2] <= 4 else ("channel", "..., None")
        raise InputError(
            f"expected images N x H x W x C, got {_described(inputs)}: the {axis} axis is missing; add it with "
            f"inputs[{index}]"
        )
    if images.ndim != 4:
        raise InputError(f"expected images N x H x W x C, got {_described(inputs)}; give a batch, channels last")
    return images.permute(0, 3, 1, 2)


def normalize(
    inputs: Tensor, generator: torch.Generator, /, *, scale: float, mean: Sequence[float], std: Sequence[float]
) -> Tensor:
    """`(inputs * scale - mean) / std` in float32, channel by channel."""
    if inputs.is_floating_point() and scale < 0.1 and inputs.numel() and 0 < float(inputs.max()) <= 1:
        raise InputError(
            f"expected images of bytes, 0 to 255, which are multiplied by {scale:.4g}, got numbers up to "
            f"{float(inputs.max()):.3g}; give the bytes, or a preprocessing with scale=1"
        )
    shape = (1, len(mean), 1, 1)
    if inputs.shape[1] != len(mean):
        raise InputError(f"expected images of {len(mean)} channels, got {inputs.shape[1]}; convert them first")
    return (inputs.float() * scale - torch.tensor(mean).view(shape)) / torch.tensor(std).view(shape)


def shift_and_flip(inputs: Tensor, generator: torch.Generator, /, *, shift: Shift) -> Tensor:
    """Move each image by up to `shift` pixels, zeros coming in, and mirror half of them."""
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
    generator: torch.Generator,
    /,
    *,
    size: Side,
    mode: Literal["bilinear", "bicubic"],
    squash: bool = False,
) -> Tensor:
    """Shrink or enlarge images so that their shorter side has `size` pixels, smoothed, in float32 of the same range.

    Squashed, both sides have.
    """
    height, width = inputs.shape[2:]
    # The longer side rounded down, as torchvision does.
    shape = (size, size) if squash else tuple(size * side // min(height, width) for side in (height, width))
    resized = F.interpolate(inputs.float(), shape, mode=mode, antialias=True, align_corners=False)
    # Bicubic curves shoot past sharp edges; images of bytes end at 255, and networks have seen no others.
    return resized if inputs.is_floating_point() else resized.clamp(0, 255)


def center_crop(inputs: Tensor, generator: torch.Generator, /, *, size: Side) -> Tensor:
    """The square of `size` pixels in the middle."""
    height, width = inputs.shape[2:]
    if min(height, width) < size:
        raise InputError(f"expected images of at least {size} x {size} pixels to crop, got {height} x {width}")
    top, left = round((height - size) / 2), round((width - size) / 2)  # as torchvision does
    return inputs[:, :, top : top + size, left : left + size]


STEPS: Registry[Step] = Registry("preprocessing step")
STEPS.add("center_crop", center_crop)
STEPS.add("channels_first", channels_first)
STEPS.add("normalize", normalize)
STEPS.add("resize", resize)
STEPS.add("shift_and_flip", shift_and_flip)
STEPS.add("tokenize", "offramp.backbone.text:tokenize")

MOST_STEPS = 64
MOST_CHANNELS = 4096


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
    """Registered step names with their parameters (numbers, strings, lists of them, attached files)."""

    def __call__(self, inputs: Any, *, seed: int = 0) -> Any:
        """Apply every step; random steps depend on `seed` alone.

        Args:
            inputs: As the steps take them: arrays, tensors; a list of texts, or of images (of Pillow, or bytes
                `H x W x C`), which may differ in size if the steps bring them to one.
            seed: Of random steps.
        """
        if differ_in_size(inputs):
            return _joined([self([one], seed=seed + index) for index, one in enumerate(inputs)])
        inputs = raw_batch(inputs)
        generator = torch.Generator().manual_seed(seed)
        for name, parameters in self.steps:
            step = STEPS.get(name)
            try:
                inputs = step(inputs, generator, **parameters)
            except OfframpError:
                raise
            except (RuntimeError, TypeError, ValueError, LookupError, AttributeError) as error:
                raise InputError(f"step '{name}' cannot take {_described(inputs)}: {str(error)[:300]}") from error
        return inputs

    def then(self, name: str, **parameters: Any) -> "Preprocessing":
        """The same steps and one more."""
        return Preprocessing((*self.steps, (name, parameters)))

    def followed_by(self, other: "Preprocessing") -> "Preprocessing":
        """These steps, then those of another."""
        return Preprocessing((*self.steps, *other.steps))

    def check(self) -> None:
        """Refuse steps that are not there and parameters a step does not take, before there is anything to prepare.

        Example:
            >>> Preprocessing().then("center_crop", size=10**9).check()
            Traceback (most recent call last):
            offramp.errors.InputError: step 'center_crop': expected 'size' in 1..4096, got 1000000000
        """
        if len(self.steps) > MOST_STEPS:
            raise InputError(f"expected at most {MOST_STEPS} steps, got {len(self.steps)}")
        for name, parameters in self.steps:
            _check_step(name, parameters)

    def describe(self) -> list[Any]:
        """The steps as plain lists and dictionaries, as JSON would hold them."""
        return [
            [name, {key: one.describe() if isinstance(one, Attachment) else one for key, one in parameters.items()}]
            for name, parameters in self.steps
        ]

    def attachments(self) -> list[Attachment]:
        """The files that steps need: `describe` names them by their hashes alone."""
        return [one for _, parameters in self.steps for one in parameters.values() if isinstance(one, Attachment)]


def _check_step(name: str, parameters: Mapping[str, Any]) -> None:
    """Parameters against what the step's signature says of them."""
    taken = {
        parameter.name: parameter
        for parameter in signature(STEPS.get(name)).parameters.values()
        if parameter.kind is parameter.KEYWORD_ONLY
    }
    needed = [key for key, parameter in taken.items() if parameter.default is parameter.empty]
    if not set(needed) <= set(parameters) <= set(taken):
        raise InputError(
            f"step '{name}': expected the parameters {', '.join(taken) or 'none'}, got {reprlib.repr(list(parameters))}"
        )
    for key, value in parameters.items():
        expected = _unlike(value, taken[key].annotation)
        if expected:
            raise InputError(f"step '{name}': expected '{key}' {expected}, got {reprlib.repr(value)}")
    if name == "normalize" and (len(parameters["mean"]) != len(parameters["std"]) or 0 in parameters["std"]):
        raise InputError("step 'normalize': expected a mean and a std other than 0 for each channel")
    if name == "tokenize":
        from offramp.backbone.text import parsed

        parsed(parameters["tokenizer"], parameters["longest"])


def _unlike(value: Any, annotation: Any) -> str | None:
    """What was expected, where a value is not of the annotated kind; of other kinds than these nothing is known."""
    if get_origin(annotation) is Annotated:
        kind, bounds = get_args(annotation)
        return _unlike(value, kind) or (None if value in bounds else f"in {bounds.start}..{bounds.stop - 1}")
    if get_origin(annotation) is Literal:
        allowed = get_args(annotation)
        return None if isinstance(value, str) and value in allowed else f"to be one of {', '.join(allowed)}"
    if annotation == Sequence[float]:
        listed = isinstance(value, list | tuple) and 0 < len(value) <= MOST_CHANNELS
        return None if listed and not any(_unlike(one, float) for one in value) else "to be a list of numbers"
    if annotation is float:
        number = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= 1e30
        return None if number else "to be a number"
    if annotation is Attachment:
        return None if isinstance(value, Attachment) else "to be an attached file"
    return None if annotation not in (bool, int, str) or type(value) is annotation else f"to be {annotation.__name__}"


def _joined(parts: Sequence[Any]) -> Tensor:
    """Images that were prepared one by one, as a batch."""
    shapes = sorted({_described(part) for part in parts})
    if len(shapes) > 1 or not isinstance(parts[0], Tensor):
        raise InputError(
            f"images of several sizes are not of one size after preprocessing ({', '.join(shapes[:3])}); resize them: "
            "offramp.backbone.photo_preprocessing does"
        )
    return torch.cat(list(parts))


def _described(inputs: Any) -> str:
    return f"shape {tuple(inputs.shape)}" if hasattr(inputs, "shape") else type(inputs).__name__


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
    side: int, *, resized: int, mode: str, mean: Sequence[float], std: Sequence[float], squash: bool = False
) -> Preprocessing:
    """The usual preparation of byte photographs `N x H x W x 3`: shorter side resized, middle square, normalised.

    Args:
        side: Pixels of the square.
        resized: Pixels of the shorter side before cropping.
        mode: "bilinear" or "bicubic".
        mean: Channel means, of numbers from 0 to 1.
        std: Channel standard deviations.
        squash: Resize both sides, whatever the shape.
    """
    prepared = image_preprocessing(mean=mean, std=std)
    resizing = {"size": resized, "mode": mode, **({"squash": True} if squash else {})}
    steps = (("resize", resizing), ("center_crop", {"size": side}))
    return Preprocessing((prepared.steps[0], *steps, *prepared.steps[1:]))
