"""The paper's equations as pure functions of tensors.

Shapes use the letters W (cost weights), N (samples), L (exits, the final one included), K (classes), D (features), in
that order. Exits are 0-based here and 1-based in the paper. [Regol2024] is Regol, Chataoui, Coates: Jointly-Learned
Exit and Inference for a Dynamic Neural Network, ICLR 2024.
"""

from offramp.functional._leaving import exit_distribution
from offramp.functional._objective import gate_loss, gate_targets, imbalance_weights, weighted_loss
from offramp.functional._statistics import evidence

__all__ = ["evidence", "exit_distribution", "gate_loss", "gate_targets", "imbalance_weights", "weighted_loss"]
