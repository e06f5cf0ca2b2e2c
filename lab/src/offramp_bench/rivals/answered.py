"""Samples whose labels are the network's own answers."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import numpy.typing as npt
from torch import Tensor

from offramp.features import BatchSource
from offramp.features._batch import Batch, Keys

__all__ = ["AnsweredSource"]


class AnsweredSource:
    """Samples whose labels are the predictions of the network's last head.

    Args:
        source: The samples; their own labels are not read.

    Example:
        >>> import torch
        >>> from offramp.features._batch import MemorySource
        >>> own = {1: torch.tensor([[0.0, 3.0], [2.0, 1.0]])}
        >>> samples = AnsweredSource(MemorySource(torch.zeros(2, 4), own, torch.tensor([0, 0]), (2, 2)))
        >>> [batch.labels.tolist() for batch in samples.in_order(batch_size=2)]
        [[1, 0]]
    """

    def __init__(self, source: BatchSource) -> None:
        self._source = source
        self.num_samples, self.num_classes = source.num_samples, source.num_classes
        self.widths, self.own_heads = source.widths, source.own_heads

    def ids(self) -> npt.NDArray[np.int64]:
        """Return `N` sample ids, in row order."""
        return self._source.ids()

    def sizes(self) -> Tensor:
        """Return `N` sizes of the samples, in row order."""
        return self._source.sizes()

    def keys(self) -> Iterator[Keys]:
        """Yield ids and sizes of every sample in row order, in pieces."""
        return self._source.keys()

    def shuffled(self, *, batch_size: int, seed: int, epoch: int) -> Iterator[Batch]:
        """Yield every sample once, in an order drawn from `seed` and `epoch` alone."""
        yield from map(self._relabel, self._source.shuffled(batch_size=batch_size, seed=seed, epoch=epoch))

    def in_order(self, *, batch_size: int) -> Iterator[Batch]:
        """Yield every sample once, in row order."""
        yield from map(self._relabel, self._source.in_order(batch_size=batch_size))

    def _relabel(self, batch: Batch) -> Batch:
        return replace(batch, labels=batch.own_logits[self.own_heads[-1]].argmax(-1))
