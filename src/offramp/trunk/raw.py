"""Raw inputs as people hold them: lists of images, lists of texts."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import Tensor

from offramp.errors import InputError

__all__ = ["differ_in_size", "listed", "raw_batch", "texts_of"]

MOST_CHANNELS = 4
"""Of an image: three colours and how much they cover."""


def listed(inputs: Any) -> Any:
    """A list of texts or images as an array of objects, a sample each; whatever else as it came.

    Example:
        >>> listed(["one", "two"])[1:]
        array(['two'], dtype=object)
    """
    if not isinstance(inputs, list) or not inputs or not all(isinstance(one, str) or _is_image(one) for one in inputs):
        return inputs
    samples = np.empty(len(inputs), dtype=object)
    for index, one in enumerate(inputs):
        samples[index] = one
    return samples


def differ_in_size(inputs: Any) -> bool:
    """Whether inputs are images of several sizes, which make no array of numbers."""
    inputs = _unlisted(inputs)
    images = isinstance(inputs, list) and all(_is_image(one) for one in inputs)
    return images and len({one.shape if isinstance(one, np.ndarray) else one.size for one in inputs}) > 1


def raw_batch(inputs: Any) -> Any:
    """A list of texts, or of images of one size, as one array; whatever else as it came.

    Args:
        inputs: Raw inputs.

    Returns:
        `N` texts; `N x H x W x C` bytes; or the inputs.

    Example:
        >>> raw_batch([np.zeros((4, 5, 3), np.uint8)] * 2).shape
        (2, 4, 5, 3)
        >>> raw_batch(["one", "two"])
        array(['one', 'two'], dtype=object)
    """
    inputs = _unlisted(inputs)
    if isinstance(inputs, str) or _is_image(inputs):
        raise InputError("expected a batch of inputs, got a single one; put it into a list")
    if not isinstance(inputs, list) or not inputs:
        return inputs
    if all(isinstance(one, str) for one in inputs):
        return listed(inputs)
    if all(_is_image(one) for one in inputs):
        return np.stack([one if isinstance(one, np.ndarray) else np.asarray(one.convert("RGB")) for one in inputs])
    if any(isinstance(one, str) or _is_image(one) for one in inputs):
        kinds = sorted({type(one).__name__ for one in inputs})
        raise InputError(f"expected a list of images or of texts, got one of {', '.join(kinds)}")
    return inputs


def texts_of(inputs: Any) -> Sequence[str]:
    """Texts as a tokenizer takes them; anything else is refused."""
    texts = inputs.tolist() if isinstance(inputs, np.ndarray) else inputs
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        got = f"shape {tuple(inputs.shape)}" if isinstance(inputs, np.ndarray | Tensor) else type(inputs).__name__
        raise InputError(f"expected a list of texts, got {got}")
    return texts


def _unlisted(inputs: Any) -> Any:
    """The way back from `listed`."""
    return inputs.tolist() if isinstance(inputs, np.ndarray) and inputs.dtype == object and inputs.ndim == 1 else inputs


def _is_image(value: Any) -> bool:
    """Whether a value is one image: of Pillow, or bytes `H x W x C`, not a batch of bytes `N x H x W`."""
    if isinstance(value, np.ndarray):
        return value.ndim == 3 and value.dtype == np.uint8 and value.shape[2] <= MOST_CHANNELS
    return hasattr(value, "convert") and hasattr(value, "getbands")
