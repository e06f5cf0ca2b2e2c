"""The default pooling: means and maxima."""

from functools import reduce

import torch
import torch.nn.functional as F
from torch import Tensor

from offramp.pooling._pooling import POOLINGS, AutoPooling, GridPooling, Pooling, Representation, Tokens

__all__ = ["DEFAULT_POOLING", "RichPooling"]


class RichPooling(Pooling):
    """`AutoPooling` with the maximum of each cell of a map, and of all patches, beside the means.

    Early in a convolutional network the maxima add three to five points of accuracy: they tell an edge in a cell from a
    flat cell of the same brightness.

    Args:
        largest: Maximum number of means of a grid; there are as many maxima.

    Example:
        >>> RichPooling()(torch.ones(2, 16, 32, 32)).shape  # 4 x 4 means and as many maxima
        torch.Size([2, 512])
        >>> RichPooling()(Tokens(torch.ones(2, 17, 16), prefix=1)).shape  # as "auto", and a maximum
        torch.Size([2, 304])
    """

    name = "rich"

    def __init__(self, *, largest: int = 512) -> None:
        self._auto, self._grid = AutoPooling(largest=largest), GridPooling(largest=largest)

    def __call__(self, representation: Representation) -> Tensor:
        """Pool by the kind of representation."""
        means = self._auto(representation)
        match representation:
            case Tokens(values, None, prefix):
                return torch.cat([means, values[:, prefix:].amax(1)], dim=1)
            case Tensor() if representation.ndim == 4:
                side = self._grid.side_of(representation)
                return torch.cat([means, _cell_maxima(representation, side).flatten(1)], dim=1)
            case _:
                return means

    def mul_adds(self, representation: Representation) -> int:
        """Count the operations: maps are read twice, patches three times, words and nodes as for "auto"."""
        more = isinstance(representation, Tensor) or (
            isinstance(representation, Tokens) and representation.mask is None
        )
        return self._auto.mul_adds(representation) + (Pooling.mul_adds(self, representation) if more else 0)


def _cell_maxima(maps: Tensor, side: int) -> Tensor:
    """`N x C x side x side` maxima over the cells of `adaptive_max_pool2d`."""
    height, width = maps.shape[2:]
    if height % side == 0 and width % side == 0:
        tall, wide = height // side, width // side
        if maps.shape[0] == 1 or maps.is_contiguous(memory_format=torch.channels_last):
            return F.max_pool2d(maps, (tall, wide))
        # Rows, then columns: torch's own pooling is eight times slower with channels first.
        rows = reduce(torch.maximum, [maps[:, :, row::tall] for row in range(tall)])
        return reduce(torch.maximum, [rows[..., column::wide] for column in range(wide)])
    # Cell by cell: exporters do not support the adaptive maximum.
    row_slices, column_slices = (
        [slice(cell * size // side, -(-(cell + 1) * size // side)) for cell in range(side)] for size in (height, width)
    )
    cells = [maps[:, :, row, column].amax((2, 3)) for row in row_slices for column in column_slices]
    return torch.stack(cells, dim=2).reshape(*maps.shape[:2], side, side)


POOLINGS.add(RichPooling.name, RichPooling())

DEFAULT_POOLING = RichPooling.name
"""The pooling of exits unless another is named."""
