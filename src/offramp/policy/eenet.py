"""Learned scores of how likely each exit is right, each with a threshold of its own."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from offramp.policy.entropy import relative_entropy
from offramp.policy.policy import POLICIES, Observation, Policy

__all__ = ["EENetPolicy", "statistics"]


def statistics(probabilities: Tensor) -> Tensor:
    r"""What a score reads beside the probabilities: $[\max_k p_k,\ 1 - H(p)/\ln K]$.

    Args:
        probabilities: `... x K`.

    Returns:
        `... x 2` numbers.

    Example:
        >>> statistics(torch.tensor([0.5, 0.5]))
        tensor([0.5000, 0.0000])
    """
    return torch.stack([probabilities.amax(-1), 1 - relative_entropy(probabilities)], dim=-1)


class EENetPolicy(Policy):
    r"""Leave at the first exit whose score reaches that exit's own threshold.

    $$q^l = \mathrm{clamp}\bigl(v_l \cdot p^l + w_l \cdot [\max p^l,\ 1 - H(p^l)/\ln K,\ q^{l-1}] + b_l,\ 0,\ 1\bigr)$$

    The scores of EENet [Ilhan2024], of temperature-scaled probabilities. There a score reads those of all exits before;
    here that of the last one in force, 0 at the first, which itself has read the one before: all that a runtime has to
    carry is one number. Parameters, an exit: `class_weight` (K), `weight` (3), `bias`, `threshold`.

    Example:
        >>> seen = Observation(probabilities=torch.tensor([[0.5, 0.5], [0.9, 0.1]]))
        >>> parameters = {"class_weight": torch.zeros(2), "weight": torch.tensor([1.0, 0.0, 0.5])}
        >>> parameters |= {"bias": torch.tensor(0.0), "threshold": torch.tensor(0.7)}
        >>> EENetPolicy().step(seen, torch.zeros(2), parameters)
        (tensor([False,  True]), tensor([0.5000, 0.9000]))
    """

    name = "eenet"
    reads = frozenset({"probabilities"})
    parameters = frozenset({"class_weight", "weight", "bias", "threshold"})
    per_exit = parameters
    vectors = MappingProxyType({"weight": 3})
    per_class = frozenset({"class_weight"})

    def step(self, seen: Observation, carry: Any, parameters: Mapping[str, Tensor]) -> tuple[Tensor, Any]:
        """Leave where the score reaches the threshold; it is what the next exit remembers."""
        assert seen.probabilities is not None
        # A sum over classes as a product of matrices: the simulator has many points' weights for the same samples.
        by_class = torch.einsum("...k,...k->...", seen.probabilities, parameters["class_weight"])
        largest, certainty = statistics(seen.probabilities).unbind(-1)
        weight = parameters["weight"]
        by_statistics = largest * weight[..., 0] + certainty * weight[..., 1] + carry * weight[..., 2]
        score = (by_class + by_statistics + parameters["bias"]).clamp(0, 1)
        return score >= parameters["threshold"], score

    def mul_adds(self, num_classes: int) -> int:
        """A softmax, an entropy, and a product of each class, statistic and the score before."""
        return 6 * num_classes + 4


POLICIES.add(EENetPolicy.name, EENetPolicy())
