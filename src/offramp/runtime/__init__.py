"""The execution of a network with exits: samples leave, and the rest of their work is skipped."""

from offramp.runtime._backend import BACKENDS, Backend
from offramp.runtime._budget import BudgetController
from offramp.runtime._dial import Dial
from offramp.runtime._latency import LatencyTable
from offramp.runtime._measuring import measure_latency

__all__ = ["BACKENDS", "Backend", "BudgetController", "Dial", "LatencyTable", "measure_latency"]
