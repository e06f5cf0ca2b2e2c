"""Batches of cached features, and the sources that methods and evaluation read them from."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, final

import numpy as np
import torch
from torch import Tensor

from offramp.errors import InputError
from offramp.features._ids import Ids
from offramp.preprocessing._row_hashes import hash_rows

__all__ = ["Batch", "BatchSource", "FilteredSource", "Keys", "MemorySource", "StageView"]


@dataclass(frozen=True)
class Batch:
    """Cached outputs of the backbone for n samples."""

    features: Tensor
    """`n x D` float features, those of all stages side by side; `BatchSource.widths` has the width of each stage."""
    own_logits: Mapping[int, Tensor]
    """`n x K` logits of the network's own heads, by stage."""
    labels: Tensor
    """`n` classes."""
    ids: Tensor
    """`n` sample ids."""
    sizes: Tensor
    """`n` sizes (tokens, nodes); ones if samples do not differ in size."""

    def take(self, rows: Tensor | slice) -> "Batch":
        """Return the samples at some row numbers, integers from 0, or in a range of rows."""

        def pick(part: Tensor) -> Tensor:
            # index_select copies whole rows; indexing copies single numbers, five times as long in half precision.
            return part[rows] if isinstance(rows, slice) else part.index_select(0, rows)

        own_logits = {stage: pick(logits) for stage, logits in self.own_logits.items()}
        return Batch(pick(self.features), own_logits, pick(self.labels), pick(self.ids), pick(self.sizes))


@dataclass(frozen=True)
class Keys:
    """Ids and sizes of n samples, known without reading any feature."""

    ids: Ids
    """`n` sample ids."""
    sizes: Tensor
    """`n` sizes."""


class BatchSource(Protocol):
    """Samples that can be read many times, shuffled or in order."""

    @property
    def num_samples(self) -> int:
        """N."""

    @property
    def num_classes(self) -> int:
        """K."""

    @property
    def widths(self) -> tuple[int, ...]:
        """Number of features of each stage: L numbers that sum to D."""

    @property
    def own_heads(self) -> tuple[int, ...]:
        """Stages after which the network has a classifier of its own, ascending; the final stage last."""

    def ids(self) -> Ids:
        """Return `N` sample ids, in row order."""

    def sizes(self) -> Tensor:
        """Return `N` sizes of the samples, in row order."""

    def keys(self) -> Iterator[Keys]:
        """Yield ids and sizes of every sample in row order, in pieces, so that they need not fit in memory."""

    def shuffled(self, *, batch_size: int, seed: int, epoch: int) -> Iterator[Batch]:
        """Yield every sample once, in an order drawn from `seed` and `epoch` alone; the last batch may be smaller."""

    def in_order(self, *, batch_size: int) -> Iterator[Batch]:
        """Yield every sample once, first view, in row order."""


@final
class MemorySource:
    """A batch source over tensors in memory, for small data and tests.

    Args:
        features: `N x D`.
        own_logits: `N x K` logits by stage; those of the last stage are the network's output.
        labels: `N` classes.
        widths: Number of features of each stage, L numbers that sum to D.
        ids: `N` sample ids; by default, hashes of the rows of features.
        sizes: `N` sizes; by default, ones.

    Example:
        >>> source = MemorySource(torch.zeros(3, 4), {1: torch.zeros(3, 2)}, torch.tensor([0, 1, 0]), (2, 2))
        >>> [batch.labels.tolist() for batch in source.in_order(batch_size=2)]
        [[0, 1], [0]]
    """

    def __init__(
        self,
        features: Tensor,
        own_logits: Mapping[int, Tensor],
        labels: Tensor,
        widths: tuple[int, ...],
        *,
        ids: Tensor | None = None,
        sizes: Tensor | None = None,
    ) -> None:
        if sum(widths) != features.shape[1]:
            raise InputError(expected=f"widths that sum to {features.shape[1]}, the number of features", got=widths)
        self.widths = widths
        self.num_samples = len(labels)
        self.own_heads = tuple(sorted(own_logits))
        self.num_classes = own_logits[max(own_logits)].shape[1]
        self._samples = Batch(
            features,
            own_logits,
            labels,
            torch.from_numpy(hash_rows(features)) if ids is None else ids,
            torch.ones(len(labels)) if sizes is None else sizes,
        )

    def ids(self) -> Ids:
        """Return `N` sample ids, in row order."""
        return self._samples.ids.numpy()

    def sizes(self) -> Tensor:
        """Return `N` sizes of the samples, in row order."""
        return self._samples.sizes

    def keys(self) -> Iterator[Keys]:
        """Yield ids and sizes of every sample, all at once."""
        yield Keys(self.ids(), self.sizes())

    def shuffled(self, *, batch_size: int, seed: int, epoch: int) -> Iterator[Batch]:
        """Yield every sample once, in an order drawn from `seed` and `epoch` alone."""
        generator = torch.Generator().manual_seed(seed * 1_000_003 + epoch)
        return self._batches(torch.randperm(self.num_samples, generator=generator), batch_size)

    def in_order(self, *, batch_size: int) -> Iterator[Batch]:
        """Yield every sample once, in row order."""
        return self._batches(torch.arange(self.num_samples), batch_size)

    def _batches(self, order: Tensor, batch_size: int) -> Iterator[Batch]:
        return (self._samples.take(rows) for rows in torch.split(order, batch_size))


