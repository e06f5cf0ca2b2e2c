"""Load and latency of the last minutes, in bounded memory."""

import math
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field

from offramp.serve._record import RequestRecord

__all__ = ["BINS", "BIN_S", "Bin", "History"]

BIN_S = 10
"""Seconds of a bin."""

BINS = 90
"""Bins that are kept: 15 minutes."""

RATIO = 1.05
"""Ratio of two neighbouring latencies that are told apart."""


@dataclass
class Bin:
    """Requests that ended within a few seconds."""

    statuses: Counter[int] = field(default_factory=Counter)
    """Number of requests by status."""
    exits: Counter[int] = field(default_factory=Counter)
    """Number of samples by exit."""
    cost: float = 0.0
    """Sum of the relative costs of the samples."""
    latencies: Counter[int] = field(default_factory=Counter)
    """Number of answered requests by the logarithm of their time."""

    def quantile_s(self, share: float) -> float:
        """Return the time in seconds within which a share of the requests was answered; NaN without requests.

        Args:
            share: The share, such as 0.99.

        Example:
            >>> of = Bin(latencies=Counter(round(math.log(ms / 1000, RATIO)) for ms in range(1, 101)))
            >>> round(of.quantile_s(0.5), 2), round(of.quantile_s(1.0), 1)
            (0.05, 0.1)
        """
        needed = max(share * self.latencies.total(), 1)
        count = 0
        for step, number in sorted(self.latencies.items()):
            count += number
            if count >= needed:
                return RATIO**step
        return math.nan


class History:
    """The last 15 minutes of a server, in bins of 10 s.

    Args:
        clock: The clock, in seconds.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._bins: deque[tuple[int, Bin]] = deque(maxlen=BINS + 1)  # with the bin of now

    def observe_request(self, record: RequestRecord) -> None:
        """Count a request.

        Args:
            record: The request.
        """
        number = int(self._clock() // BIN_S)
        if not self._bins or self._bins[-1][0] != number:
            self._bins.append((number, Bin()))
        current = self._bins[-1][1]
        current.statuses[record.status] += 1
        exits = record.exits
        current.exits.update(exits)
        current.cost += len(exits) * (record.relative_cost or 0.0)
        if record.status == 200:
            current.latencies[round(math.log(max(record.total_s, 1e-6), RATIO))] += 1

    def bins(self) -> list[Bin]:
        """Return the bins of the last 15 minutes, the oldest first; the current one, still incomplete, is left out."""
        now = int(self._clock() // BIN_S)
        known = dict(self._bins)
        return [known.get(number, Bin()) for number in range(now - BINS, now)]

    def total(self) -> Bin:
        """Return all requests of the last 15 minutes together, with those of the current bin."""
        total, now = Bin(), int(self._clock() // BIN_S)
        for number, part in self._bins:
            if number > now - BINS:
                total.statuses += part.statuses
                total.exits += part.exits
                total.latencies += part.latencies
                total.cost += part.cost
        return total
