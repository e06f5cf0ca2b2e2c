"""When to leave: the rules, and operating points that set them."""

from offramp.policy.gates import GatePolicy, SampledGatePolicy
from offramp.policy.point import OperatingPoint
from offramp.policy.policy import POLICIES, Observation, Policy, Reading
from offramp.policy.threshold import ThresholdPolicy

__all__ = [
    "POLICIES",
    "GatePolicy",
    "Observation",
    "OperatingPoint",
    "Policy",
    "Reading",
    "SampledGatePolicy",
    "ThresholdPolicy",
]
