"""Conversion of labelled data to a source."""

import hashlib
import reprlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np
from torch.utils import _pytree as pytree
from torch.utils.data import DataLoader
from torch.utils.data import Dataset as TorchDataset

from offramp.data._formats import open_data
from offramp.data._labels import encode_labels
from offramp.data._torch_data import TorchSource
from offramp.errors import InputError
from offramp.features import ArraySource, Source
from offramp.preprocessing._raw import to_sliceable

if TYPE_CHECKING:
    import datasets

__all__ = ["LabelledData", "as_source", "check_same_classes"]

LabelledData: TypeAlias = (
    "Source | tuple[Any, Any] | TorchDataset[Any] | DataLoader[Any] | datasets.Dataset | str | Path"
)
"""Samples with their labels: (inputs, labels), a torch `Dataset` or `DataLoader`, a `datasets.Dataset`, a path of a
CSV file or a folder of images, or a source."""

_HINT = (
    "give (inputs, labels), a torch Dataset or DataLoader, a datasets.Dataset, or the path of a CSV file or a folder"
)


def as_source(data: LabelledData, name: str, classes: Sequence[str] = ()) -> Source:
    """Return labelled data as a source; its name depends on its content, so that cached features are not mixed up.

    Args:
        data: The data.
        name: First part of the source's name.
        classes: Names of the network's classes, by which labels that are names are looked up.
    """
    if isinstance(data, tuple) and len(data) == 2:
        return _array_source(data[0], data[1], name, classes)
    if hasattr(data, "read") and not isinstance(data, tuple):
        source: Any = data
    elif isinstance(data, str | Path) or type(data).__module__.partition(".")[0] == "datasets":
        if isinstance(data, dict):
            splits = ", ".join(map(str, data))
            raise InputError(
                name, expected="one split", got=f"a DatasetDict of {splits}", hint="take one: data['train']"
            )
        source = open_data(data, classes=classes)
        if not source.labelled:
            raise InputError(f"{name} has no labels", hint="name their column: offramp.data.open_data(data, label=...)")
    elif isinstance(data, TorchDataset | DataLoader):
        return TorchSource(data, name=name, classes=classes)
    else:
        raise InputError(name, expected="labelled data", got=f"a {type(data).__name__}", hint=_HINT)
    own = getattr(source, "classes", ())
    check_same_classes(own, classes, f"{name} data of {reprlib.repr(tuple(own))}")
    return cast(Source, source)


def _array_source(inputs: Any, labels: Any, name: str, classes: Sequence[str]) -> ArraySource:
    """Return arrays as a source named by a digest of their labels, shapes and some rows."""
    arrays, numbers = to_sliceable(inputs), encode_labels(labels, name, classes)
    digest = hashlib.blake2b(np.ascontiguousarray(numbers).tobytes(), digest_size=6)
    for leaf in pytree.tree_leaves(arrays):
        digest.update(f"{tuple(leaf.shape)} {leaf.dtype}".encode())
        for row in np.linspace(0, len(leaf) - 1, 64 if len(leaf) else 0).astype(np.int64).tolist():
            # An array of objects (texts) holds addresses, which differ in the next process.
            content = leaf[row].encode() if isinstance(leaf[row], str) else np.ascontiguousarray(leaf[row]).tobytes()
            digest.update(content)
    return ArraySource(arrays, numbers, name=f"{name}-{digest.hexdigest()}")


def check_same_classes(names: Sequence[str], own: Sequence[str], origin: str) -> None:
    """Refuse class names that are not the network's, or in another order.

    Args:
        names: The names; none are fine.
        own: The network's names; none are fine.
        origin: Where the names come from, for the message.
    """
    if names and own and tuple(names) != tuple(own):
        pairs = enumerate(zip(names, own, strict=False))
        place = next((i for i, pair in pairs if pair[0] != pair[1]), min(len(names), len(own)))
        raise InputError(
            expected=f"the classes of the network ({reprlib.repr(tuple(own))})",
            got=f"{origin}: the first difference is class {place}",
            hint="leave classes out, or open data with classes=backbone.classes",
        )
