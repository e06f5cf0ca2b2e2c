"""How far an answer can be trusted: temperatures, calibration error, conformal sets, bootstrap intervals.

Shapes use the letters W (cost weights), N (samples), L (exits, the final one included), K (classes), S (statistics), in
that order. Exits are 0-based here and 1-based in the paper. [Regol2024] is Regol, Chataoui, Coates: Jointly-Learned
Exit and Inference for a Dynamic Neural Network, ICLR 2024. [Guo2017] is Guo, Pleiss, Sun, Weinberger: On Calibration of
Modern Neural Networks, ICML 2017.

Temperatures are fitted on the *tune* split. Conformal thresholds are taken on *calibrate*, which nothing fitted has
seen.
"""

from offramp.uncertainty.bootstrap import bootstrap_interval, bootstrap_ratio_interval
from offramp.uncertainty.calibration import calibration_error, calibration_floor
from offramp.uncertainty.conformal import (
    ConformalVariant,
    conformal_scores,
    conformal_threshold,
    conformal_thresholds,
    coverage,
    mean_set_size,
    prediction_set,
)
from offramp.uncertainty.temperature import believable, fit_temperatures, scale

__all__ = [
    "ConformalVariant",
    "believable",
    "bootstrap_interval",
    "bootstrap_ratio_interval",
    "calibration_error",
    "calibration_floor",
    "conformal_scores",
    "conformal_threshold",
    "conformal_thresholds",
    "coverage",
    "fit_temperatures",
    "mean_set_size",
    "prediction_set",
    "scale",
]
