"""One threshold on entropy for all exits: the rule of the first early-exit networks."""

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
    r"""Return the entropy as a share of the largest possible one: $-\sum_k p_k \ln p_k \,/ \ln K$.

    Args:
        probabilities: `... x K`, K >= 2.

    Returns:
        `...` shares: 0 where one class is certain, 1 where all are equally likely.

    Example:
        >>> relative_entropy(torch.tensor([[0.5, 0.5], [0.9, 0.1]]))
        tensor([1.0000, 0.4690])
    """
    entropy: Tensor = -torch.xlogy(probabilities, probabilities).sum(-1)
    return entropy / math.log(probabilities.shape[-1])


class EntropyPolicy(Policy):
    """A policy that leaves at the first exit whose temperature-scaled answer has at most the limit in relative entropy.

    The rule of BranchyNet [Teerapittayanon2016] with one limit for all exits. Parameters: `limit`, one number per
    point; below 0 no sample leaves early.

    Example:
        >>> observation = Observation(probabilities=torch.tensor([[0.5, 0.5], [0.9, 0.1]]))
        >>> EntropyPolicy().step(observation, (), {"limit": torch.tensor(0.8)})[0]
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

    def step(self, observation: Observation, carry: Any, parameters: Mapping[str, Tensor]) -> tuple[Tensor, Any]:
        """Leave where the entropy is at most the limit."""
        assert observation.probabilities is not None
        return relative_entropy(observation.probabilities) <= parameters["limit"], carry

    def candidates(self, tuning: Tuning) -> list[OperatingPoint]:
        """Return up to 512 limits, at quantiles of the relative entropies of the tune samples."""
        scores = [relative_entropy(tuning.probabilities(exit)) for exit in tuning.early]
        levels = spread_levels(torch.stack(scores) if scores else tuning.temperatures.new_empty(0))
        never = levels.new_tensor([-1.0])
        return [tuning.point(self.name, limit=level) for level in torch.cat([never, levels])]

    def mul_adds(self, num_classes: int) -> int:
        """Count a softmax, and a logarithm and a product per class."""
        return 5 * num_classes


POLICY = EntropyPolicy()
"""The registered policy."""
