"""A batch source without some of its samples."""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from offramp.errors import InputError
from offramp.features.batch import Batch, BatchSource, Keys

__all__ = ["WithoutIds"]


class WithoutIds:
    """A batch source without the samples of some ids; batches are smaller by those.

    Args:
        source: The source.
        ids: Sample ids to leave out, each with all rows that have it.

    Example:
        >>> from offramp.features import MemorySource
        >>> ids = torch.tensor([5, 6, 5, 7])
        >>> source = MemorySource(torch.zeros(4, 2), {0: torch.zeros(4, 2)}, torch.arange(4) % 2, (2,), ids=ids)
        >>> rest = WithoutIds(source, np.array([5]))
        >>> rest.num_samples, rest.ids().tolist()
        (2, [6, 7])
    """

    def __init__(self, source: BatchSource, ids: npt.NDArray[np.int64]) -> None:
        self._source = source
        self._ids = np.unique(ids)
        self.num_samples = sum(len(keys.ids) for keys in self.keys())
        if not self.num_samples:
            raise InputError(f"all {source.num_samples} samples are left out; leave some in")
        self.num_classes, self.widths, self.own_heads = source.num_classes, source.widths, source.own_heads
        self.backbone_fingerprint: str | None = getattr(source, "backbone_fingerprint", None)

    def ids(self) -> npt.NDArray[np.int64]:
        """`N` sample ids, in the order of the rows."""
        return np.concatenate([keys.ids for keys in self.keys()])

    def sizes(self) -> Tensor:
        """`N` sizes of the samples, in the order of the rows."""
        return torch.cat([keys.sizes for keys in self.keys()])

    def keys(self) -> Iterator[Keys]:
        """Ids and sizes of every sample, in the order of the rows, some at a time."""
        for keys in self._source.keys():
            stays = self._stays(keys.ids)
            yield Keys(keys.ids[stays], keys.sizes[torch.from_numpy(stays)])

    def shuffled(self, *, batch_size: int, seed: int, epoch: int) -> Iterator[Batch]:
        """Every sample once, in an order drawn from `seed` and `epoch` alone."""
        return self._filtered(self._source.shuffled(batch_size=batch_size, seed=seed, epoch=epoch))

    def in_order(self, *, batch_size: int) -> Iterator[Batch]:
        """Every sample once, in the order of the rows."""
        return self._filtered(self._source.in_order(batch_size=batch_size))

    def _filtered(self, batches: Iterator[Batch]) -> Iterator[Batch]:
        for batch in batches:
            stays = self._stays(batch.ids.numpy())
            if stays.all():
                yield batch
            elif stays.any():
                yield batch.take(torch.from_numpy(np.flatnonzero(stays)))

    def _stays(self, ids: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        return ~np.isin(ids, self._ids)
