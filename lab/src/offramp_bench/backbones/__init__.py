"""Frozen networks for benchmarks of early exits, each with training rows it has never seen.

Made as the paper makes them: pretrained where weights are to be had, fitted to a task, then frozen.
"""

from offramp_bench.backbones.backbone import Backbone
from offramp_bench.backbones.catalogue import BACKBONES

__all__ = ["BACKBONES", "Backbone"]
