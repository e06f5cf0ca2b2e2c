"""How far an answer can be trusted: temperatures, calibration error, conformal sets, bounds on losses, intervals.

Shapes use the letters W (cost weights), N (samples), L (exits, the final one included), K (classes), S (statistics), in
that order. Exits are 0-based here and 1-based in the paper. [Regol2024] is Regol, Chataoui, Coates: Jointly-Learned
Exit and Inference for a Dynamic Neural Network, ICLR 2024. [Guo2017] is Guo, Pleiss, Sun, Weinberger: On Calibration of
Modern Neural Networks, ICML 2017. [Vovk2012] is Vovk: Conditional Validity of Inductive Conformal Predictors,
ACML 2012.

Temperatures are fitted on the *tune* split. Conformal thresholds are taken on *calibrate*, which nothing fitted has
seen.
"""

from offramp.uncertainty.bootstrap import bootstrap_ratio_interval
from offramp.uncertainty.calibration import calibration_error, calibration_floor
from offramp.uncertainty.conformal import (
    ConformalVariant,
    class_thresholds,
    conformal_scores,
    conformal_thresholds,
    prediction_set,
)
from offramp.uncertainty.proportions import paired_interval, wilson_interval
from offramp.uncertainty.risk import (
    LOSSES,
    RiskBound,
    RiskLoss,
    last_passed,
    passes,
    samples_needed,
    smoothed,
    walk,
)
from offramp.uncertainty.temperature import believable, fit_temperatures, scale

__all__ = [
    "LOSSES",
    "ConformalVariant",
    "RiskBound",
    "RiskLoss",
    "believable",
    "bootstrap_ratio_interval",
    "calibration_error",
    "calibration_floor",
    "class_thresholds",
    "conformal_scores",
    "conformal_thresholds",
    "fit_temperatures",
    "last_passed",
    "paired_interval",
    "passes",
    "prediction_set",
    "samples_needed",
    "scale",
    "smoothed",
    "walk",
    "wilson_interval",
]
