"""Running a network with exits: samples leave, and their work is not done."""

from offramp.runtime.backend import Backend
from offramp.runtime.compaction import Compaction
from offramp.runtime.eager import EagerBackend
from offramp.runtime.engine import Engine
from offramp.runtime.flight import Departed, Flight
from offramp.runtime.latency import LatencyTable, measure_latency
from offramp.runtime.points import PointTable

__all__ = [
    "Backend",
    "Compaction",
    "Departed",
    "EagerBackend",
    "Engine",
    "Flight",
    "LatencyTable",
    "PointTable",
    "measure_latency",
]
