"""BEEM: exits are experts, whose weighted confidences add up while they agree."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from offramp.policy import Observation, Policy
from offramp.policy._point import OperatingPoint
from offramp.policy._threshold import spread_levels
from offramp.policy._tuning import Tuning

__all__ = ["POLICY", "BeemPolicy"]

NEVER = 1e6
"""A threshold that no sum of weighted confidences reaches: each term is at most 1."""


class BeemPolicy(Policy):
    r"""A policy that leaves when the weighted confidence of exits that agree in a row reaches a threshold.

    $$S_l = w_l c^l + \begin{cases} S_{l-1} & \hat y^l = \hat y^{l-1} \\ 0 & \text{else} \end{cases},
    \qquad \text{leave at the first } l \text{ with } S_l \ge \alpha$$

    over the active exits, with c the temperature-scaled confidence. The rule of BEEM [Bajpai2025]; the answer is that
    of the exit. Parameters: `weight`, one number per exit, and `threshold` ($\alpha$), one number per point. Only
    ratios of weights matter, as the threshold is swept. The paper derives the threshold from the error rates of the
    exits, which gives one point; a frontier needs many, so it is swept here.

    Example:
        >>> policy, parameters = BeemPolicy(), {"weight": torch.tensor(0.5), "threshold": torch.tensor(0.7)}
        >>> carry = policy.initial_carry(torch.zeros(2))
        >>> sure = torch.tensor([0.8, 0.8])
        >>> _, carry = policy.step(Observation(sure, prediction=torch.tensor([3, 4])), carry, parameters)
        >>> policy.step(Observation(sure, prediction=torch.tensor([3, 5])), carry, parameters)[0]
        tensor([ True, False])
    """

    name = "beem"
    reads = frozenset({"confidence", "prediction"})
    parameters = frozenset({"weight", "threshold"})
    per_exit = frozenset({"weight"})
    counts_earlier = True
    stay_values = MappingProxyType({"threshold": NEVER})

    def initial_carry(self, zeros: Tensor) -> Any:
        """Return class -1, which no exit predicts, and a sum of 0."""
        return zeros.long() - 1, zeros

    def step(self, observation: Observation, carry: Any, parameters: Mapping[str, Tensor]) -> tuple[Tensor, Any]:
        """Leave where the sum reaches the threshold."""
        assert observation.confidence is not None
        assert observation.prediction is not None
        last, total = carry
        total = torch.where(observation.prediction == last, total, 0) + parameters["weight"] * observation.confidence
        return total >= parameters["threshold"], (observation.prediction, total)

    def candidates(self, tuning: Tuning) -> list[OperatingPoint]:
        """Return up to 512 thresholds on the tune samples' sums, for each of the two weightings of [Bajpai2025].

        Exits are weighted by their accuracy on the tune split (BEEM-A) or by their relative cost (BEEM-C).

        Returns:
            Points from "all samples leave at the first exit" to "no sample leaves early".
        """
        early = list(tuning.early)
        accuracy = tuning.correct[:, early].double().mean(0)
        return [
            tuning.point(self.name, weight=weight, threshold=threshold)
            for weight in map(tuning.per_exit, (accuracy, tuning.relative_costs[:-1]))
            for threshold in self._thresholds(tuning, weight)
        ]

    def _thresholds(self, tuning: Tuning, weight: Tensor) -> Tensor:
        """Return 0, quantiles of the sums over the early active exits, and a threshold that none reaches."""
        carry: Any = self.initial_carry(torch.zeros(len(tuning.labels)))
        ends = torch.tensor([0.0, NEVER])
        sums = [ends.new_empty(0)]
        for exit in tuning.early:
            here = {"weight": weight[exit], "threshold": ends[1]}
            _, carry = self.step(tuning.observe(exit, self.reads), carry, here)
            sums.append(carry[1])
        return torch.cat([ends[:1], spread_levels(torch.cat(sums)), ends[1:]])

    def mul_adds(self, num_classes: int) -> int:
        """Count a softmax and one product; comparisons are not counted."""
        return 3 * num_classes + 1


POLICY = BeemPolicy()
"""The registered policy."""
