"""The inputs of an annotation job: read by row, run through the cheap members once, and told apart by content."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from offramp.backbone import Cascade
from offramp.backbone.adapters._callable import CalledModel
from offramp.data import as_source, open_data
from offramp.errors import InputError
from offramp.features import Source, StoreSource, extract
from offramp.features._batch import Batch, MemorySource
from offramp.features._ids import Ids
from offramp.features._store import Store
from offramp.model._recalibrate import Unlabelled, with_zeros
from offramp.preprocessing._raw import to_sliceable

__all__ = ["InputRows", "as_inputs"]

READ_ROWS = 1000
"""Rows that are read, scored or asked for at a time."""

FEW = 20
"""Rows of one block that are read one by one, rather than the whole block."""


def as_inputs(inputs: Any) -> Source:
    """Return inputs without labels as a source.

    Args:
        inputs: A list of texts, an array, a dictionary of them, the path of a file or folder, or a source.
    """
    if isinstance(inputs, str | Path):
        inputs = open_data(inputs)
    if hasattr(inputs, "read"):
        return Unlabelled(inputs)
    arrays = {key: to_sliceable(part) for key, part in inputs.items()} if isinstance(inputs, dict) else inputs
    arrays = to_sliceable(arrays)
    if not pytree.tree_leaves(arrays) or not len(pytree.tree_leaves(arrays)[0]):
        raise InputError("inputs", expected="at least one", got="none")
    return as_source(with_zeros(arrays), "inputs")


class InputRows:
    """The inputs of a job, and the outputs of the cheap members for each.

    Args:
        source: The inputs.
        cascade: The cascade.
        folder: Folder for the cached features.
        pooling: Name of the pooling.
        progress: Show progress bars.
    """

    def __init__(self, source: Source, cascade: Cascade, folder: Path, *, pooling: str, progress: bool) -> None:
        self.source, self.cascade, self._pooling = source, cascade, pooling
        front = cascade.front
        self._store: Store = extract(
            front,
            source,
            folder / source.name,
            poolings=(pooling,),
            views=(front.preprocessing,),
            progress=progress,
        )
        self.widths = (*self._store.widths(pooling), cascade.num_classes)

    def __len__(self) -> int:
        return self._store.num_rows

    def ids(self) -> Iterator[Ids]:
        """Yield the ids of all rows in order, some at a time: inputs of the same content share one."""
        for keys in StoreSource(self._store, pooling=self._pooling).keys():
            yield keys.ids

    @property
    def last(self) -> CalledModel:
        """The last member."""
        last = self.cascade.members[-1]
        assert isinstance(last, CalledModel)
        return last

    def read(self, rows: npt.NDArray[np.int64]) -> Any:
        """Return the raw inputs of some rows, ascending, as the last member takes them."""
        pieces = []
        blocks, starts = np.unique(rows // READ_ROWS, return_index=True)
        for block, own in zip(blocks.tolist(), np.split(rows, starts[1:]), strict=True):
            first = block * READ_ROWS
            if len(own) <= FEW:
                pieces += [to_sliceable(self.source.read(row, row + 1).inputs) for row in own.tolist()]
            else:
                whole = to_sliceable(self.source.read(first, min(first + READ_ROWS, len(self))).inputs)
                pieces.append(pytree.tree_map(lambda leaf, at=own - first: leaf[at], whole))
        joined = pytree.tree_map(lambda *leaves: _join(leaves), *pieces)
        return self.last.read_field(self.last.prepare(self.last.preprocessing(joined)))

    def answered(self, rows: npt.NDArray[np.int64], scores: npt.NDArray[np.float32]) -> MemorySource:
        """Return rows with the last member's scores as features to fit on; its answers are the labels.

        Args:
            rows: `n` rows, ascending.
            scores: `n x K` scores.
        """
        batches = list(self._features(rows))
        last = torch.from_numpy(scores)
        features = torch.cat([torch.cat([batch.features.float() for batch in batches]), last], dim=1)
        heads = {stage: torch.cat([batch.own_logits[stage].float() for batch in batches]) for stage in self._heads}
        return MemorySource(
            features,
            {**heads, len(self.widths) - 1: last},
            last.argmax(1),
            self.widths,
            ids=torch.cat([batch.ids for batch in batches]),
            sizes=torch.from_numpy(self.last.caller.sizes(self.read(rows))),
        )

    def unanswered(self, rows: npt.NDArray[np.int64]) -> Iterator[tuple[npt.NDArray[np.int64], MemorySource]]:
        """Yield rows in blocks, with zeros in place of the last member's scores: for the answers of cheap members."""
        for start in range(0, len(rows), READ_ROWS):
            some = rows[start : start + READ_ROWS]
            (batch,) = self._features(some)
            blank = torch.zeros(len(some), self.cascade.num_classes)
            features = torch.cat([batch.features.float(), blank], dim=1)
            heads = {stage: batch.own_logits[stage].float() for stage in self._heads}
            labels = torch.zeros(len(some), dtype=torch.long)
            yield some, MemorySource(features, {**heads, len(self.widths) - 1: blank}, labels, self.widths)

    @property
    def _heads(self) -> tuple[int, ...]:
        return self._store.own_heads

    def _features(self, rows: npt.NDArray[np.int64]) -> Iterator[Batch]:
        return StoreSource(self._store, pooling=self._pooling, rows=rows).in_order(batch_size=READ_ROWS)


def _join(leaves: tuple[Any, ...]) -> Any:
    return torch.cat(leaves) if isinstance(leaves[0], Tensor) else np.concatenate(leaves)
