"""The paper's gates: deterministic in closed form, or sampled."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from offramp.functional import EVIDENCE_SIZE
from offramp.policy.point import OperatingPoint
from offramp.policy.policy import POLICIES, Observation, Policy
from offramp.policy.tuning import Tuning

__all__ = ["GatePolicy", "SampledGatePolicy", "TrainedGates", "gate_candidates", "gate_logits"]


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


def gate_candidates(policy: str, tuning: Tuning) -> list[OperatingPoint]:
    """Offer the trained gates of every cost weight, with offsets from -8 to 8 that fill the frontier between them.

    Args:
        policy: Name of the policy that reads the gates.
        tuning: What there is to look at.
    """
    weight, bias = tuning.gates
    # The final exit has no gate; its row is there so that exits index the parameters directly.
    weight = torch.cat([weight, torch.zeros_like(weight[:, :1])], dim=1)
    bias = torch.cat([bias, torch.zeros_like(bias[:, :1])], dim=1)
    shared = len(tuning.temperatures) == 1
    points = []
    for index in range(len(weight)):
        classifier = 0 if shared else index
        for offset in torch.linspace(-8, 8, 65):
            parameters = {"weight": weight[index], "bias": bias[index], "offset": offset}
            points.append(
                OperatingPoint(policy, parameters, tuning.active, tuning.temperatures[classifier], classifier)
            )
    return points


class TrainedGates(Policy):
    """A policy that reads the trained gates; the running sum of their scores is the carry.

    Parameters: `weight` (4 an exit) and `bias` (1 an exit) of the gates, and `offset`, one number a point, added to
    every gate's logit: positive offsets leave earlier. Offsets fill the frontier between cost weights.
    """

    parameters = frozenset({"weight", "bias", "offset"})
    per_exit = frozenset({"weight", "bias"})
    vectors = MappingProxyType({"weight": EVIDENCE_SIZE})
    counts_earlier = True
    staying = MappingProxyType({"offset": -100.0})

    def candidates(self, tuning: Tuning) -> list[OperatingPoint]:
        """Offer the gates of every cost weight, with 65 offsets each."""
        return gate_candidates(self.name, tuning)

    def mul_adds(self, num_classes: int) -> int:
        """The paper's count, softmax statistics and the gate: 9 K + 6."""
        return 9 * num_classes + 6


class GatePolicy(TrainedGates):
    r"""Leave at the first exit with $2 g^l + \sum_{j<l} g^j \ge 1$, the sum over active exits alone.

    `functional.leaves` as a step.

    Example:
        >>> seen = Observation(evidence=torch.zeros(1, 4))
        >>> weight, bias = torch.zeros(4), torch.tensor(0.0)
        >>> leave, carry = GatePolicy().step(seen, 0.0, {"weight": weight, "bias": bias, "offset": torch.tensor(-1.0)})
        >>> leave, carry
        (tensor([False]), tensor([0.2689]))
    """

    name = "gates"
    reads = frozenset({"evidence"})

    def step(self, seen: Observation, carry: Any, parameters: Mapping[str, Tensor]) -> tuple[Tensor, Any]:
        """Leave where twice the score and the sum of the earlier ones reach 1."""
        scores = gate_logits(seen, parameters).sigmoid()
        return 2 * scores + carry >= 1, carry + scores


class SampledGatePolicy(TrainedGates):
    r"""Leave with probability $P(E^l)$, as the paper's model says before it settles for the deterministic rule.

    $P(E^l) = \min(1,\ g^l / (1 - \sum_{j<l} g^j))$.

    Example:
        >>> seen = Observation(evidence=torch.zeros(2, 4), noise=torch.tensor([0.1, 0.9]))
        >>> zero = torch.tensor(0.0)
        >>> SampledGatePolicy().step(seen, 0.0, {"weight": torch.zeros(4), "bias": zero, "offset": zero})[0]
        tensor([ True, False])
    """

    name = "sampled_gates"
    reads = frozenset({"evidence", "noise"})

    def step(self, seen: Observation, carry: Any, parameters: Mapping[str, Tensor]) -> tuple[Tensor, Any]:
        """Leave where the draw falls below the probability of leaving."""
        assert seen.noise is not None
        scores = gate_logits(seen, parameters).sigmoid()
        return seen.noise * (1 - torch.as_tensor(carry)).clamp_min(0) < scores, carry + scores


POLICIES.add(GatePolicy.name, GatePolicy())
POLICIES.add(SampledGatePolicy.name, SampledGatePolicy())
