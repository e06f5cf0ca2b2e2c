"""Cached features of which exits see only the first of each stage."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from offramp.features import BatchSource
from offramp.features._batch import Batch, Keys

__all__ = ["NarrowedSource"]


class NarrowedSource:
    """The same samples, seen through a pooling whose numbers come first among those of a richer one.

    Args:
        source: Features of all stages.
        widths: How many of each stage's are seen.
    """

    def __init__(self, source: BatchSource, widths: Sequence[int]) -> None:
        assert all(narrow <= wide for narrow, wide in zip(widths, source.widths, strict=True))
        self._source = source
        self.widths, self.own_heads, self.num_classes = tuple(widths), source.own_heads, source.num_classes
        self.num_samples = source.num_samples
        starts = np.cumsum([0, *source.widths[:-1]])
        kept = [np.arange(start, start + width) for start, width in zip(starts, widths, strict=True)]
        self._kept = torch.from_numpy(np.concatenate(kept))

    def ids(self) -> npt.NDArray[np.int64]:
        """`N` sample ids."""
        return self._source.ids()

    def sizes(self) -> Tensor:
        """`N` sizes."""
        return self._source.sizes()

    def keys(self) -> Iterator[Keys]:
        """Ids and sizes of every sample, in the order of the rows, some at a time."""
        return self._source.keys()

    def shuffled(self, *, batch_size: int, seed: int, epoch: int) -> Iterator[Batch]:
        """Every sample once, in an order drawn from `seed` and `epoch` alone."""
        return map(self._narrowed, self._source.shuffled(batch_size=batch_size, seed=seed, epoch=epoch))

    def in_order(self, *, batch_size: int) -> Iterator[Batch]:
        """Every sample once."""
        return map(self._narrowed, self._source.in_order(batch_size=batch_size))

    def _narrowed(self, batch: Batch) -> Batch:
        return replace(batch, features=batch.features[:, self._kept])
