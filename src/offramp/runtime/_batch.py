"""Samples between two stages, samples that have left, and the choice when to remove them from a batch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from offramp.backbone._hidden import Hidden
from offramp.runtime._latency import LatencyTable

__all__ = ["ActiveBatch", "Compaction", "FinishedSamples"]


@dataclass(slots=True)  # not frozen: at batch size 1, creating a frozen instance takes a noticeable share of the time
class ActiveBatch:
    """n samples that have passed the same stages, with all their state. Not changed after it is made."""

    depth: int
    """Number of stages that have run."""
    points: tuple[int, ...]
    """Rows of the point table that the samples started at, ascending; samples of some of them may have left."""
    hidden: Hidden
    """The hidden state of the backbone. In all other tensors samples are the first axis."""
    rows: Tensor
    """`n` numbers by which the caller identifies the samples."""
    point: Tensor | None
    """`n` rows of the point table; None if the table has a single point."""
    finished: Tensor | None
    """`n` flags of riders: samples that have left and were not removed, as that would not pay; None if there are
    none."""
    riders: int
    """Number of riders."""
    state: Any
    """The state of the exits and of the averaging of the network's own heads."""
    carries: Mapping[str, Any]
    """The carry of each policy."""

    def __len__(self) -> int:
        return len(self.rows)


@dataclass(slots=True)
class FinishedSamples:
    """m samples that left at the same exit."""

    exit: int
    """The exit, 0-based."""
    rows: Tensor
    """`m` numbers by which the caller identifies the samples."""
    probabilities: Tensor
    """`m x K`, calibrated."""


@dataclass(frozen=True)
class Compaction:
    """The rule for removing finished samples from a batch: when the next stage gains more time than removal takes.

    Example:
        >>> Compaction().pays(0, 64, 63)
        True
        >>> flat = LatencyTable("eager", 1, (1, 64), ((5.0, 5.0),) * 2, *[((1.0, 1.0),) * 2] * 3)
        >>> Compaction(flat).pays(1, 64, 63)  # the stage takes the same time for any batch size
        False
    """

    latency: LatencyTable | None = None
    """Times measured on this machine; without it, finished samples are always removed."""

    def pays(self, depth: int, count: int, staying: int) -> bool:
        """Decide if `count - staying` samples should be removed after `depth` stages."""
        if self.latency is None:
            return True
        gain_ms = self.latency.at("stage", depth, count) - self.latency.at("stage", depth, staying)
        # The table has the time of copying half of a batch; here `staying` samples are copied.
        return gain_ms > self.latency.at("select", depth - 1, 2 * staying)
