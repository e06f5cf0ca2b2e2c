"""The early-exit model: fit, choose a point, predict, evaluate, recalibrate, save."""

from offramp.model._compare import compare_models
from offramp.model._fitting import fit_features

__all__ = ["compare_models", "fit_features"]