@final
class StageView:
    """A batch source reduced to some of its stages: the features of a cascade without one of its members.

    Args:
        source: The source.
        stages: Stages (0-based) to keep, ascending, including the final one.

    Example:
        >>> source = MemorySource(torch.arange(6.0).view(1, 6), {2: torch.zeros(1, 2)}, torch.tensor([0]), (1, 2, 3))
        >>> view = StageView(source, (1, 2))
        >>> view.widths, view.own_heads, next(view.in_order(batch_size=1)).features.tolist()
        ((2, 3), (1,), [[1.0, 2.0, 3.0, 4.0, 5.0]])
    """

    def __init__(self, source: BatchSource, stages: Sequence[int]) -> None:
        last = len(source.widths) - 1
        if list(stages) != sorted(set(stages)) or not stages or stages[0] < 0 or stages[-1] != last:
            raise InputError(expected=f"ascending stages that end with the final one, {last}", got=tuple(stages))
        self._source = source
        self._stages = tuple(stages)
        ends = np.cumsum((0, *source.widths)).tolist()
        self._columns = [slice(ends[stage], ends[stage + 1]) for stage in stages]
        self.widths = tuple(source.widths[stage] for stage in stages)
        self.num_samples, self.num_classes = source.num_samples, source.num_classes
        self.own_heads = tuple(place for place, stage in enumerate(stages) if stage in source.own_heads)

    def ids(self) -> Ids:
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
        return map(self._reduce, self._source.shuffled(batch_size=batch_size, seed=seed, epoch=epoch))

    def in_order(self, *, batch_size: int) -> Iterator[Batch]:
        """Yield every sample once, in row order."""
        return map(self._reduce, self._source.in_order(batch_size=batch_size))

    def _reduce(self, batch: Batch) -> Batch:
        features = torch.cat([batch.features[:, columns] for columns in self._columns], dim=1)
        own_logits = {place: batch.own_logits[self._stages[place]] for place in self.own_heads}
        return Batch(features, own_logits, batch.labels, batch.ids, batch.sizes)


@final
class FilteredSource:
    """A batch source without the samples of some ids; its batches are smaller by those.

    Args:
        source: The source.
        ids: Sample ids to leave out; all rows with such an id are left out.
    """

    def __init__(self, source: BatchSource, ids: Ids) -> None:
        self._source = source
        self._ids = np.unique(ids)
        self.num_samples = sum(len(keys.ids) for keys in self.keys())
        if not self.num_samples:
            raise InputError(f"all {source.num_samples} samples are left out", hint="keep at least one row")
        self.num_classes, self.widths, self.own_heads = source.num_classes, source.widths, source.own_heads
        self.backbone_fingerprint: str | None = getattr(source, "backbone_fingerprint", None)

    def ids(self) -> Ids:
        """Return `N` sample ids, in row order."""
        return np.concatenate([keys.ids for keys in self.keys()])

    def sizes(self) -> Tensor:
        """Return `N` sizes of the samples, in row order."""
        return torch.cat([keys.sizes for keys in self.keys()])

    def keys(self) -> Iterator[Keys]:
        """Yield ids and sizes of every sample in row order, in pieces."""
        for keys in self._source.keys():
            stays = ~np.isin(keys.ids, self._ids)
            yield Keys(keys.ids[stays], keys.sizes[torch.from_numpy(stays)])

    def shuffled(self, *, batch_size: int, seed: int, epoch: int) -> Iterator[Batch]:
        """Yield every sample once, in an order drawn from `seed` and `epoch` alone."""
        return self._filter(self._source.shuffled(batch_size=batch_size, seed=seed, epoch=epoch))

    def in_order(self, *, batch_size: int) -> Iterator[Batch]:
        """Yield every sample once, in row order."""
        return self._filter(self._source.in_order(batch_size=batch_size))

    def _filter(self, batches: Iterator[Batch]) -> Iterator[Batch]:
        for batch in batches:
            stays = ~np.isin(batch.ids.numpy(), self._ids)
            if stays.all():
                yield batch
            elif stays.any():
                yield batch.take(torch.from_numpy(np.flatnonzero(stays)))
