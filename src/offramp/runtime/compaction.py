"""When those who left are taken out of a batch."""

from dataclasses import dataclass

from offramp.runtime.latency import LatencyTable

__all__ = ["Compaction"]


@dataclass(frozen=True)
class Compaction:
    """Take those who left out of a batch when that pays: when the next stage gains more than taking them out costs.

    Example:
        >>> Compaction().pays(0, 64, 63)
        True
        >>> flat = LatencyTable("eager", 1, (1, 64), ((5.0, 5.0),) * 2, *[((1.0, 1.0),) * 2] * 3)
        >>> Compaction(flat).pays(1, 64, 63)  # a stage that takes as long for one as for many
        False
    """

    latency: LatencyTable | None = None
    """What was measured on this machine; without it they are always taken out."""

    def pays(self, depth: int, count: int, staying: int) -> bool:
        """Whether to take out `count - staying` samples after `depth` stages."""
        if self.latency is None:
            return True
        gained = self.latency.at("stage", depth, count) - self.latency.at("stage", depth, staying)
        # Measured for half of a batch: what is copied are those who stay.
        return gained > self.latency.at("select", depth - 1, 2 * staying)
