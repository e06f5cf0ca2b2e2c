"""Frozen networks for benchmarks of early exits, each with training rows it has never seen.

Made as the paper makes them: pretrained where weights are to be had, fitted to a task, then frozen.
"""

from offramp_bench.backbones.catalogue import BACKBONES
from offramp_bench.backbones.pretrained import Pretrained

__all__ = ["BACKBONES", "Pretrained"]
