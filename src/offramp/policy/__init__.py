"""When to leave: the rules, and operating points that set them.

The rivals' rules are those of

* [Teerapittayanon2016] Teerapittayanon, McDanel, Kung: BranchyNet: Fast Inference via Early Exiting from Deep Neural
  Networks, ICPR 2016;
* [Huang2018] Huang, Chen, Li, Wu, van der Maaten, Weinberger: Multi-Scale Dense Networks for Resource Efficient Image
  Classification, ICLR 2018;
* [Zhou2020] Zhou, Xu, Ge, McAuley, Xu, Wei: BERT Loses Patience: Fast and Robust Inference with Early Exit,
  NeurIPS 2020;
* [Scardapane2020] Scardapane, Comminiello, Scarpiniti, Baccarelli, Uncini: Differentiable Branching in Deep Networks
  for Fast Inference, ICASSP 2020;
* [Lahiany2022] Lahiany, Aperstein: PTEENet: Post-Trained Early-Exit Neural Networks Augmentation for Inference Cost
  Optimization, IEEE Access 2022;
* [Ilhan2024] Ilhan and others: Adaptive Deep Neural Network Inference Optimization with EENet, WACV 2024.
"""

from offramp.policy.branch_gates import BranchGatePolicy
from offramp.policy.eenet import EENetPolicy
from offramp.policy.entropy import EntropyPolicy
from offramp.policy.exit_thresholds import ExitThresholdsPolicy
from offramp.policy.gates import GatePolicy, SampledGatePolicy, gate_candidates
from offramp.policy.guarantee import Guarantee, PointLosses
from offramp.policy.margin import MarginPolicy
from offramp.policy.observing import observe
from offramp.policy.patience import PatiencePolicy
from offramp.policy.point import OperatingPoint
from offramp.policy.policy import OFFERED, POLICIES, Observation, Policy, Reading
from offramp.policy.stopping import StoppingPolicy
from offramp.policy.threshold import ThresholdPolicy, spread_levels, threshold_candidates
from offramp.policy.tuning import Tuning

__all__ = [
    "OFFERED",
    "POLICIES",
    "BranchGatePolicy",
    "EENetPolicy",
    "EntropyPolicy",
    "ExitThresholdsPolicy",
    "GatePolicy",
    "Guarantee",
    "MarginPolicy",
    "Observation",
    "OperatingPoint",
    "PatiencePolicy",
    "PointLosses",
    "Policy",
    "Reading",
    "SampledGatePolicy",
    "StoppingPolicy",
    "ThresholdPolicy",
    "Tuning",
    "gate_candidates",
    "observe",
    "spread_levels",
    "threshold_candidates",
]
