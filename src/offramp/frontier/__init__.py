"""From outcomes to operating points, and from a wish to a network."""

from offramp.frontier.comparison import Comparison, check_comparable, compare, on_backbone
from offramp.frontier.contributions import Contribution, paying_exits
from offramp.frontier.estimate import Estimate, EstimatedPoint, estimate
from offramp.frontier.fit import fit, fit_frontier
from offramp.frontier.frontier import Frontier
from offramp.frontier.guarantee import losses_at, promise, with_losses
from offramp.frontier.loading import load
from offramp.frontier.members import drop_members
from offramp.frontier.metrics import Measured, measure
from offramp.frontier.outcomes import Outcomes, brier_scores, outcomes, tune_temperatures
from offramp.frontier.recalibration import recalibrated
from offramp.frontier.saving import made_again, save
from offramp.frontier.simulate import exit_shares, simulate
from offramp.frontier.thinning import COST_STEP, area, thin
from offramp.frontier.tuning import tuning_of

__all__ = [
    "COST_STEP",
    "Comparison",
    "Contribution",
    "Estimate",
    "EstimatedPoint",
    "Frontier",
    "Measured",
    "Outcomes",
    "area",
    "brier_scores",
    "check_comparable",
    "compare",
    "drop_members",
    "estimate",
    "exit_shares",
    "fit",
    "fit_frontier",
    "load",
    "losses_at",
    "made_again",
    "measure",
    "on_backbone",
    "outcomes",
    "paying_exits",
    "promise",
    "recalibrated",
    "save",
    "simulate",
    "thin",
    "tune_temperatures",
    "tuning_of",
    "with_losses",
]
