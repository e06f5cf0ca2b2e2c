"""Running a network with exits: samples leave, and their work is not done."""

from offramp.runtime.backend import Backend
from offramp.runtime.backends import BACKENDS
from offramp.runtime.budget import WINDOW, BudgetController
from offramp.runtime.compaction import Compaction
from offramp.runtime.dense import run_dense
from offramp.runtime.dial import Dial, same_setting, undominated
from offramp.runtime.eager import EagerBackend
from offramp.runtime.engine import Engine
from offramp.runtime.flight import Departed, Flight
from offramp.runtime.latency import LatencyTable, Milliseconds
from offramp.runtime.measuring import measure_latency
from offramp.runtime.points import PointTable

__all__ = [
    "BACKENDS",
    "WINDOW",
    "Backend",
    "BudgetController",
    "Compaction",
    "Departed",
    "Dial",
    "EagerBackend",
    "Engine",
    "Flight",
    "LatencyTable",
    "Milliseconds",
    "PointTable",
    "measure_latency",
    "run_dense",
    "same_setting",
    "undominated",
]
