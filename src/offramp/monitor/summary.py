"""Traffic in a few numbers, for people."""

from dataclasses import dataclass

import numpy as np

from offramp.monitor.traffic import Traffic

__all__ = ["Summary", "summarise"]


@dataclass(frozen=True)
class Summary:
    """What was seen; shares and means are NaN where nothing was."""

    samples: int
    """N."""
    exit_shares: tuple[float, ...]
    """`L` shares of the samples that left at each exit."""
    confidence: float
    """Mean of the largest probabilities."""
    shadowed: int
    """Samples that were run to full depth."""
    disagreement: float
    """Share of those whose answer is not the full network's."""


def summarise(traffic: Traffic, *, num_exits: int) -> Summary:
    """Count and average.

    Args:
        traffic: The answers.
        num_exits: L.

    Example:
        >>> summarise(Traffic([0, 0, 2], [0.9, 0.8, 0.4], [0, np.nan, 1]), num_exits=3).disagreement
        0.5
    """
    shares = np.bincount(traffic.exits, minlength=num_exits) / len(traffic) if len(traffic) else [np.nan] * num_exits
    shadowed = traffic.shadowed
    return Summary(
        samples=len(traffic),
        exit_shares=tuple(float(share) for share in shares),
        confidence=float(traffic.confidence.mean()) if len(traffic) else float("nan"),
        shadowed=len(shadowed),
        disagreement=float(shadowed.mean()) if len(shadowed) else float("nan"),
    )
