"""Which numbers a network can compute with: finite ones, within the range of single precision."""

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["first_unfit"]

LARGEST = float(np.finfo(np.float32).max)


def first_unfit(values: npt.NDArray[Any]) -> tuple[int, ...] | None:
    """Where the first number lies that is not finite, or beyond the range of single precision; None without any.

    Args:
        values: Numbers in any shape and type.

    Example:
        >>> first_unfit(np.array([[1, 2], [3, np.nan]])), first_unfit(np.array([1e38])), first_unfit(np.array([1e39]))
        ((1, 1), None, (0,))
    """
    if values.dtype.kind != "f" or not values.size:
        return None
    with np.errstate(invalid="ignore"):
        # The extremes first: they need no memory, and mostly say that all is well.
        lowest, highest = float(values.min()), float(values.max())
    if lowest >= -LARGEST and highest <= LARGEST:
        return None
    fits = np.abs(values.astype(np.float64)) <= LARGEST  # this way round, not-a-number does not fit
    return tuple(int(place) for place in np.argwhere(~fits)[0])
