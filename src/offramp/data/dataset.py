"""A source that knows its classes, and the one that every format on disk becomes."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol, final

from offramp.data.identity import dataset_name
from offramp.data.labels import Labels
from offramp.errors import InputError
from offramp.features import Rows, Source, hash_rows

__all__ = ["Dataset", "StoredDataset", "check_range"]


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
        """What to call rows `start` to `stop - 1` in answers about them.

        An image that is a file of its own is called by its path, from the folder of images or as the table writes it;
        any other row by its number in the data, from 0. Keys are for people: unlike ids, two rows may share one, where
        a table names a file twice.
        """


@final
class StoredDataset:
    """Samples that lie on disk: labels in memory, inputs read when asked for.

    Args:
        inputs: Gives the inputs of rows `start` to `stop - 1`, in any form a trunk's preprocessing takes.
        labels: Labels of all rows.
        stem: What the data is called, the first part of its name.
        content: Digest of the bytes on disk, a part of the name.
        columns: What of the content the inputs are, where that is a choice.
        keys: What to call each row; without them, its number.

    Example:
        >>> import numpy as np
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
        """Rows `start` to `stop - 1`."""
        check_range(start, stop, self)
        inputs = self._inputs(start, stop)
        return Rows(inputs, self._labels[start:stop].copy(), hash_rows(inputs))

    def keys(self, start: int, stop: int) -> list[str]:
        """What to call rows `start` to `stop - 1`; see `Dataset`."""
        check_range(start, stop, self)
        if not self._keys:
            return [str(row) for row in range(start, stop)]
        # A file's name may be bytes that are no text; written down, such would raise.
        return [key.encode(errors="backslashreplace").decode() for key in self._keys[start:stop]]


def check_range(start: int, stop: int, dataset: Dataset) -> None:
    """Refuse a row range that reaches beyond a dataset, which slices would cut short without a word.

    Example:
        >>> import numpy as np
        >>> data = StoredDataset(lambda start, stop: [], Labels(np.zeros(3, np.int64)), stem="pets", content="c0ffee")
        >>> check_range(2, 4, data)
        Traceback (most recent call last):
        offramp.errors.InputError: expected a row range within 0 to 3, the rows of 'pets-...', got 2 to 4
    """
    if not 0 <= start <= stop <= len(dataset):
        raise InputError(
            f"expected a row range within 0 to {len(dataset)}, the rows of '{dataset.name}', got {start} to {stop}"
        )
