"""The early-exit model: fit, choose a point, predict, evaluate, recalibrate, save."""

from offramp.model._compare import Comparison, compare_models
from offramp.model._estimation import Estimate
from offramp.model._evaluation import Evaluation, Measured
from offramp.model._fitting import fit_features

__all__ = ["Comparison", "Estimate", "Evaluation", "Measured", "compare_models", "fit_features"]
