"""Several sources of cached features as one."""

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from offramp.features import BatchSource
from offramp.features._batch import Batch, Keys

__all__ = ["JoinedSource"]


class JoinedSource:
    """The samples of several sources; a batch holds those of one of them, the sources taking turns at random.

    Args:
        sources: Features of the same network.
    """

    def __init__(self, sources: Sequence[BatchSource]) -> None:
        first = sources[0]
        assert all(source.widths == first.widths for source in sources)
        self._sources = sources
        self.widths, self.own_heads, self.num_classes = first.widths, first.own_heads, first.num_classes
        self.num_samples = sum(source.num_samples for source in sources)

    def ids(self) -> npt.NDArray[np.int64]:
        """Return the `N` sample ids, source by source."""
        return np.concatenate([source.ids() for source in self._sources])

    def sizes(self) -> Tensor:
        """Return the `N` sizes, source by source."""
        return torch.cat([source.sizes() for source in self._sources])

    def keys(self) -> Iterator[Keys]:
        """Yield ids and sizes, source by source."""
        for source in self._sources:
            yield from source.keys()

    def shuffled(self, *, batch_size: int, seed: int, epoch: int) -> Iterator[Batch]:
        """Yield every sample once, in an order drawn from `seed` and `epoch` alone."""
        turns = np.concatenate(
            [np.full(-(-source.num_samples // batch_size), which) for which, source in enumerate(self._sources)]
        )
        batches = [source.shuffled(batch_size=batch_size, seed=seed, epoch=epoch) for source in self._sources]
        for which in np.random.default_rng((seed, epoch)).permutation(turns):
            yield from (batch for _, batch in zip(range(1), batches[which], strict=False))

    def in_order(self, *, batch_size: int) -> Iterator[Batch]:
        """Yield every sample once, source by source."""
        for source in self._sources:
            yield from source.in_order(batch_size=batch_size)
