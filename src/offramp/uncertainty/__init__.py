"""Uncertainty of answers: temperatures, calibration error, conformal sets, bounds on losses, intervals.

Shapes use the letters W (cost weights), N (samples), L (exits, the final one included), K (classes), S (statistics), in
that order. Exits are 0-based here and 1-based in the paper. [Regol2024] is Regol, Chataoui, Coates: Jointly-Learned
Exit and Inference for a Dynamic Neural Network, ICLR 2024. [Guo2017] is Guo, Pleiss, Sun, Weinberger: On Calibration of
Modern Neural Networks, ICML 2017. [Vovk2012] is Vovk: Conditional Validity of Inductive Conformal Predictors,
ACML 2012.

Temperatures are fitted on the *tune* split, conformal thresholds on *calibrate*, which nothing else is fitted on.
"""

from offramp.uncertainty._calibration import calibration_error
from offramp.uncertainty._conformal import conformal_thresholds, prediction_set

__all__ = ["calibration_error", "conformal_thresholds", "prediction_set"]
