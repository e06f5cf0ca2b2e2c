"""Ways to fit exits on cached features."""

from offramp.methods.fitted import FittedExits
from offramp.methods.fresh import fresh_exits
from offramp.methods.joint import EpochRecord, fit_joint
from offramp.methods.settings import DEFAULT, PAPER, ClassifierTraining, ExitKind, JointSettings, spread_cost_weights

__all__ = [
    "DEFAULT",
    "PAPER",
    "ClassifierTraining",
    "EpochRecord",
    "ExitKind",
    "FittedExits",
    "JointSettings",
    "fit_joint",
    "fresh_exits",
    "spread_cost_weights",
]
