"""What methods and evaluation read: batches of cached features, wherever they come from."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from offramp.errors import InputError
from offramp.features.row_hashes import hash_rows

__all__ = ["Batch", "BatchSource", "Keys", "MemorySource"]


@dataclass(frozen=True)
class Batch:
    """Cached outcomes of the backbone for n samples."""

    features: Tensor
    """`n x D` float features, the stages' side by side; `BatchSource.widths` says where each ends."""
    own_logits: Mapping[int, Tensor]
    """`n x K` scores of the network's own heads, by stage."""
    labels: Tensor
    """`n` classes."""
    ids: Tensor
    """`n` sample ids."""
    sizes: Tensor
    """`n` sizes (tokens, nodes); ones where samples do not differ."""

    def take(self, rows: Tensor | slice) -> "Batch":
        """Some of the samples.

        Args:
            rows: Their numbers, or a range of them.
        """
        own_logits = {stage: logits[rows] for stage, logits in self.own_logits.items()}
        return Batch(self.features[rows], own_logits, self.labels[rows], self.ids[rows], self.sizes[rows])


@dataclass(frozen=True)
class Keys:
    """What is known of n samples before any feature is read."""

    ids: npt.NDArray[np.int64]
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
        """Features of each stage: L numbers that sum to D."""

    @property
    def own_heads(self) -> tuple[int, ...]:
        """Stages after which the network brings a classifier of its own, ascending; the final one last."""

    def ids(self) -> npt.NDArray[np.int64]:
        """`N` sample ids, in the order of the rows."""

    def sizes(self) -> Tensor:
        """`N` sizes of the samples, in the order of the rows."""

    def keys(self) -> Iterator[Keys]:
        """Ids and sizes of every sample, in the order of the rows, some at a time: all need never be in memory."""

    def shuffled(self, *, batch_size: int, seed: int, epoch: int) -> Iterator[Batch]:
        """Every sample once, in an order drawn from `seed` and `epoch` alone; the last batch may be smaller."""

    def in_order(self, *, batch_size: int) -> Iterator[Batch]:
        """Every sample once, first view, in the order of the rows."""


class MemorySource:
    """A batch source over tensors in memory: small data, tests.

    Args:
        features: `N x D`.
        own_logits: `N x K` by stage; the last stage's is the network's answer.
        labels: `N` classes.
        widths: Features of each stage, L numbers that sum to D.
        ids: `N` sample ids; hashes of the rows of features if left out.
        sizes: `N` sizes; ones if left out.

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
            raise InputError(f"widths {widths} sum to {sum(widths)}, but there are {features.shape[1]} features")
        self.widths = widths
        self.num_samples = len(labels)
        self.own_heads = tuple(sorted(own_logits))
        self.num_classes = own_logits[max(own_logits)].shape[1]
        self._all = Batch(
            features,
            own_logits,
            labels,
            torch.from_numpy(hash_rows(features)) if ids is None else ids,
            torch.ones(len(labels)) if sizes is None else sizes,
        )

    def ids(self) -> npt.NDArray[np.int64]:
        """`N` sample ids, in the order of the rows."""
        return self._all.ids.numpy()

    def sizes(self) -> Tensor:
        """`N` sizes of the samples, in the order of the rows."""
        return self._all.sizes

    def keys(self) -> Iterator[Keys]:
        """Ids and sizes of every sample, all at once: they are in memory already."""
        yield Keys(self.ids(), self.sizes())

    def shuffled(self, *, batch_size: int, seed: int, epoch: int) -> Iterator[Batch]:
        """Every sample once, in an order drawn from `seed` and `epoch` alone."""
        generator = torch.Generator().manual_seed(seed * 1_000_003 + epoch)
        yield from self._batches(torch.randperm(self.num_samples, generator=generator), batch_size)

    def in_order(self, *, batch_size: int) -> Iterator[Batch]:
        """Every sample once, in the order of the rows."""
        yield from self._batches(torch.arange(self.num_samples), batch_size)

    def _batches(self, order: Tensor, batch_size: int) -> Iterator[Batch]:
        for rows in torch.split(order, batch_size):
            yield self._all.take(rows)
