"""Which rows of a store are read, shard by shard."""

import numpy as np
import numpy.typing as npt

from offramp.errors import InputError
from offramp.features.plan import Plan

__all__ = ["Indices", "Selection"]

Indices = npt.NDArray[np.int64]


class Selection:
    """All rows of a store, some, or all but some.

    The rows that were named are held, those of the store are not: of a billion rows all but a few thousand take no more
    memory than those few.

    Args:
        plan: Of the store.
        rows: Row numbers, sorted; all rows if left out.
        without: Row numbers to leave out, sorted; not beside `rows`.

    Attributes:
        counts: Rows chosen of each shard.

    Example:
        >>> from offramp.backbone import Preprocessing
        >>> plan = Plan("5eed", 10, (1,), {"mean": (16, 32)}, (Preprocessing(),), "toy", 10, 4, 2, 1, "float16")
        >>> chosen = Selection(plan, without=np.array([1, 2, 9]))
        >>> chosen.counts.tolist(), chosen.rows(0, 0, 2).tolist(), chosen.rows(1, 0, 2)
        ([2, 4, 1], [0, 3], slice(0, 2, None))
    """

    def __init__(self, plan: Plan, rows: Indices | None = None, without: Indices | None = None) -> None:
        if rows is not None and without is not None:
            raise InputError("expected rows to read or rows to leave out, got both; give one of them")
        starts = np.arange(plan.num_shards + 1) * plan.shard_rows
        starts[-1] = plan.num_rows
        self._starts = starts
        self._left_out = without is not None
        named = without if without is not None else rows
        self._named = None if named is None else _checked(named, plan.num_rows)
        self.counts = np.diff(starts)
        if self._named is not None:
            self._bounds = np.searchsorted(self._named, starts)
            counts = np.diff(self._bounds)
            self.counts = self.counts - counts if self._left_out else counts
        if not self.counts.any():
            raise InputError(f"all {plan.num_rows} rows of the store are left out; leave some in")

    def rows(self, shard: int, start: int, stop: int) -> Indices | slice:
        """The rows at some positions among those chosen of a shard, counted from the shard's first row.

        Args:
            shard: Which one.
            start: First position.
            stop: The position after the last.
        """
        if self._named is None:
            return slice(start, stop)
        named = self._named[self._bounds[shard] : self._bounds[shard + 1]] - self._starts[shard]
        if not self._left_out:
            chosen: Indices = named[start:stop]
            return chosen
        if not len(named):
            return slice(start, stop)
        # Before a row that stays, as many are left out as are not behind it when all that stay move up.
        positions = np.arange(start, stop)
        return positions + np.searchsorted(named - np.arange(len(named)), positions, side="right")


def _checked(rows: npt.ArrayLike, num_rows: int) -> Indices:
    rows = np.asarray(rows)
    if rows.ndim != 1 or not np.issubdtype(rows.dtype, np.integer) or len(rows) == 0:
        raise InputError(f"expected at least one integer row number, got {rows.dtype} of shape {rows.shape}")
    if rows[0] < 0 or rows[-1] >= num_rows or (rows[1:] <= rows[:-1]).any():
        raise InputError(f"expected sorted, different row numbers from 0 to {num_rows - 1}; sort them with np.unique")
    return rows.astype(np.int64)
