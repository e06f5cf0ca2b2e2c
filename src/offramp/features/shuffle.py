"""How rows that do not fit in memory are shuffled: which chunks fill a buffer, and where."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

__all__ = ["Filling", "fillings"]

Indices = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Filling:
    """One turn of the buffer: keep, read, hand out."""

    kept: slice
    """Rows that the turn before left in the buffer: fewer than a batch."""
    chunks: Indices
    """Chunks to read."""
    slots: Indices
    """Where each row goes: first the kept ones, then those of the chunks, in that order."""
    dealt: int
    """Rows to hand out in batches, from the front."""


def fillings(lengths: Indices, *, room: int, batch_size: int, generator: torch.Generator) -> Iterator[Filling]:
    """Plan the turns of a shuffle buffer.

    Chunks come in random order; a row's slot is random among all of its turn. Rows are placed on their way in, so that
    a batch is one piece of the buffer: a pass over the memory less than picking them on their way out.

    Args:
        lengths: Rows of each chunk.
        room: Rows of the buffer, at least `batch_size` and the longest chunk together, or all rows.
        batch_size: Every batch but the last has so many rows.
        generator: The only source of chance.

    Example:
        >>> generator = torch.Generator().manual_seed(0)
        >>> for turn in fillings(np.array([3, 3, 2]), room=5, batch_size=2, generator=generator):
        ...     print(turn.kept, turn.chunks, turn.slots, turn.dealt)
        slice(0, 0, None) [2 0] [3 1 0 4 2] 4
        slice(4, 5, None) [1] [3 2 0 1] 4
    """
    order = torch.randperm(len(lengths), generator=generator).numpy()
    ends = np.cumsum(lengths[order])
    assert room >= min(batch_size + int(lengths.max()), int(ends[-1]))
    kept, done, read = slice(0, 0), 0, 0
    while done < len(order):
        over = kept.stop - kept.start
        after = int(np.searchsorted(ends, read + room - over, "right"))
        filled = over + int(ends[after - 1]) - read
        dealt = filled if after == len(order) else filled - filled % batch_size
        slots = torch.randperm(filled, generator=generator).numpy()
        yield Filling(kept, order[done:after], slots, dealt)
        kept, done, read = slice(dealt, filled), after, int(ends[after - 1])
