"""One threshold on entropy for all exits: how the first early-exit networks decide."""

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from offramp.policy import Observation, Policy
from offramp.policy._point import OperatingPoint
from offramp.policy._threshold import spread_levels
from offramp.policy._tuning import Tuning

__all__ = ["POLICY", "EntropyPolicy", "relative_entropy"]


def relative_entropy(probabilities: Tensor) -> Tensor:
    r"""Entropy as a share of the largest there can be: $-\sum_k p_k \ln p_k \,/ \ln K$.

    Args:
        probabilities: `... x K`, K >= 2.

    Returns:
        `...` shares: 0 where one class is certain, 1 where all are alike.

    Example:
        >>> relative_entropy(torch.tensor([[0.5, 0.5], [0.9, 0.1]]))
        tensor([1.0000, 0.4690])
    """
    entropy: Tensor = -torch.xlogy(probabilities, probabilities).sum(-1)
    return entropy / math.log(probabilities.shape[-1])


class EntropyPolicy(Policy):
    """Leave at the first exit whose temperature-scaled answer has a relative entropy of at most the limit.

    The rule of BranchyNet [Teerapittayanon2016] with one limit for all exits. Parameters: `limit`, one number a point;
    below 0 nobody leaves early.

    Example:
        >>> seen = Observation(probabilities=torch.tensor([[0.5, 0.5], [0.9, 0.1]]))
        >>> EntropyPolicy().step(seen, (), {"limit": torch.tensor(0.8)})[0]
        tensor([False,  True])
    """

    name = "entropy"
    reads = frozenset({"probabilities"})
    parameters = frozenset({"limit"})
    per_exit = frozenset()
    stay_values = MappingProxyType({"limit": -1.0})

    def initial_carry(self, zeros: Tensor) -> Any:
        """Return no carry."""
        return ()

    def step(self, seen: Observation, carry: Any, parameters: Mapping[str, Tensor]) -> tuple[Tensor, Any]:
        """Leave where entropy is within the limit; nothing is remembered."""
        assert seen.probabilities is not None
        return relative_entropy(seen.probabilities) <= parameters["limit"], carry

    def candidates(self, tuning: Tuning) -> list[OperatingPoint]:
        """Offer up to 512 limits, spread over the relative entropies of the tune samples."""
        scores = [relative_entropy(tuning.probabilities(exit)) for exit in tuning.early]
        levels = spread_levels(torch.stack(scores) if scores else tuning.temperatures.new_empty(0))
        never = levels.new_tensor([-1.0])
        return [tuning.point(self.name, limit=level) for level in torch.cat([never, levels])]

    def mul_adds(self, num_classes: int) -> int:
        """A softmax, and a logarithm and a product of each class."""
        return 5 * num_classes


POLICY = EntropyPolicy()
"""The policy, as it is registered."""
