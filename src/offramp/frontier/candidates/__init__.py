"""Operating points to choose among, from the tune split alone: for every policy its own way to set it.

[Longstaff2001] is Longstaff, Schwartz: Valuing American Options by Simulation: A Simple Least-Squares Approach, Review
of Financial Studies 14, 2001; the others are in `offramp.policy`.
"""

from offramp.frontier.candidates.eenet import eenet_candidates
from offramp.frontier.candidates.gates import gate_candidates
from offramp.frontier.candidates.geometric import geometric_candidates
from offramp.frontier.candidates.patience import patience_candidates
from offramp.frontier.candidates.stopping import stopping_candidates
from offramp.frontier.candidates.thinning import COST_STEP, area, thin
from offramp.frontier.candidates.threshold import entropy_candidates, margin_candidates, threshold_candidates
from offramp.frontier.candidates.tuning import CANDIDATES, Tuning

__all__ = [
    "CANDIDATES",
    "COST_STEP",
    "Tuning",
    "area",
    "eenet_candidates",
    "entropy_candidates",
    "gate_candidates",
    "geometric_candidates",
    "margin_candidates",
    "patience_candidates",
    "stopping_candidates",
    "thin",
    "threshold_candidates",
]
