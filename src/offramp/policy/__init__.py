"""When to leave: the rules, and operating points that set them."""

from offramp.policy.checking import check_points, check_policy
from offramp.policy.gates import GatePolicy, SampledGatePolicy, gate_candidates
from offramp.policy.guarantee import Guarantee, PointLosses
from offramp.policy.margin import MarginPolicy
from offramp.policy.observing import observe
from offramp.policy.point import OperatingPoint
from offramp.policy.policy import OFFERED, POLICIES, Observation, Policy, Reading
from offramp.policy.stopping import StoppingPolicy
from offramp.policy.threshold import ThresholdPolicy, spread_levels, threshold_candidates
from offramp.policy.tuning import Tuning

__all__ = [
    "OFFERED",
    "POLICIES",
    "GatePolicy",
    "Guarantee",
    "MarginPolicy",
    "Observation",
    "OperatingPoint",
    "PointLosses",
    "Policy",
    "Reading",
    "SampledGatePolicy",
    "StoppingPolicy",
    "ThresholdPolicy",
    "Tuning",
    "check_points",
    "check_policy",
    "gate_candidates",
    "observe",
    "spread_levels",
    "threshold_candidates",
]
