"""When those who left are taken out of a batch."""

from dataclasses import dataclass

__all__ = ["Compaction"]


@dataclass(frozen=True)
class Compaction:
    """Take those who left out of a batch when that pays.

    Example:
        >>> Compaction().pays(0, 64, 63)
        True
    """

    def pays(self, depth: int, count: int, staying: int) -> bool:
        """Whether to take out `count - staying` samples after `depth` stages."""
        return True
