"""Sample ids from a name and row numbers; the splits of all recorded results were drawn by them."""

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from offramp.features._ids import stable_hash

__all__ = ["row_ids"]


def row_ids(name: str, rows: Iterable[int]) -> npt.NDArray[np.int64]:
    """Make one id per row.

    Ids by content, as the library makes them, would draw other splits than those that backbones were trained on.

    Args:
        name: Name of the dataset and split.
        rows: Row numbers.

    Example:
        >>> row_ids("train", [5, 6]).tolist(), row_ids("test", [5]).tolist()
        ([1434713311643516606, 8891921793323806802], [5633139016826095075])
    """
    return np.fromiter((stable_hash(f"{name}/{row}") for row in rows), np.int64)
