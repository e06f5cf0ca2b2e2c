"""Chosen rows of a dataset."""

from collections.abc import Iterable, Sequence
from typing import Any, final

import numpy as np
import numpy.typing as npt
import torch
from torch.utils import _pytree as pytree

from offramp.data.dataset import Dataset, check_range
from offramp.data.identity import dataset_name
from offramp.errors import InputError
from offramp.features import Rows

__all__ = ["Subset", "sample"]


@final
class Subset:
    r"""Rows of a dataset in the given order, with the ids they have there.

    Args:
        dataset: What to choose from.
        rows: Row numbers, each at most once.

    Example:
        >>> from pathlib import Path
        >>> from tempfile import TemporaryDirectory
        >>> from offramp.data import open_data
        >>> with TemporaryDirectory() as folder:
        ...     _ = Path(folder, "words.txt").write_text("one\ntwo\nthree\n")
        ...     words = open_data(Path(folder, "words.txt"))
        >>> Subset(words, [2, 0]).read(0, 2).inputs
        ['three', 'one']
    """

    def __init__(self, dataset: Dataset, rows: Iterable[int]) -> None:
        chosen = np.asarray(list(rows))
        if not len(chosen) or chosen.ndim != 1 or chosen.dtype.kind not in "iu":
            raise InputError(f"expected one row number or more, got {chosen.dtype} of shape {chosen.shape}")
        if chosen.min() < 0 or chosen.max() >= len(dataset):
            raise InputError(
                f"expected rows 0 to {len(dataset) - 1} of '{dataset.name}', got {chosen.min()} to {chosen.max()}"
            )
        if len(np.unique(chosen)) != len(chosen):
            raise InputError(f"expected each row of '{dataset.name}' at most once, got repeats; leave them out")
        self._rows = chosen.astype(np.int64)
        self._dataset = dataset
        stem = dataset.name.rpartition("-")[0] or dataset.name
        self.name = dataset_name(stem, dataset.name, self._rows.tobytes())
        self.classes = dataset.classes
        self.labelled = dataset.labelled

    def __len__(self) -> int:
        return len(self._rows)

    def read(self, start: int, stop: int) -> Rows:
        """Rows `start` to `stop - 1` of the subset; consecutive rows of the dataset are read together."""
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
            _picked([part.inputs for part in parts], places),
            np.concatenate([part.labels for part in parts])[places],
            np.concatenate([part.ids for part in parts])[places],
        )

    def keys(self, start: int, stop: int) -> list[str]:
        """What to call rows `start` to `stop - 1` of the subset: what they are called in the dataset."""
        check_range(start, stop, self)
        return [key for row in self._rows[start:stop].tolist() for key in self._dataset.keys(row, row + 1)]


def sample(dataset: Dataset, count: int, *, seed: int) -> Subset:
    r"""Random rows of a dataset, in the dataset's order.

    Args:
        dataset: What to choose from.
        count: How many rows, at most all.
        seed: The same seed chooses the same rows.

    Example:
        >>> from pathlib import Path
        >>> from tempfile import TemporaryDirectory
        >>> from offramp.data import open_data
        >>> with TemporaryDirectory() as folder:
        ...     _ = Path(folder, "words.txt").write_text("one\ntwo\nthree\n")
        ...     words = open_data(Path(folder, "words.txt"))
        >>> len(sample(words, 2, seed=0))
        2
    """
    if not 1 <= count <= len(dataset):
        raise InputError(f"expected a count from 1 to {len(dataset)}, the rows of '{dataset.name}', got {count}")
    rows = np.random.default_rng(seed).permutation(len(dataset))[:count]
    return Subset(dataset, np.sort(rows).tolist())


def _picked(parts: Sequence[Any], places: npt.NDArray[np.int64]) -> Any:
    """Samples of all parts together, in the order of `places`."""
    # A list is samples one by one, texts or images, not a structure to look into.
    return pytree.tree_map(lambda *leaves: _joined(leaves, places), *parts, is_leaf=lambda part: isinstance(part, list))


def _joined(leaves: Sequence[Any], places: npt.NDArray[np.int64]) -> Any:
    if isinstance(leaves[0], list):
        together = [sample for leaf in leaves for sample in leaf]
        return [together[place] for place in places]
    return (torch.cat(list(leaves)) if isinstance(leaves[0], torch.Tensor) else np.concatenate(leaves))[places]
