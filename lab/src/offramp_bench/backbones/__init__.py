"""Frozen networks for benchmarks of early exits, each with training samples it was not fitted on.

They are made as in the paper: pretrained where weights are available, fitted to a task, then frozen.
"""

from offramp_bench.backbones.catalogue import BACKBONES
from offramp_bench.backbones.pretrained import Pretrained

__all__ = ["BACKBONES", "Pretrained"]
