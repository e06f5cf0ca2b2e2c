"""Sample ids hashed from the content of raw rows."""

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from offramp.errors import InputError
from offramp.preprocessing._raw import to_sliceable

__all__ = ["hash_rows"]


def hash_rows(inputs: Any) -> npt.NDArray[np.int64]:
    """Hash the content of each row: the sample ids of data without ids of its own.

    Rows with the same content have the same id in every container: a text in a list, an array or a file; an image in a
    list or in an array of images; a tensor or a numpy array. Shape and type are part of the content; labels are not. Of
    10^8 different rows, two share an id with probability 0.0005.

    Args:
        inputs: Raw inputs of n samples: an array or a pytree of arrays with n samples along the first axis of each, or
            a list of texts, images or dictionaries, one per sample.

    Returns:
        `n` ids: 63 bits of a BLAKE2b hash each.

    Raises:
        InputError: If the samples are objects of another kind; give ids of your own for those.

    Example:
        >>> hash_rows(["purrs", "barks", "purrs"]).tolist()
        [7678036931315646123, 5266671389625169691, 7678036931315646123]
    """
    inputs = dict(inputs) if isinstance(inputs, Mapping) else inputs
    leaves, _ = pytree.tree_flatten_with_path(inputs, is_leaf=_is_list_of_samples)
    # Sorted by name: dictionaries with the same arrays in another order hold the same rows.
    columns = sorted(((pytree.keystr(path), leaf) for path, leaf in leaves), key=lambda column: column[0])
    if not columns:  # an empty list
        return np.empty(0, np.int64)
    counts = {name: len(leaf) for name, leaf in columns}
    if len(set(counts.values())) != 1:
        raise InputError("inputs", expected="as many rows in every array", got=counts)
    digests = []
    for row in zip(*(_encode_rows(leaf, name) for name, leaf in columns), strict=True):
        digest = hashlib.blake2b(digest_size=8)
        for pieces in row:
            for piece in pieces:
                digest.update(piece)
        digests.append(digest.digest())
    return (np.frombuffer(b"".join(digests), ">u8") >> np.uint64(1)).astype(np.int64)


def _is_list_of_samples(value: Any) -> bool:
    """Tell a list of samples from a list of arrays that each hold one part of all samples."""
    if not isinstance(value, list):
        return False
    mappings = bool(value) and all(isinstance(sample, Mapping) for sample in value)
    return mappings or isinstance(to_sliceable(value), np.ndarray)


def _encode_rows(leaf: Any, name: str) -> Iterator[tuple[Any, ...]]:
    """Yield the bytes of each row of an array or list, in pieces."""
    if isinstance(leaf, list) or (isinstance(leaf, np.ndarray) and leaf.dtype.kind in "OSU"):
        yield from (tuple(_encode_sample(sample, name)) for sample in leaf)
        return
    array, dtype = _as_array(leaf, name)
    content = array.reshape(-1).view(np.uint8).data if array.size else memoryview(b"")
    header, size = _header(name, dtype, array.shape[1:]), content.nbytes // max(1, len(array))
    for row in range(len(array)):
        yield header, content[row * size : (row + 1) * size]


def _encode_sample(sample: Any, name: str) -> Iterator[Any]:
    """Yield the bytes of one sample, in pieces."""
    if isinstance(sample, str):
        yield from _encode_sample(sample.encode("utf-8", "surrogatepass"), f"{name}text")
    elif isinstance(sample, bytes):
        yield f"{name} {len(sample)};".encode()
        yield sample
    elif isinstance(sample, Mapping):
        for key in sorted(sample):
            yield from _encode_sample(sample[key], f"{name}[{key!r}]")
    else:
        if hasattr(sample, "convert") and hasattr(sample, "getbands"):  # a Pillow image
            sample = np.asarray(sample.convert("RGB"))
        array, dtype = _as_array(sample, name)
        yield _header(name, dtype, array.shape)
        yield array.tobytes()


def _header(name: str, dtype: str, shape: tuple[int, ...]) -> bytes:
    return f"{name} {dtype} {shape};".encode()


def _as_array(values: Any, name: str) -> tuple[npt.NDArray[Any], str]:
    """Return numbers as an array in C order and native byte order, and the name of their type."""
    if isinstance(values, Tensor):
        values = values.detach().cpu()
        if values.dtype == torch.bfloat16:  # numpy has no such type
            return values.contiguous().view(torch.int16).numpy(), "bfloat16"
        values = values.numpy()
    array = np.asarray(values)
    if array.dtype.kind not in "biufc":
        raise InputError(
            expected=f"numbers, texts or images{f' under {name}' if name else ''} to make sample ids from",
            got=type(values).__name__,
            hint="give ids=..., one integer per sample",
        )
    return np.ascontiguousarray(array, array.dtype.newbyteorder("=")), array.dtype.name
