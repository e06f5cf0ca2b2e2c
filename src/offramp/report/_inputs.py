"""Raw inputs as images or texts to show."""

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import numpy.typing as npt
from torch import Tensor

from offramp.errors import InputError
from offramp.features import Source
from offramp.report._answers import Sample

__all__ = ["Image", "as_image", "as_text", "look_up"]

Image = npt.NDArray[np.uint8]
"""`H x W x 3`."""

_LONGEST, _SHORTEST = 96, 48  # pixels of a thumbnail's longer side: a page with 48 of them stays below 2 MB
_CHANNELS = (1, 3, 4)


def look_up(source: Source, samples: Sequence[Sample]) -> list[Image] | list[str] | None:
    """Return the raw inputs of samples: all images, all texts, or None if they are neither.

    Args:
        source: The source that the features were extracted from, with all rows in the same order.
        samples: The samples.
    """
    inputs = []
    for sample in samples:
        rows = source.read(sample.row, sample.row + 1)
        label = int(rows.labels[0]) if len(rows.labels) else None
        if label != sample.label:
            raise InputError(
                f"row {sample.row} of '{source.name}'",
                expected=f"class {sample.label}, as in the findings",
                got=f"{label}",
                hint="give the source that the features were extracted from, with the same rows in the same order",
            )
        inputs.append(_only(rows.inputs))
    for kind in (as_text, as_image):
        values = [kind(value) for value in inputs]
        if all(value is not None for value in values):
            return cast("list[Image] | list[str]", values)
    return None


def as_text(value: Any) -> str | None:
    """Return a text; None for anything else.

    Example:
        >>> as_text(np.array("good", dtype=object)), as_text(3)
        ('good', None)
    """
    value = value.item() if isinstance(value, np.ndarray) and value.shape == () else value
    return str(value) if isinstance(value, str) else None


def as_image(value: Any) -> Image | None:
    """Return a thumbnail of an array that looks like an image; None for anything else.

    Bytes are used as colours; other numbers are scaled from their minimum to their maximum.

    Args:
        value: `H x W`, `H x W x C` or `C x H x W` numbers, C of 1, 3 or 4; the fourth channel is left out.

    Returns:
        `H x W x 3`, at most 96 pixels per side.

    Example:
        >>> as_image(np.zeros((3, 8, 8))).shape, as_image(np.zeros(8))
        ((48, 48, 3), None)
    """
    array = value.detach().cpu().numpy() if isinstance(value, Tensor) else np.asarray(value)
    if array.dtype.kind not in "buif" or array.ndim not in (2, 3) or 0 in array.shape:
        return None
    if array.ndim == 2:
        array = array[:, :, None]
    elif array.shape[2] not in _CHANNELS and array.shape[0] in _CHANNELS:
        array = array.transpose(1, 2, 0)
    if array.shape[2] not in _CHANNELS:
        return None
    array = array[:, :, :3] if array.shape[2] == 4 else array
    colours = array if array.dtype == np.uint8 else _stretch(array)
    return _thumbnail(np.broadcast_to(colours, (*colours.shape[:2], 3)))


def _only(inputs: Any) -> Any:
    """Return the sample of a batch of one; None if it is a dict or a tuple of columns."""
    return inputs[0] if isinstance(inputs, list | np.ndarray | Tensor) and len(inputs) == 1 else None


def _stretch(array: npt.NDArray[Any]) -> Image:
    numbers = array.astype(np.float64)
    finite = np.isfinite(numbers)
    low, high = (numbers[finite].min(), numbers[finite].max()) if finite.any() else (0.0, 0.0)
    numbers = np.where(finite, numbers, low)
    # In halves, so that the difference of very large numbers does not overflow.
    share = (numbers / 2 - low / 2) / (high / 2 - low / 2) if high > low else np.full_like(numbers, 0.5)
    return np.round(255 * share).astype(np.uint8)


def _thumbnail(image: Image) -> Image:
    """Average large images over blocks and repeat the pixels of tiny ones, which browsers would blur."""
    longest = max(image.shape[:2])
    if longest < _SHORTEST:
        times = -(-_SHORTEST // longest)
        return image.repeat(times, axis=0).repeat(times, axis=1)
    step = -(-longest // _LONGEST)
    height, width = (max(1, side // step) for side in image.shape[:2])
    cut = image[: height * step, : width * step]
    blocks = cut.reshape(height, cut.shape[0] // height, width, cut.shape[1] // width, 3)
    averaged: Image = np.round(blocks.mean((1, 3))).astype(np.uint8)
    return averaged
