"""Torch datasets and data loaders as sources."""

from collections.abc import Callable, Sequence
from typing import Any, final

import numpy as np
from torch.utils import data as torch_data
from torch.utils.data import DataLoader, default_collate

from offramp.data._dataset import check_range
from offramp.data._files import name_dataset
from offramp.data._labels import encode_labels
from offramp.errors import InputError
from offramp.features._source import Rows
from offramp.preprocessing._raw import to_sliceable
from offramp.preprocessing._row_hashes import hash_rows

__all__ = ["TorchSource"]

NAMING_ROWS = 64  # evenly spread, hashed into the name
REPEATED_ROWS = 8  # read twice, to find random transforms


@final
class TorchSource:
    """Samples of a map-style torch `Dataset`, or of a `DataLoader` over one, read by row range.

    A sample is a pair (input, label). A loader stands for all samples that its sampler may draw, in the order of its
    dataset; its `collate_fn` makes the batches, and its batch size, order and workers are not used.

    Args:
        data: The dataset or loader.
        name: First part of the source's name; a digest of some samples follows.
        classes: Names of the network's classes, to look up labels that are names.

    Raises:
        InputError: If samples are not pairs, differ when read twice, or cannot be read by number.

    Example:
        >>> import torch
        >>> from torch.utils.data import TensorDataset
        >>> source = TorchSource(TensorDataset(torch.zeros(4, 2), torch.tensor([0, 1, 0, 1])), name="toy")
        >>> rows = source.read(1, 3)
        >>> rows.inputs.shape, rows.labels.tolist(), len(source)
        (torch.Size([2, 2]), [1, 0], 4)
    """

    def __init__(
        self, data: torch_data.Dataset[Any] | DataLoader[Any], *, name: str = "torch", classes: Sequence[str] = ()
    ) -> None:
        self.name, self._classes = name, tuple(classes)
        loader = data if isinstance(data, DataLoader) else None
        dataset: Any = data if loader is None else loader.dataset
        self._dataset = dataset
        if isinstance(self._dataset, torch_data.IterableDataset) or not hasattr(self._dataset, "__len__"):
            raise InputError(
                expected="a dataset with a length and samples by number",
                got=type(self._dataset).__name__,
                hint="give a map-style dataset, or (inputs, labels)",
            )
        self._rows: Sequence[int] = range(len(dataset))
        self._collate: Callable[[list[Any]], Any] = _collate
        if loader is not None:
            self._rows = _list_rows(loader)
            if loader.collate_fn is not default_collate:
                self._collate = loader.collate_fn
        if not len(self._rows):
            raise InputError(f"{type(self._dataset).__name__} is empty", hint="give at least one sample")
        self.name = name_dataset(name, str(len(self)), *self._digests(NAMING_ROWS))
        if self._digests(REPEATED_ROWS) != self._digests(REPEATED_ROWS):
            raise InputError(
                expected="the same sample each time it is read",
                got="different samples in two reads",
                hint="remove random transforms; those for training go into FittingOptions(augmented=...)",
            )

    def __len__(self) -> int:
        return len(self._rows)

    def read(self, start: int, stop: int) -> Rows:
        """Return rows `start` to `stop - 1`."""
        check_range(start, stop, self)
        if start == stop:
            return Rows([], np.empty(0, np.int64), np.empty(0, np.int64))
        samples = [self._dataset[row] for row in self._rows[start:stop]]
        # One by one: the padding of a sample depends on its batch.
        ids = np.concatenate([hash_rows(_collate([sample])[0]) for sample in samples])
        batch = self._collate(samples)
        if not isinstance(batch, tuple | list) or len(batch) != 2:
            raise InputError("collate_fn", expected="a pair (inputs, labels)", got=type(batch).__name__)
        labels = np.asarray(encode_labels(batch[1], self.name, self._classes))
        if labels.shape != (stop - start,) or labels.dtype.kind not in "biu":
            raise InputError(
                "labels", expected="one integer or name per sample", got=f"{labels.dtype} of shape {labels.shape}"
            )
        return Rows(batch[0], labels.astype(np.int64), ids)

    def _digests(self, count: int) -> list[bytes]:
        """Return ids and labels of some rows, evenly spread."""
        rows = [self.read(row, row + 1) for row in sorted({place * len(self) // count for place in range(count)})]
        return [row.ids.tobytes() + row.labels.tobytes() for row in rows]


def _list_rows(loader: DataLoader[Any]) -> Sequence[int]:
    """Return the rows that a loader may draw, in order."""
    batches = loader.batch_sampler
    if batches is None:
        raise InputError(
            expected="a DataLoader that makes batches", got="one with batch_size=None", hint="leave batch_size=None out"
        )
    if type(batches) is not torch_data.BatchSampler:
        return sorted({int(row) for batch in batches for row in batch})
    if isinstance(batches.sampler, torch_data.SequentialSampler | torch_data.RandomSampler):
        return range(len(batches.sampler.data_source))
    return sorted({int(row) for row in batches.sampler})


def _collate(samples: list[Any]) -> tuple[Any, Any]:
    """Make a batch: texts and images as a list, everything else as `default_collate` does."""
    if not all(isinstance(sample, tuple | list) and len(sample) == 2 for sample in samples):
        raise InputError(
            expected="samples that are pairs (input, label)",
            got=type(samples[0]).__name__,
            hint="return (input, label) from __getitem__",
        )
    inputs, labels = [sample[0] for sample in samples], [sample[1] for sample in samples]
    try:
        return inputs if _is_text_or_image(inputs[0]) else default_collate(inputs), default_collate(labels)
    except (RuntimeError, TypeError) as error:
        raise InputError(
            f"these samples make no batch: {error}",
            hint="pad them, in the dataset or in the collate_fn of a DataLoader",
        ) from error


def _is_text_or_image(value: Any) -> bool:
    # `to_sliceable` turns texts and images into an array of objects, and leaves numbers alone.
    supported = isinstance(value, str | np.ndarray) or hasattr(value, "getbands")
    return supported and isinstance(to_sliceable([value]), np.ndarray)
