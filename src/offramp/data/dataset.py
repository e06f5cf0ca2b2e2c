"""A source that knows its classes: the one that every format becomes, and chosen rows of it."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, final

import numpy as np
import numpy.typing as npt
import torch
from torch.utils import _pytree as pytree

from offramp.data.files import dataset_name
from offramp.data.labels import Labels
from offramp.errors import InputError
from offramp.features import Rows, Source, hash_rows

__all__ = ["Dataset", "StoredDataset", "Subset", "check_range", "first_unfit", "sample"]

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
        """Names of the classes in the order of the label numbers; empty where only numbers are known."""

    @property
    def labelled(self) -> bool:
        """Whether labels are known; where not, each is -1, and nothing but prediction may use the samples."""

    def keys(self, start: int, stop: int) -> list[str]:
        """Return what to call rows `start` to `stop - 1` in answers about them.

        An image that is a file of its own is called by its path, from the folder of images or as the table writes it;
        any other row by its number in the data, from 0. Keys are for people: unlike ids, two rows may share one, where
        a table names a file twice.
        """


@final
class StoredDataset:
    """Samples whose labels are in memory, and whose inputs are read when asked for.

    Args:
        inputs: Gives the inputs of rows `start` to `stop - 1`, in any form a backbone's preprocessing takes.
        labels: Labels of all rows.
        stem: What the data is called, the first part of its name.
        content: Digest of the content, a part of the name.
        columns: What of the content the inputs are, where that is a choice.
        keys: What to call each row; without them, its number.

    Example:
        >>> labels = Labels(np.array([1, 0, 1]), ("cat", "dog"))
        >>> data = StoredDataset(lambda start, stop: list("abc")[start:stop], labels, stem="pets", content="c0ffee")
        >>> data.name, data.read(1, 3).inputs, data.read(1, 3).labels.tolist()
        ('pets-1b3ee30ab8c69a5b', ['b', 'c'], [0, 1])
        >>> data.keys(1, 3)
        ['1', '2']
    """

    def __init__(
        self,
        inputs: Callable[[int, int], Any],
        labels: Labels,
        *,
        stem: str,
        content: str,
        columns: Sequence[str] = (),
        keys: Sequence[str] = (),
    ) -> None:
        assert len(keys) in (0, len(labels.numbers)), (len(keys), len(labels.numbers))
        # A store is found again by the name, so the name has all that decides what `read` gives.
        self.name = dataset_name(stem, content, *columns, labels.numbers.tobytes())
        self.classes = labels.classes
        self.labelled = labels.labelled
        self._inputs = inputs
        self._labels = labels.numbers
        self._keys = keys

    def __len__(self) -> int:
        return len(self._labels)

    def read(self, start: int, stop: int) -> Rows:
        """Return rows `start` to `stop - 1`."""
        check_range(start, stop, self)
        inputs = self._inputs(start, stop)
        return Rows(inputs, self._labels[start:stop].copy(), hash_rows(inputs))

    def keys(self, start: int, stop: int) -> list[str]:
        """Return what to call rows `start` to `stop - 1`; see `Dataset`."""
        check_range(start, stop, self)
        if not self._keys:
            return [str(row) for row in range(start, stop)]
        # A file's name may be bytes that are no text; written down, such would raise.
        return [key.encode(errors="backslashreplace").decode() for key in self._keys[start:stop]]


@final
class Subset:
    """Rows of a dataset in the given order, with the ids they have there.

    Args:
        dataset: What to choose from.
        rows: Row numbers, each at most once.

    Example:
        >>> labels = Labels(np.array([1, 0, 1]), ("cat", "dog"))
        >>> data = StoredDataset(lambda start, stop: list("abc")[start:stop], labels, stem="pets", content="c0ffee")
        >>> Subset(data, [2, 0]).read(0, 2).inputs
        ['c', 'a']
    """

    def __init__(self, dataset: Dataset, rows: Iterable[int]) -> None:
        chosen = np.asarray(list(rows))
        if not len(chosen) or chosen.ndim != 1 or chosen.dtype.kind not in "iu":
            raise InputError(f"expected one row number or more, got {chosen.dtype} of shape {chosen.shape}")
        if chosen.min() < 0 or chosen.max() >= len(dataset) or len(np.unique(chosen)) != len(chosen):
            raise InputError(
                f"expected rows 0 to {len(dataset) - 1} of '{dataset.name}', each at most once, got {len(chosen)} from "
                f"{chosen.min()} to {chosen.max()}"
            )
        self._rows = chosen.astype(np.int64)
        self._dataset = dataset
        stem = dataset.name.rpartition("-")[0] or dataset.name
        self.name = dataset_name(stem, dataset.name, self._rows.tobytes())
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
        # In the dataset's order, whatever the subset's: a reader may unpack many rows to get at one.
        ascending = np.sort(rows)
        runs = np.split(ascending, np.flatnonzero(np.diff(ascending) != 1) + 1)
        parts = [self._dataset.read(int(run[0]), int(run[-1]) + 1) for run in runs]
        places = np.searchsorted(ascending, rows)
        return Rows(
            _pick([part.inputs for part in parts], places),
            np.concatenate([part.labels for part in parts])[places],
            np.concatenate([part.ids for part in parts])[places],
        )

    def keys(self, start: int, stop: int) -> list[str]:
        """Return what rows `start` to `stop - 1` of the subset are called in the dataset."""
        check_range(start, stop, self)
        return [key for row in self._rows[start:stop].tolist() for key in self._dataset.keys(row, row + 1)]


def sample(dataset: Dataset, count: int, *, seed: int) -> Subset:
    """Draw random rows of a dataset, in the dataset's order.

    Args:
        dataset: What to choose from.
        count: How many rows, at most all.
        seed: The same seed chooses the same rows.
    """
    if not 1 <= count <= len(dataset):
        raise InputError(f"expected a count from 1 to {len(dataset)}, the rows of '{dataset.name}', got {count}")
    rows = np.random.default_rng(seed).permutation(len(dataset))[:count]
    return Subset(dataset, np.sort(rows).tolist())


def check_range(start: int, stop: int, dataset: Source) -> None:
    """Refuse a row range that reaches beyond a dataset, which slices would cut short without a word."""
    if not 0 <= start <= stop <= len(dataset):
        raise InputError(
            f"expected a row range within 0 to {len(dataset)}, the rows of '{dataset.name}', got {start} to {stop}"
        )


def first_unfit(values: npt.NDArray[Any]) -> tuple[int, ...] | None:
    """Find the first number that is not finite, or beyond the range of single precision; None without any.

    Args:
        values: Numbers in any shape and type.

    Example:
        >>> first_unfit(np.array([[1, 2], [3, np.nan]])), first_unfit(np.array([1e38])), first_unfit(np.array([1e39]))
        ((1, 1), None, (0,))
    """
    if values.dtype.kind != "f" or not values.size:
        return None
    with np.errstate(invalid="ignore"):
        # The extremes first: they need no memory, and mostly say that all is well.
        lowest, highest = float(values.min()), float(values.max())
    if lowest >= -LARGEST and highest <= LARGEST:
        return None
    fits = np.abs(values.astype(np.float64)) <= LARGEST  # this way round, not-a-number does not fit
    return tuple(int(place) for place in np.argwhere(~fits)[0])


def _pick(parts: Sequence[Any], places: npt.NDArray[np.int64]) -> Any:
    """Put the samples of all parts together, in the order of `places`."""
    # A list is samples one by one, texts or images, not a structure to look into.
    return pytree.tree_map(lambda *leaves: _join(leaves, places), *parts, is_leaf=lambda part: isinstance(part, list))


def _join(leaves: Sequence[Any], places: npt.NDArray[np.int64]) -> Any:
    if isinstance(leaves[0], list):
        together = [sample for leaf in leaves for sample in leaf]
        return [together[place] for place in places]
    return (torch.cat(list(leaves)) if isinstance(leaves[0], torch.Tensor) else np.concatenate(leaves))[places]
