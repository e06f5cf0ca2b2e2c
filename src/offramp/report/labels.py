"""Putting labels beside markers so that none lies on another."""

from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["Box", "place"]

_GAP = 7.0  # points between a marker and its label


class Box(NamedTuple):
    """A rectangle, in points."""

    left: float
    """Its left edge."""
    bottom: float
    """Its lower edge."""
    width: float
    """How wide."""
    height: float
    """How high."""

    def meets(self, other: "Box") -> bool:
        """Whether the two overlap."""
        return (
            self.left < other.left + other.width
            and other.left < self.left + self.width
            and self.bottom < other.bottom + other.height
            and other.bottom < self.bottom + self.height
        )

    def within(self, other: "Box") -> bool:
        """Whether it lies inside another."""
        return (
            self.left >= other.left
            and self.left + self.width <= other.left + other.width
            and self.bottom >= other.bottom
            and self.bottom + self.height <= other.bottom + other.height
        )


def place(
    anchor: tuple[float, float],
    size: tuple[float, float],
    *,
    bounds: Box,
    taken: Sequence[Box],
    crowd: Sequence[tuple[float, float]] = (),
) -> Box | None:
    """Find room for a label.

    Args:
        anchor: Where its marker is.
        size: Width and height of the label.
        bounds: What it must lie in.
        taken: Other labels and markers, which it must not touch.
        crowd: Points it had better not cover.

    Returns:
        The box that covers few of the crowd and is near; None if there is no room.

    Example:
        >>> page = Box(0, 0, 100, 100)
        >>> place((50, 50), (20, 10), bounds=page, taken=[])
        Box(left=57.0, bottom=45.0, width=20, height=10)
        >>> place((95, 50), (20, 10), bounds=page, taken=[])
        Box(left=68.0, bottom=45.0, width=20, height=10)
    """
    width, height = size
    found: list[tuple[int, Box]] = []
    for far, gap in enumerate((_GAP, 2 * _GAP, 4 * _GAP)):
        for side in ((1, 0), (-1, 0), (0, -1), (0, 1), (1, -1), (1, 1), (-1, -1), (-1, 1)):
            left = anchor[0] + side[0] * gap - (0, width / 2, width)[1 - side[0]]
            bottom = anchor[1] + side[1] * gap - (0, height / 2, height)[1 - side[1]]
            box = Box(left, bottom, width, height)
            if box.within(bounds) and not any(box.meets(other) for other in taken):
                covered = sum(box.meets(Box(x - 1, y - 1, 2, 2)) for x, y in crowd)
                found.append((covered + 4 * far, box))  # a label far off is taken for another marker's
    return min(found, key=lambda one: one[0])[1] if found else None
