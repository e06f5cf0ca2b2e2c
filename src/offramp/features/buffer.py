"""Memory for columns that come and go: allocated so that the process does not grow."""

from math import prod

import numpy as np
import torch
from torch import Tensor

__all__ = ["empty"]


def empty(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """A tensor in memory that numpy allocates: in huge pages, and fit for reuse.

    Of the aligned blocks that torch asks for, one of the same size does not fit where another was freed (glibc before
    2.38), so that a process grows by a dozen batches.

    Args:
        shape: Of the tensor.
        dtype: Of the tensor.

    Example:
        >>> empty((2, 3), torch.float16).shape
        torch.Size([2, 3])
    """
    return torch.from_numpy(np.empty(prod(shape) * dtype.itemsize, np.uint8)).view(dtype).view(shape)
