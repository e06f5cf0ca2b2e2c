"""Ways to fit exits on cached features."""

from offramp.methods.boosted import fit_boosted
from offramp.methods.branching import fit_diff_branch, fit_pteenet
from offramp.methods.distilled import fit_distilled
from offramp.methods.fitted import FittedExits
from offramp.methods.fresh import fresh_exits
from offramp.methods.joint import EpochRecord, fit_classifiers, fit_joint, fit_paper
from offramp.methods.l2w_den import fit_l2w_den
from offramp.methods.method import METHODS, Method, default_settings
from offramp.methods.settings import DEFAULT, PAPER, ClassifierTraining, ExitKind, JointSettings, spread_cost_weights
from offramp.methods.ztw import fit_ztw

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
    "fit_boosted",
    "fit_classifiers",
    "fit_diff_branch",
    "fit_distilled",
    "fit_joint",
    "fit_l2w_den",
    "fit_paper",
    "fit_pteenet",
    "fit_ztw",
    "fresh_exits",
    "spread_cost_weights",
]
