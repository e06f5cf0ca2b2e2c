"""The paper's gates: the deterministic rule in closed form, and sampling."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from offramp.functional._statistics import EVIDENCE_SIZE
from offramp.policy._observation import Observation
from offramp.policy._point import OperatingPoint
from offramp.policy._policy import POLICIES, Policy
from offramp.policy._tuning import Tuning

__all__ = ["GatePolicy", "SampledGatePolicy", "TrainedGates", "gate_candidates", "gate_logits"]


def gate_logits(observation: Observation, parameters: Mapping[str, Tensor]) -> Tensor:
    r"""Return the logits of a gate: $w \cdot m + b$ plus the point's offset.

    Args:
        observation: With `... x n x 4` evidence $m$.
        parameters: `weight`, `bias` and `offset` of the gate, broadcastable against the samples.

    Returns:
        `... x n` logits.
    """
    assert observation.evidence is not None
    return (observation.evidence * parameters["weight"]).sum(-1) + parameters["bias"] + parameters["offset"]


def gate_candidates(policy: str, tuning: Tuning) -> list[OperatingPoint]:
    """Return the trained gates of every cost weight, each with 65 offsets from -8 to 8.

    Args:
        policy: Name of the policy that uses the gates.
        tuning: The tune split, with trained gates.
    """
    weight, bias = tuning.gates
    # The final exit has no gate; a row of zeros lets exits index the parameters directly.
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
    """A policy that uses the trained gates; its carry is the running sum of their scores.

    Parameters: `weight` (4 numbers per exit) and `bias` (one per exit) of the gates, and `offset`, one number per point
    that is added to every gate's logit. Positive offsets leave earlier; offsets fill the frontier between cost weights.
    """

    parameters = frozenset({"weight", "bias", "offset"})
    per_exit = frozenset({"weight", "bias"})
    vectors = MappingProxyType({"weight": EVIDENCE_SIZE})
    counts_earlier = True
    stay_values = MappingProxyType({"offset": -100.0})

    def candidates(self, tuning: Tuning) -> list[OperatingPoint]:
        """Return the gates of every cost weight, each with 65 offsets."""
        return gate_candidates(self.name, tuning)

    def mul_adds(self, num_classes: int) -> int:
        """Count softmax statistics and the gate as the paper does: 9 K + 6."""
        return 9 * num_classes + 6


class GatePolicy(TrainedGates):
    r"""A policy that leaves at the first exit with $2 g^l + \sum_{j<l} g^j \ge 1$, summed over active exits.

    The rule of `functional.should_leave`, one exit at a time.

    Example:
        >>> observation = Observation(evidence=torch.zeros(1, 4))
        >>> parameters = {"weight": torch.zeros(4), "bias": torch.tensor(0.0), "offset": torch.tensor(-1.0)}
        >>> GatePolicy().step(observation, 0.0, parameters)
        (tensor([False]), tensor([0.2689]))
    """

    name = "gates"
    reads = frozenset({"evidence"})

    def step(self, observation: Observation, carry: Any, parameters: Mapping[str, Tensor]) -> tuple[Tensor, Any]:
        """Leave where twice the score plus the sum of the earlier scores reaches 1."""
        scores = gate_logits(observation, parameters).sigmoid()
        return 2 * scores + carry >= 1, carry + scores


class SampledGatePolicy(TrainedGates):
    r"""A policy that leaves with probability $P(E^l) = \min(1,\ g^l / (1 - \sum_{j<l} g^j))$.

    Eq. 4 and 8 of [Regol2024], before the paper replaces sampling by the deterministic rule.

    Example:
        >>> observation = Observation(evidence=torch.zeros(2, 4), noise=torch.tensor([0.1, 0.9]))
        >>> zero = torch.tensor(0.0)
        >>> SampledGatePolicy().step(observation, 0.0, {"weight": torch.zeros(4), "bias": zero, "offset": zero})[0]
        tensor([ True, False])
    """

    name = "sampled_gates"
    reads = frozenset({"evidence", "noise"})

    def step(self, observation: Observation, carry: Any, parameters: Mapping[str, Tensor]) -> tuple[Tensor, Any]:
        """Leave where the uniform draw is below the probability of leaving."""
        assert observation.noise is not None
        scores = gate_logits(observation, parameters).sigmoid()
        return observation.noise * (1 - torch.as_tensor(carry)).clamp_min(0) < scores, carry + scores


POLICIES.add(GatePolicy.name, GatePolicy())
POLICIES.add(SampledGatePolicy.name, SampledGatePolicy())
