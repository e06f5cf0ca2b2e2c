"""Sources with class names: the class that every format becomes, and selected rows of it."""

from collections.abc import Callable, Iterable, Sequence
from copy import copy
from typing import Any, Protocol, final

import numpy as np
import numpy.typing as npt
import torch
from torch.utils import _pytree as pytree

from offramp.data._columns import TextColumn, Window
from offramp.data._files import name_dataset
from offramp.data._labels import Labels
from offramp.errors import InputError
from offramp.features import Source
from offramp.features._source import Rows, take_part
from offramp.preprocessing._row_hashes import hash_rows

__all__ = ["Dataset", "StoredDataset", "Subset", "check_numbers", "check_range", "find_unfit", "sample"]

LARGEST = float(np.finfo(np.float32).max)


class Dataset(Source, Protocol):
    r"""Samples in a fixed order, read by row range, with the names of their classes.

    Example:
        >>> from pathlib import Path
        >>> from tempfile import TemporaryDirectory
        >>> from offramp.data import open_data
        >>> with TemporaryDirectory() as folder:
        ...     _ = Path(folder, "pets.csv").write_text("text,label\npurrs,cat\nbarks,dog\n")
        ...     data = open_data(Path(folder, "pets.csv"))
        >>> data.name, len(data), data.classes, data.labelled
        ('pets-632c85c8e61a83bb', 2, ('cat', 'dog'), True)
    """

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes in the order of the label numbers; empty if only numbers are known."""

    @property
    def labelled(self) -> bool:
        """False if there are no labels; each is then -1, and the samples are for prediction only."""

    def keys(self, start: int, stop: int) -> list[str]:
        """Return the names of rows `start` to `stop - 1` in predictions.

        The key of an image file is its path, from the folder of images or as the table has it; the key of any other row
        is its number in the data, from 0. Unlike ids, two rows may share a key, if a table names a file twice.
        """


@final
class StoredDataset:
    """Samples with labels in memory and inputs that are read on demand.

    Args:
        inputs: Returns the inputs of rows `start` to `stop - 1`, in any form a backbone's preprocessing takes. With a
            method `part(start, stop)`, it can be cut into the rows that another process needs.
        labels: Labels of all rows.
        stem: First part of the name.
        content: Digest of the content; the name depends on it.
        columns: Columns of the inputs, if there is a choice; the name depends on them.
        keys: Key of each row; by default, its number.

    Example:
        >>> labels = Labels(np.array([1, 0, 1]), ("cat", "dog"))
        >>> data = StoredDataset(lambda start, stop: list("abc")[start:stop], labels, stem="pets", content="c0ffee")
        >>> data.name, data.read(1, 3).inputs, data.read(1, 3).labels.tolist()
        ('pets-1b3ee30ab8c69a5b', ['b', 'c'], [0, 1])
    """

    def __init__(
        self,
        inputs: Callable[[int, int], Any],
        labels: Labels,
        *,
        stem: str,
        content: str,
        columns: Sequence[str] = (),
        keys: TextColumn | None = None,
    ) -> None:
        assert keys is None or len(keys) == len(labels.numbers), (keys, len(labels.numbers))
        # A store is looked up by this name, so the name depends on everything that `read` returns.
        self.name = name_dataset(stem, content, *columns, labels.numbers)
        self.classes = labels.classes
        self.labelled = labels.labelled
        self._inputs = inputs
        self._labels: npt.NDArray[np.int64] | Window = labels.numbers
        self._keys = keys

    def __len__(self) -> int:
        return len(self._labels)

    def read(self, start: int, stop: int) -> Rows:
        """Return rows `start` to `stop - 1`."""
        check_range(start, stop, self)
        inputs = self._inputs(start, stop)
        return Rows(inputs, self._labels[start:stop].copy(), hash_rows(inputs))

    def keys(self, start: int, stop: int) -> list[str]:
        """Return the keys of rows `start` to `stop - 1`; see `Dataset`."""
        check_range(start, stop, self)
        if self._keys is None:
            return [str(row) for row in range(start, stop)]
        # A file name may be bytes that are no text, which could not be printed.
        return [key.encode(errors="backslashreplace").decode() for key in self._keys[start:stop]]

    def part(self, start: int, stop: int) -> "StoredDataset":
        """Return the dataset with what reading rows `start` to `stop - 1` needs; see `take_part`."""
        check_range(start, stop, self)
        part = copy(self)
        part._inputs = take_part(self._inputs, start, stop)
        part._labels = Window(self._labels[start:stop].copy(), start, len(self))
        part._keys = None if self._keys is None else Window(self._keys[start:stop], start, len(self))
        return part


@final
class Subset:
    """Rows of a dataset in a given order, with the same ids.

    Args:
        dataset: The dataset.
        rows: Row numbers, each at most once.

    Example:
        >>> labels = Labels(np.array([1, 0, 1]), ("cat", "dog"))
        >>> data = StoredDataset(lambda start, stop: list("abc")[start:stop], labels, stem="pets", content="c0ffee")
        >>> Subset(data, [2, 0]).read(0, 2).inputs
        ['c', 'a']
    """

    def __init__(self, dataset: Dataset, rows: Iterable[int]) -> None:
        numbers = np.asarray(list(rows))
        if not len(numbers) or numbers.ndim != 1 or numbers.dtype.kind not in "iu":
            raise InputError(expected="at least one row number", got=f"{numbers.dtype} of shape {numbers.shape}")
        if numbers.min() < 0 or numbers.max() >= len(dataset) or len(np.unique(numbers)) != len(numbers):
            raise InputError(
                expected=f"rows 0 to {len(dataset) - 1} of '{dataset.name}', each at most once",
                got=f"{len(numbers)} from {numbers.min()} to {numbers.max()}",
            )
        self._rows: npt.NDArray[np.int64] | Window = numbers.astype(np.int64)
        self._dataset = dataset
        stem = dataset.name.rpartition("-")[0] or dataset.name
        self.name = name_dataset(stem, dataset.name, numbers.astype(np.int64))
        self.classes = dataset.classes
        self.labelled = dataset.labelled

    def __len__(self) -> int:
        return len(self._rows)

    def read(self, start: int, stop: int) -> Rows:
        """Return rows `start` to `stop - 1` of the subset; consecutive rows of the dataset are read together."""
        check_range(start, stop, self)
        rows = self._rows[start:stop]
        if start == stop:
            return self._dataset.read(0, 0)
        # Read in the order of the dataset: a reader may have to unpack many rows to reach one.
        ascending = np.sort(rows)
        runs = np.split(ascending, np.flatnonzero(np.diff(ascending) != 1) + 1)
        parts = [self._dataset.read(int(run[0]), int(run[-1]) + 1) for run in runs]
        places = np.searchsorted(ascending, rows)
        return Rows(
            _pick([part.inputs for part in parts], places),
            np.concatenate([part.labels for part in parts])[places],
            np.concatenate([part.ids for part in parts])[places],
        )

    def part(self, start: int, stop: int) -> "Subset":
        """Return the subset with what reading rows `start` to `stop - 1` needs; see `take_part`."""
        check_range(start, stop, self)
        rows = self._rows[start:stop].copy()
        part = copy(self)
        part._rows = Window(rows, start, len(self))
        part._dataset = take_part(self._dataset, int(rows.min()), int(rows.max()) + 1) if len(rows) else self._dataset
        return part

    def keys(self, start: int, stop: int) -> list[str]:
        """Return the keys that rows `start` to `stop - 1` of the subset have in the dataset."""
        check_range(start, stop, self)
        return [key for row in self._rows[start:stop].tolist() for key in self._dataset.keys(row, row + 1)]


def sample(dataset: Dataset, count: int, *, seed: int) -> Subset:
    """Draw random rows of a dataset, in the dataset's order.

    Args:
        dataset: The dataset.
        count: Number of rows.
        seed: The same seed draws the same rows.
    """
    if not 1 <= count <= len(dataset):
        raise InputError(expected=f"a count from 1 to {len(dataset)}, the rows of '{dataset.name}'", got=count)
    rows = np.random.default_rng(seed).permutation(len(dataset))[:count]
    return Subset(dataset, np.sort(rows).tolist())


def check_range(start: int, stop: int, dataset: Source) -> None:
    """Refuse a row range that reaches beyond a dataset; slices would silently cut it short."""
    if not 0 <= start <= stop <= len(dataset):
        raise InputError(
            expected=f"a row range within 0 to {len(dataset)}, the rows of '{dataset.name}'", got=f"{start} to {stop}"
        )


def check_numbers(values: npt.NDArray[Any], place: Callable[[int], str]) -> None:
    """Refuse numbers that are not finite or beyond the range of single precision.

    Args:
        values: Numbers in any shape and type, one row per sample.
        place: Describes a row in messages.
    """
    if index := find_unfit(values):
        raise InputError(
            place(index[0]),
            expected="a finite single-precision number",
            got=str(values[index]),
            hint="fill it in or leave the row out",
        )


def find_unfit(values: npt.NDArray[Any]) -> tuple[int, ...] | None:
    """Find the index of the first number that is not finite or beyond the range of single precision."""
    if values.dtype.kind != "f" or not values.size:
        return None
    with np.errstate(invalid="ignore"):
        # The extremes first: they take no memory, and are nearly always in range.
        lowest, highest = float(values.min()), float(values.max())
    if lowest >= -LARGEST and highest <= LARGEST:
        return None
    fits = np.abs(values.astype(np.float64)) <= LARGEST  # False for NaN
    return tuple(int(position) for position in np.argwhere(~fits)[0])


def _pick(parts: Sequence[Any], places: npt.NDArray[np.int64]) -> Any:
    """Put the samples of all parts together, in the order of `places`."""
    # A list holds samples, texts or images; it is a leaf.
    return pytree.tree_map(lambda *leaves: _join(leaves, places), *parts, is_leaf=lambda part: isinstance(part, list))


def _join(leaves: Sequence[Any], places: npt.NDArray[np.int64]) -> Any:
    if isinstance(leaves[0], list):
        samples = [sample for leaf in leaves for sample in leaf]
        return [samples[place] for place in places]
    return (torch.cat(list(leaves)) if isinstance(leaves[0], torch.Tensor) else np.concatenate(leaves))[places]
