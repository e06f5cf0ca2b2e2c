"""Raw inputs as people hold them: lists of images, lists of texts, what a tokenizer returns."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from torch import Tensor
from torch.utils import _pytree as pytree

from offramp.errors import InputError

__all__ = ["differ_in_size", "listed", "plain_containers", "raw_batch", "texts_of"]

MOST_CHANNELS = 4
"""Of an image: three colours and how much they cover."""


def plain_containers(inputs: Any) -> Any:
    """Return inputs in plain containers: dictionaries, lists of texts or images, arrays.

    A mapping, such as the `BatchEncoding` of a tokenizer, becomes a dictionary; nested lists of numbers become arrays;
    a tuple of texts becomes a list. Everything else is returned as it is.

    Args:
        inputs: Raw inputs.

    Raises:
        InputError: If lists of numbers differ in length.

    Example:
        >>> plain_containers({"input_ids": [[2, 7], [2, 9]]})["input_ids"].shape
        (2, 2)
        >>> plain_containers(("good", "bad"))
        ['good', 'bad']
    """
    if isinstance(inputs, Mapping):
        return {name: plain_containers(values) for name, values in inputs.items()}
    if isinstance(inputs, tuple) and inputs and all(isinstance(text, str) for text in inputs):
        return list(inputs)
    if not isinstance(inputs, list) or not inputs or not _holds_numbers(inputs):
        return inputs
    try:
        return np.asarray(inputs)
    except ValueError as error:
        raise InputError(
            "expected lists of numbers of one length, got several lengths; pad them: of texts, call the tokenizer with "
            'return_tensors="pt", padding=True'
        ) from error


def listed(inputs: Any) -> Any:
    """Return raw inputs so that samples can be sliced: a list of texts or images becomes an array of objects.

    Args:
        inputs: Raw inputs, in any of the containers that `plain_containers` takes.

    Raises:
        InputError: If there is anything in them that has no axis of samples.

    Example:
        >>> listed(["one", "two"])[1:]
        array(['two'], dtype=object)
    """
    inputs = plain_containers(inputs)
    if not isinstance(inputs, list) or not inputs or not all(isinstance(one, str) or _is_image(one) for one in inputs):
        for leaf in pytree.tree_leaves(inputs):
            if not len(getattr(leaf, "shape", ())):
                raise InputError(
                    "expected arrays or tensors with samples along their first axis, or a list of texts or images, got "
                    f"{type(leaf).__name__}; of a single sample the batch axis is missing: [text], or inputs[None]"
                )
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
    """Return a list of texts, or of images of one size, as one array; everything else in plain containers.

    Args:
        inputs: Raw inputs.

    Returns:
        `N` texts; `N x H x W x C` bytes; or the inputs.

    Raises:
        InputError: If it is a single text or image, bytes, or a list of several kinds.

    Example:
        >>> raw_batch([np.zeros((4, 5, 3), np.uint8)] * 2).shape
        (2, 4, 5, 3)
        >>> raw_batch(["one", "two"])
        array(['one', 'two'], dtype=object)
    """
    inputs = plain_containers(_unlisted(inputs))
    if isinstance(inputs, str):
        raise InputError(
            "expected a batch of texts, got one text: the batch axis is missing; put it into a list: [text]"
        )
    if _is_image(inputs):
        raise InputError("expected a batch of images, got one: the batch axis is missing; put it into a list: [image]")
    if isinstance(inputs, bytes | bytearray):
        raise InputError("expected a batch of texts or arrays, got bytes; decode them: [data.decode()] for a text")
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


def _holds_numbers(values: Any) -> bool:
    """Return whether nested lists hold Python numbers and nothing else."""
    if isinstance(values, list | tuple):
        return all(_holds_numbers(value) for value in values)
    return isinstance(values, int | float)


def _is_image(value: Any) -> bool:
    """Whether a value is one image: of Pillow, or bytes `H x W x C`, not a batch of bytes `N x H x W`."""
    if isinstance(value, np.ndarray):
        return value.ndim == 3 and value.dtype == np.uint8 and value.shape[2] <= MOST_CHANNELS
    return hasattr(value, "convert") and hasattr(value, "getbands")
