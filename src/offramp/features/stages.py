"""Some of the stages of a batch source: what a cascade without one of its members would have cached."""

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from offramp.errors import InputError
from offramp.features.batch import Batch, BatchSource, Keys

__all__ = ["StageView"]


class StageView:
    """A batch source seen through some of its stages alone.

    Args:
        source: The source.
        stages: Stages (0-based) to keep, ascending, the final one among them.

    Example:
        >>> from offramp.features import MemorySource
        >>> source = MemorySource(torch.arange(6.0).view(1, 6), {2: torch.zeros(1, 2)}, torch.tensor([0]), (1, 2, 3))
        >>> view = StageView(source, (1, 2))
        >>> view.widths, view.own_heads, next(view.in_order(batch_size=1)).features.tolist()
        ((2, 3), (1,), [[1.0, 2.0, 3.0, 4.0, 5.0]])
    """

    def __init__(self, source: BatchSource, stages: Sequence[int]) -> None:
        last = len(source.widths) - 1
        if list(stages) != sorted(set(stages)) or not stages or stages[0] < 0 or stages[-1] != last:
            raise InputError(f"expected ascending stages that end with the final one, {last}; got {tuple(stages)}")
        self._source = source
        self._stages = tuple(stages)
        ends = np.cumsum((0, *source.widths)).tolist()
        self._columns = [slice(ends[stage], ends[stage + 1]) for stage in stages]
        self.widths = tuple(source.widths[stage] for stage in stages)
        self.num_samples, self.num_classes = source.num_samples, source.num_classes
        self.own_heads = tuple(place for place, stage in enumerate(stages) if stage in source.own_heads)

    def ids(self) -> npt.NDArray[np.int64]:
        """`N` sample ids, in the order of the rows."""
        return self._source.ids()

    def sizes(self) -> Tensor:
        """`N` sizes of the samples, in the order of the rows."""
        return self._source.sizes()

    def keys(self) -> Iterator[Keys]:
        """Ids and sizes of every sample, in the order of the rows, some at a time."""
        return self._source.keys()

    def shuffled(self, *, batch_size: int, seed: int, epoch: int) -> Iterator[Batch]:
        """Every sample once, in an order drawn from `seed` and `epoch` alone."""
        return map(self._seen, self._source.shuffled(batch_size=batch_size, seed=seed, epoch=epoch))

    def in_order(self, *, batch_size: int) -> Iterator[Batch]:
        """Every sample once, in the order of the rows."""
        return map(self._seen, self._source.in_order(batch_size=batch_size))

    def _seen(self, batch: Batch) -> Batch:
        features = torch.cat([batch.features[:, columns] for columns in self._columns], dim=1)
        own_logits = {place: batch.own_logits[self._stages[place]] for place in self.own_heads}
        return Batch(features, own_logits, batch.labels, batch.ids, batch.sizes)
