"""Policies, the rules for leaving, and the operating points that set their parameters."""

from offramp.policy import _gates, _stopping, _threshold  # noqa: F401 (each registers itself)
from offramp.policy._observation import Observation
from offramp.policy._point import Guarantee, OperatingPoint
from offramp.policy._policy import POLICIES, Policy
from offramp.policy._tuning import Tuning

__all__ = ["POLICIES", "Guarantee", "Observation", "OperatingPoint", "Policy", "Tuning"]
