"""The operating point in force: lowered while requests wait too long, and restored after."""

from collections.abc import Sequence

from offramp.policy import OperatingPoint

__all__ = ["MOST_LEVELS", "OverloadControl", "choose_levels"]

MOST_LEVELS = 8
"""Points below the normal one. A burst lowers the point by one step per batch, so it meets the cheapest soon."""


class OverloadControl:
    """The choice of an operating point by how long requests have waited.

    After a batch whose requests waited longer than `slow_s`, the next cheaper point is in force; after one whose
    requests waited less than half of it, the next dearer one.

    Args:
        levels: Rows of the points in the engine, from the normal one to the cheapest.
        slow_s: Seconds in the queue that are too long.

    Attributes:
        level: Index of the point in force, 0 for the normal one.

    Example:
        >>> control = OverloadControl([0, 7, 3], slow_s=0.1)
        >>> [control.update(waited_s) for waited_s in (0.02, 0.2, 0.3, 0.4, 0.07, 0.01, 0.01)]
        [0, 7, 3, 3, 3, 7, 0]
    """

    def __init__(self, levels: Sequence[int], *, slow_s: float) -> None:
        self._levels, self._slow_s = tuple(levels), slow_s
        self.level = 0

    def update(self, waited_s: float) -> int:
        """Return the row of the point for the next batch.

        Args:
            waited_s: Longest time in the queue of its requests.
        """
        if waited_s > self._slow_s:
            self.level = min(self.level + 1, len(self._levels) - 1)
        elif waited_s < self._slow_s / 2:
            self.level = max(self.level - 1, 0)
        return self._levels[self.level]


def choose_levels(normal: OperatingPoint, guaranteed: Sequence[OperatingPoint]) -> list[OperatingPoint]:
    """Return the points that an overload may lower a model to, from dear to cheap, without the normal one.

    Args:
        normal: The point without overload.
        guaranteed: Points with the guarantee that holds under overload.

    Example:
        >>> from dataclasses import replace
        >>> import torch
        >>> point = OperatingPoint("threshold", {}, (0, 1), torch.ones(2))
        >>> points = [replace(point, tune_metrics={"cost": cost / 100, "accuracy": 0.9}) for cost in range(20, 90)]
        >>> [round(level.tune_metrics["cost"], 2) for level in choose_levels(points[40], points)]
        [0.59, 0.53, 0.48, 0.42, 0.37, 0.31, 0.26, 0.2]
    """
    cheaper = [point for point in guaranteed if point.tune_metrics["cost"] < normal.tune_metrics["cost"]]
    cheaper.sort(key=lambda point: -point.tune_metrics["cost"])
    if len(cheaper) <= MOST_LEVELS:
        return cheaper
    last = len(cheaper) - 1
    return [cheaper[round(step * last / (MOST_LEVELS - 1))] for step in range(MOST_LEVELS)]
