"""Sample ids: hashed from the content of rows, ranked pseudo-randomly, and summarised in a sketch."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from offramp.errors import InputError
from offramp.preprocessing._raw import to_sliceable

__all__ = ["MOST_RANKS", "IdSketch", "Ids", "hash_rows", "rank_ids", "stable_hash"]

Ids = npt.NDArray[np.int64]
"""Sample ids, or row numbers."""

MOST_RANKS = 2**16
"""Largest number of ranks in a sketch: 512 KiB per split. Splits with fewer different rows are recorded completely; of
a larger split, a share of 1 % is still represented by about 650 ranks."""

_SKETCH_SEED = 0x0FF7A3B  # different from the seeds that splits are drawn with, or a part's ranks would not be uniform


def stable_hash(text: str) -> int:
    """Hash a text to 63 bits, the same on every machine and in every run; Python's `hash` is salted per process.

    Example:
        >>> stable_hash("train/5")
        1434713311643516606
    """
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1


def hash_rows(inputs: Any) -> Ids:
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


def rank_ids(ids: npt.NDArray[Any], *, seed: int) -> npt.NDArray[np.uint64]:
    """Rank sample ids by a hash of seed and id; different ids have different ranks, equal ids equal ranks.

    Args:
        ids: `n` integers.
        seed: Another seed gives another ranking.
    """
    # The increment of SplitMix64, because mixing maps 0 to 0.
    salt = _mix(np.array([(seed + 0x9E3779B97F4A7C15) % 2**64], np.uint64))
    return _mix(ids.astype(np.int64).view(np.uint64) ^ salt)


def _mix(numbers: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Apply the finaliser of SplitMix64 (Steele et al. 2014), a bijection that mixes every bit into every other."""
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return numbers ^ (numbers >> np.uint64(31))


@dataclass(frozen=True, eq=False)
class IdSketch:
    """The smallest hashed ids of a split: a bottom-k sketch.

    All ids are hashed alike. For an id whose hash is at most the largest rank here, membership is known for certain,
    and such ids are a uniform sample of all ids.

    Example:
        >>> sketch = IdSketch.of([np.array([7, 8, 7]), np.array([9])])
        >>> sketch.contains(np.array([9, 10])), sketch.is_complete, len(sketch.ranks)
        (array([ True, False]), True, 3)
    """

    ranks: Ids
    """At most `MOST_RANKS` different ranks, 0 or above, in ascending order."""

    @classmethod
    def of(cls, pieces: Iterable[Ids]) -> "IdSketch":
        """Make the sketch of sample ids that come in pieces."""
        ranks = np.empty(0, np.int64)
        for piece in pieces:
            ranks = np.union1d(ranks, _sketch_ranks(piece))[:MOST_RANKS]
        return cls(ranks)

    @property
    def is_complete(self) -> bool:
        """True if the sketch has all ids of the split."""
        return len(self.ranks) < MOST_RANKS

    def can_tell(self, ids: Ids) -> npt.NDArray[np.bool_]:
        """Return for each of `n` ids whether the sketch knows if it is in the split."""
        return np.full(len(ids), True) if self.is_complete else _sketch_ranks(ids) <= self.ranks[-1]

    def contains(self, ids: Ids) -> npt.NDArray[np.bool_]:
        """Return for each of `n` ids whether it is in the sketch."""
        return np.isin(_sketch_ranks(ids), self.ranks)


def _sketch_ranks(ids: Ids) -> Ids:
    """Return ranks of 63 bits: artifacts hold signed integers only."""
    return (rank_ids(ids, seed=_SKETCH_SEED) >> np.uint64(1)).astype(np.int64)
