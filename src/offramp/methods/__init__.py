"""Ways to fit exits on cached features."""

from offramp.methods.distilled import fit_distilled
from offramp.methods.fitted import FittedExits
from offramp.methods.fresh import fresh_exits
from offramp.methods.joint import EpochRecord, fit_classifiers, fit_joint, fit_paper
from offramp.methods.method import METHODS, Method, default_settings
from offramp.methods.settings import DEFAULT, PAPER, ClassifierTraining, ExitKind, JointSettings, spread_cost_weights

__all__ = [
    "DEFAULT",
    "METHODS",
    "PAPER",
    "ClassifierTraining",
    "EpochRecord",
    "ExitKind",
    "FittedExits",
    "JointSettings",
    "Method",
    "default_settings",
    "fit_classifiers",
    "fit_distilled",
    "fit_joint",
    "fit_paper",
    "fresh_exits",
    "spread_cost_weights",
]
