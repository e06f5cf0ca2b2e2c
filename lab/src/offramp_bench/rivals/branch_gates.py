"""Gates that each decide on their own score alone."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from torch import Tensor

from offramp.functional._statistics import EVIDENCE_SIZE
from offramp.policy import Observation, Policy
from offramp.policy._gates import gate_candidates, gate_logits
from offramp.policy._point import OperatingPoint
from offramp.policy._tuning import Tuning

__all__ = ["POLICY", "BranchGatePolicy"]


class BranchGatePolicy(Policy):
    r"""A policy that leaves at the first exit with $g^l \ge 1/2$.

    The rule of DiffBranch [Scardapane2020] and PTEENet [Lahiany2022]. In `GatePolicy`, the scores of earlier gates
    count too: on random scores the two rules differ for a quarter of the samples. Parameters: those of `GatePolicy`.

    Example:
        >>> import torch
        >>> observation = Observation(evidence=torch.tensor([[1.0, 0, 0, 0], [-1.0, 0, 0, 0]]))
        >>> zero = torch.tensor(0.0)
        >>> BranchGatePolicy().step(observation, (), {"weight": torch.ones(4), "bias": zero, "offset": zero})[0]
        tensor([ True, False])
    """

    name = "branch_gates"
    reads = frozenset({"evidence"})
    parameters = frozenset({"weight", "bias", "offset"})
    per_exit = frozenset({"weight", "bias"})
    vectors = MappingProxyType({"weight": EVIDENCE_SIZE})
    stay_values = MappingProxyType({"offset": -100.0})

    def initial_carry(self, zeros: Tensor) -> Any:
        """Return no carry."""
        return ()

    def step(self, observation: Observation, carry: Any, parameters: Mapping[str, Tensor]) -> tuple[Tensor, Any]:
        """Leave where the gate's logit is not negative: there its score is 1/2 or more."""
        return gate_logits(observation, parameters) >= 0, carry

    def candidates(self, tuning: Tuning) -> list[OperatingPoint]:
        """Return the gates of every cost weight, each with 65 offsets."""
        return gate_candidates(self.name, tuning)

    def mul_adds(self, num_classes: int) -> int:
        """Count softmax statistics and the gate, as `GatePolicy` does: 9 K + 6."""
        return 9 * num_classes + 6


POLICY = BranchGatePolicy()
"""The registered policy."""
