"""Raw inputs: lists of images, lists of texts, a tokenizer's output, arrays."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from torch.utils import _pytree as pytree

from offramp.errors import InputError

__all__ = [
    "are_long",
    "check_texts",
    "describe_inputs",
    "differ_in_size",
    "plain_containers",
    "raw_batch",
    "to_sliceable",
]

MOST_CHANNELS = 4
"""Channels of an image: three colours and opacity."""


def plain_containers(inputs: Any) -> Any:
    """Return inputs in plain containers.

    A mapping, such as a tokenizer's `BatchEncoding`, becomes a dictionary; nested lists of numbers become arrays; a
    tuple of texts becomes a list. Anything else is returned unchanged.

    Raises:
        InputError: If lists of numbers differ in length.
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
            expected="lists of numbers of one length",
            got="several lengths",
            hint='pad them: for texts, call the tokenizer with return_tensors="pt", padding=True',
        ) from error


def to_sliceable(inputs: Any) -> Any:
    """Return raw inputs so that samples can be sliced: a list of texts or images becomes an array of objects.

    Args:
        inputs: Raw inputs, in any of the containers that `plain_containers` takes.

    Raises:
        InputError: If a part of them has no axis of samples.

    Example:
        >>> to_sliceable(["one", "two"])[1:]
        array(['two'], dtype=object)
    """
    inputs = plain_containers(inputs)
    is_list = isinstance(inputs, list) and bool(inputs)
    if not is_list or not all(isinstance(sample, str) or _is_image(sample) for sample in inputs):
        for leaf in pytree.tree_leaves(inputs):
            if not len(getattr(leaf, "shape", ())):
                raise InputError(
                    expected="arrays or tensors with samples along their first axis, or a list of texts or images",
                    got=type(leaf).__name__,
                    hint="give a batch: [text] or inputs[None] for a single sample, whose batch axis is missing",
                )
        return inputs
    samples = np.empty(len(inputs), dtype=object)
    for index, sample in enumerate(inputs):
        samples[index] = sample
    return samples


def differ_in_size(inputs: Any) -> bool:
    """Return True for images of several sizes, which cannot form one array."""
    inputs = _to_list(inputs)
    images = isinstance(inputs, list) and all(_is_image(sample) for sample in inputs)
    return images and len({image.shape if isinstance(image, np.ndarray) else image.size for image in inputs}) > 1


def are_long(inputs: Any) -> bool:
    """Return True for several images with a side of more than twice the other.

    Resized by their shorter side they are large until they are cropped: a request of 256 images of 2 x 200 pixels would
    take 20 GB if they were prepared together.
    """
    inputs = _to_list(inputs)
    images = [inputs[0]] if _is_image_batch(inputs) else inputs
    if not isinstance(images, list) or len(inputs) < 2 or not all(_is_image(image) for image in images):
        return False
    sizes = [image.shape[:2] if isinstance(image, np.ndarray) else image.size for image in images]
    return any(max(size) > 2 * min(size) for size in sizes)


def raw_batch(inputs: Any) -> Any:
    """Return a list of texts, or of images of one size, as one array; anything else in plain containers.

    Returns:
        `N` texts, `N x H x W x C` bytes, or the inputs.

    Raises:
        InputError: If the inputs are a single text or image, bytes, or a list of several kinds.
    """
    if isinstance(inputs, list) and inputs and all(isinstance(text, str) for text in inputs):
        return np.array(inputs, dtype=object)
    inputs = plain_containers(_to_list(inputs))
    if isinstance(inputs, str) or _is_image(inputs):
        kind = "text" if isinstance(inputs, str) else "image"
        raise InputError(
            expected=f"a batch of {kind}s",
            got=f"one {kind}: the batch axis is missing",
            hint=f"put it into a list: [{kind}]",
        )
    if isinstance(inputs, bytes | bytearray):
        raise InputError(
            expected="a batch of texts or arrays", got="bytes", hint="decode them: [data.decode()] for a text"
        )
    if not isinstance(inputs, list) or not inputs:
        return inputs
    if all(isinstance(sample, str) for sample in inputs):
        return np.array(inputs, dtype=object)
    if all(_is_image(sample) for sample in inputs):
        return np.stack(
            [image if isinstance(image, np.ndarray) else np.asarray(image.convert("RGB")) for image in inputs]
        )
    if any(isinstance(sample, str) or _is_image(sample) for sample in inputs):
        kinds = sorted({type(sample).__name__ for sample in inputs})
        raise InputError(expected="a list of images or of texts", got=f"one of {', '.join(kinds)}")
    return inputs


def check_texts(inputs: Any) -> list[str]:
    """Return texts as the list that a tokenizer takes; refuse anything else."""
    texts = inputs.tolist() if isinstance(inputs, np.ndarray) else inputs
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise InputError(expected="a list of texts", got=describe_inputs(inputs))
    return texts


def describe_inputs(inputs: Any) -> str:
    """Describe inputs for an error message: by shape, or by type."""
    return f"shape {tuple(inputs.shape)}" if hasattr(inputs, "shape") else type(inputs).__name__


def _to_list(inputs: Any) -> Any:
    """Undo `to_sliceable`."""
    return inputs.tolist() if isinstance(inputs, np.ndarray) and inputs.dtype == object and inputs.ndim == 1 else inputs


def _holds_numbers(values: Any) -> bool:
    """True if nested lists hold Python numbers and nothing else."""
    if isinstance(values, list | tuple):
        return all(_holds_numbers(value) for value in values)
    return isinstance(values, int | float)


def _is_image_batch(value: Any) -> bool:
    """True for bytes `N x H x W x C`."""
    return isinstance(value, np.ndarray) and value.ndim == 4 and len(value) > 0 and _is_image(value[0])


def _is_image(value: Any) -> bool:
    """True for one image: of Pillow, or bytes `H x W x C`; not for a batch of bytes `N x H x W`."""
    if isinstance(value, np.ndarray):
        return value.ndim == 3 and value.dtype == np.uint8 and value.shape[2] <= MOST_CHANNELS
    return hasattr(value, "convert") and hasattr(value, "getbands")
