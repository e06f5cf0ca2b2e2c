"""From outcomes to operating points, and from a wish to a network."""

from offramp.frontier.candidates import COST_STEP, area, gate_candidates, thin, threshold_candidates
from offramp.frontier.fit import fit, fit_frontier
from offramp.frontier.frontier import Frontier
from offramp.frontier.metrics import Measured, measure
from offramp.frontier.outcomes import Outcomes, outcomes, tune_temperatures
from offramp.frontier.simulate import simulate

__all__ = [
    "COST_STEP",
    "Frontier",
    "Measured",
    "Outcomes",
    "area",
    "fit",
    "fit_frontier",
    "gate_candidates",
    "measure",
    "outcomes",
    "simulate",
    "thin",
    "threshold_candidates",
    "tune_temperatures",
]
