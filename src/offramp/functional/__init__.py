"""The paper's equations as pure functions of tensors.

Shapes use the letters W (cost weights), N (samples), L (exits, the final one included), K (classes), D (features), in
that order. Exits are 0-based here and 1-based in the paper. [Regol2024] is Regol, Chataoui, Coates: Jointly-Learned
Exit and Inference for a Dynamic Neural Network, ICLR 2024.
"""

from offramp.functional.evidence import EVIDENCE_SIZE, evidence, log_probabilities
from offramp.functional.exit_distribution import exit_distribution, exit_if_reached, first_exit, leaves
from offramp.functional.gate_targets import GateTarget, best_exit, gate_targets, imbalance_weights, priced_losses
from offramp.functional.losses import (
    ClassifierLoss,
    cross_entropies,
    full_loss,
    gate_loss,
    plain_loss,
    rescaled_loss,
    weighted_loss,
)

__all__ = [
    "EVIDENCE_SIZE",
    "ClassifierLoss",
    "GateTarget",
    "best_exit",
    "cross_entropies",
    "evidence",
    "exit_distribution",
    "exit_if_reached",
    "first_exit",
    "full_loss",
    "gate_loss",
    "gate_targets",
    "imbalance_weights",
    "leaves",
    "log_probabilities",
    "plain_loss",
    "priced_losses",
    "rescaled_loss",
    "weighted_loss",
]
