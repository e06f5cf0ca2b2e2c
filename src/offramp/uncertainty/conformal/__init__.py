r"""Sets of classes that hold the true one as often as promised.

Split conformal prediction with the score $1 - \hat p_y$. The promise needs thresholds from a split that neither the
backbone, the heads, the temperatures nor the choice of exits has seen. It holds on average over calibration splits, not
for each sample; for each exit or class only where a variant says so. What is promised, what is proven and what is
measured: docs/conformal.md.
"""

from offramp.uncertainty.conformal.sets import conformal_scores, prediction_set
from offramp.uncertainty.conformal.thresholds import (
    ConformalVariant,
    class_thresholds,
    conformal_thresholds,
)

__all__ = [
    "ConformalVariant",
    "class_thresholds",
    "conformal_scores",
    "conformal_thresholds",
    "prediction_set",
]
