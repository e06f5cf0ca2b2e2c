"""Off-ramps for neural networks: early exits for a frozen classifier, at the budget its owner names."""

from offramp.frontier import Frontier, estimate, fit, load, recalibrated, save
from offramp.methods import DEFAULT, PAPER, JointSettings
from offramp.network import Answer, EarlyExitNetwork
from offramp.trunk import Trunk, chain, image_preprocessing, split

__all__ = [
    "DEFAULT",
    "PAPER",
    "Answer",
    "EarlyExitNetwork",
    "Frontier",
    "JointSettings",
    "Trunk",
    "chain",
    "estimate",
    "fit",
    "image_preprocessing",
    "load",
    "recalibrated",
    "save",
    "split",
]
