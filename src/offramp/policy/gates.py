"""The paper's gates: deterministic in closed form, or sampled."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from offramp.functional import EVIDENCE_SIZE
from offramp.policy.policy import POLICIES, Observation, Policy

__all__ = ["GatePolicy", "SampledGatePolicy", "gate_logits"]


def gate_logits(seen: Observation, parameters: Mapping[str, Tensor]) -> Tensor:
    r"""What a gate makes of the evidence, before the sigmoid: $w \cdot m + b$, and the point's offset.

    Args:
        seen: With `... x n x 4` evidence.
        parameters: `weight`, `bias` and `offset` of the gate, broadcastable against the samples.

    Returns:
        `... x n` logits.

    Example:
        >>> parameters = {"weight": torch.ones(4), "bias": torch.tensor(1.0), "offset": torch.tensor(-2.0)}
        >>> gate_logits(Observation(evidence=torch.full((1, 4), 0.5)), parameters)
        tensor([1.])
    """
    assert seen.evidence is not None
    return (seen.evidence * parameters["weight"]).sum(-1) + parameters["bias"] + parameters["offset"]


class GatePolicy(Policy):
    r"""Leave at the first exit with $2 g^l + \sum_{j<l} g^j \ge 1$, the sum over active exits alone.

    `functional.leaves` as a step: the running sum is the carry. Parameters: `weight` (4 an exit) and `bias` (1 an exit)
    of the gates, and `offset`, one number a point, added to every gate's logit: positive offsets leave earlier. Offsets
    fill the frontier between cost weights.

    Example:
        >>> seen = Observation(evidence=torch.zeros(1, 4))
        >>> weight, bias = torch.zeros(4), torch.tensor(0.0)
        >>> leave, carry = GatePolicy().step(seen, 0.0, {"weight": weight, "bias": bias, "offset": torch.tensor(-1.0)})
        >>> leave, carry
        (tensor([False]), tensor([0.2689]))
    """

    name = "gates"
    reads = frozenset({"evidence"})
    parameters = frozenset({"weight", "bias", "offset"})
    per_exit = frozenset({"weight", "bias"})
    vectors = MappingProxyType({"weight": EVIDENCE_SIZE})

    def step(self, seen: Observation, carry: Any, parameters: Mapping[str, Tensor]) -> tuple[Tensor, Any]:
        """Leave where twice the score and the sum of the earlier ones reach 1."""
        scores = gate_logits(seen, parameters).sigmoid()
        return 2 * scores + carry >= 1, carry + scores

    def mul_adds(self, num_classes: int) -> int:
        """The paper's count, softmax statistics and the gate: 9 K + 6."""
        return 9 * num_classes + 6


class SampledGatePolicy(Policy):
    r"""Leave with probability $P(E^l)$, as the paper's model says before it settles for the deterministic rule.

    $P(E^l) = \min(1,\ g^l / (1 - \sum_{j<l} g^j))$; the same parameters and carry as `GatePolicy`.

    Example:
        >>> seen = Observation(evidence=torch.zeros(2, 4), noise=torch.tensor([0.1, 0.9]))
        >>> zero = torch.tensor(0.0)
        >>> SampledGatePolicy().step(seen, 0.0, {"weight": torch.zeros(4), "bias": zero, "offset": zero})[0]
        tensor([ True, False])
    """

    name = "sampled_gates"
    reads = frozenset({"evidence", "noise"})
    parameters = frozenset({"weight", "bias", "offset"})
    per_exit = frozenset({"weight", "bias"})
    vectors = MappingProxyType({"weight": EVIDENCE_SIZE})

    def step(self, seen: Observation, carry: Any, parameters: Mapping[str, Tensor]) -> tuple[Tensor, Any]:
        """Leave where the draw falls below the probability of leaving."""
        assert seen.noise is not None
        scores = gate_logits(seen, parameters).sigmoid()
        return seen.noise * (1 - torch.as_tensor(carry)).clamp_min(0) < scores, carry + scores

    def mul_adds(self, num_classes: int) -> int:
        """As the deterministic gates."""
        return 9 * num_classes + 6


POLICIES.add(GatePolicy.name, GatePolicy())
POLICIES.add(SampledGatePolicy.name, SampledGatePolicy())
