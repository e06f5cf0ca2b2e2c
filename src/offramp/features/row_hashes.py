"""Sample ids from the content of rows: the same row has the same id wherever it lies."""

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from offramp.backbone.raw import listed
from offramp.errors import InputError

__all__ = ["hash_rows"]


def hash_rows(inputs: Any) -> npt.NDArray[np.int64]:
    """Hash the content of each row: the sample ids of data that brings none.

    Rows with the same content have the same id, whatever holds them: a text in a list, in an array or from a file; an
    image in a list or in an array of images; a tensor or a numpy array. Shape and type are part of the content; labels
    are not. Of 10^8 different rows, two share an id with probability 0.0005.

    Args:
        inputs: Raw inputs of n samples: an array or a pytree of arrays, n samples along the first axis of each; or a
            list of texts, images or dictionaries, one per sample.

    Returns:
        `n` ids: 63 bits of a BLAKE2b hash each.

    Raises:
        InputError: If the samples are objects of another kind; give ids of your own for those.

    Example:
        >>> hash_rows(["purrs", "barks", "purrs"]).tolist()
        [7678036931315646123, 5266671389625169691, 7678036931315646123]
        >>> rows = np.array([[1, 2], [3, 4]])
        >>> np.array_equal(hash_rows(rows), hash_rows(torch.from_numpy(rows)))
        True
    """
    inputs = dict(inputs) if isinstance(inputs, Mapping) else inputs
    leaves, _ = pytree.tree_flatten_with_path(inputs, is_leaf=_is_samples)
    # By name: two dictionaries with the same arrays in another order hold the same rows.
    columns = sorted(((pytree.keystr(path), leaf) for path, leaf in leaves), key=lambda column: column[0])
    if not columns:  # no rows of a list
        return np.empty(0, np.int64)
    counts = {name: len(leaf) for name, leaf in columns}
    if len(set(counts.values())) != 1:
        raise InputError(f"expected as many rows in every array of the inputs, got {counts}")
    digests = []
    for row in zip(*(_rows(leaf, name) for name, leaf in columns), strict=True):
        digest = hashlib.blake2b(digest_size=8)
        for pieces in row:
            for piece in pieces:
                digest.update(piece)
        digests.append(digest.digest())
    return (np.frombuffer(b"".join(digests), ">u8") >> np.uint64(1)).astype(np.int64)


def _is_samples(value: Any) -> bool:
    """Tell whether a list holds one sample after the other, and not one array per part of the inputs."""
    if not isinstance(value, list):
        return False
    mappings = bool(value) and all(isinstance(sample, Mapping) for sample in value)
    return mappings or isinstance(listed(value), np.ndarray)


def _rows(leaf: Any, name: str) -> Iterator[tuple[Any, ...]]:
    """The bytes of each row of an array or list, in pieces."""
    if isinstance(leaf, list) or (isinstance(leaf, np.ndarray) and leaf.dtype.kind in "OSU"):
        yield from (tuple(_pieces(sample, name)) for sample in leaf)
        return
    array, kind = _plain(leaf, name)
    content = array.reshape(-1).view(np.uint8).data if array.size else memoryview(b"")
    header, size = _header(name, kind, array.shape[1:]), content.nbytes // max(1, len(array))
    for row in range(len(array)):
        yield header, content[row * size : (row + 1) * size]


def _pieces(sample: Any, name: str) -> Iterator[Any]:
    """The bytes of one sample, in pieces."""
    if isinstance(sample, str):
        yield from _pieces(sample.encode("utf-8", "surrogatepass"), f"{name}text")
    elif isinstance(sample, bytes):
        yield f"{name} {len(sample)};".encode()
        yield sample
    elif isinstance(sample, Mapping):
        for key in sorted(sample):
            yield from _pieces(sample[key], f"{name}[{key!r}]")
    else:
        if hasattr(sample, "convert") and hasattr(sample, "getbands"):  # of Pillow
            sample = np.asarray(sample.convert("RGB"))
        array, kind = _plain(sample, name)
        yield _header(name, kind, array.shape)
        yield array.tobytes()


def _header(name: str, kind: str, shape: tuple[int, ...]) -> bytes:
    return f"{name} {kind} {shape};".encode()


def _plain(values: Any, name: str) -> tuple[npt.NDArray[Any], str]:
    """Numbers as an array in C order and this machine's order of bytes, and the name of their type."""
    if isinstance(values, Tensor):
        values = values.detach().cpu()
        if values.dtype == torch.bfloat16:  # which numpy does not have
            return values.contiguous().view(torch.int16).numpy(), "bfloat16"
        values = values.numpy()
    array = np.asarray(values)
    if array.dtype.kind not in "biufc":
        raise InputError(
            f"expected numbers, texts or images{f' under {name}' if name else ''} to make sample ids from, got "
            f"{type(values).__name__}; give ids=..., one integer per sample"
        )
    return np.ascontiguousarray(array, array.dtype.newbyteorder("=")), array.dtype.name
