"""Optimal stopping: leave where going on is estimated not to be worth its price."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from offramp.functional import EVIDENCE_SIZE
from offramp.policy.policy import POLICIES, Observation, Policy

__all__ = ["BASIS_SIZE", "StoppingPolicy", "basis"]

BASIS_SIZE = EVIDENCE_SIZE + 4

SUREST = 1e-4
"""Confidences nearer to 0 or 1 count as this near: a tune split of some thousands says nothing beyond."""


def basis(seen: Observation, carry: Any) -> Tensor:
    r"""What an advantage is linear in.

    $$\bigl[\,1,\ m,\ \mathrm{logit}\, c^l,\ \mathrm{logit}\, c^{l-1},\ [\hat y^l = \hat y^{l-1}]\,\bigr]$$

    with the evidence $m$ of the raw logits, the temperature-scaled confidence $c$ and the predicted class $\hat y$; the
    last two are 0 at the first exit in force.

    Args:
        seen: Evidence, confidence and prediction of the samples.
        carry: Log-odds and prediction at the exit in force before.

    Returns:
        `... x n x 8` numbers.

    Example:
        >>> seen = Observation(torch.tensor([0.5]), torch.zeros(1, 4), prediction=torch.tensor([3]))
        >>> basis(seen, (torch.tensor([2.0]), torch.tensor([3])))
        tensor([[1., 0., 0., 0., 0., 0., 2., 1.]])
    """
    assert seen.evidence is not None
    assert seen.prediction is not None
    before, last = carry
    odds = _log_odds(seen)
    agrees = (seen.prediction == last).to(odds.dtype)
    numbers = [torch.ones_like(odds), *seen.evidence.unbind(-1), odds, before, agrees]
    return torch.stack([number.expand(agrees.shape) for number in numbers], dim=-1)


def _log_odds(seen: Observation) -> Tensor:
    assert seen.confidence is not None
    return seen.confidence.logit(eps=SUREST)


class StoppingPolicy(Policy):
    r"""Leave at the first exit where the advantage of doing so, $a^l = w_l \cdot b^l$, is $-\mathrm{offset}$ or more.

    The advantage estimates the reward of leaving here less the value of going on, both priced: the rule that post-hoc
    deferral and optimal stopping share. It is linear in a fixed `basis` of what is seen here and at the exit in force
    before. Parameters: `weight` (8 an exit), and `offset`, one number a point: positive offsets leave earlier.

    Example:
        >>> policy = StoppingPolicy()
        >>> seen = Observation(torch.tensor([0.9]), torch.zeros(1, 4), prediction=torch.tensor([3]))
        >>> weight = torch.tensor([-2.0, 0, 0, 0, 0, 1, 0, 0])  # going on is worth odds of e^2
        >>> policy.step(seen, policy.initial_carry(torch.zeros(1)), {"weight": weight, "offset": torch.tensor(0.0)})[0]
        tensor([True])
    """

    name = "stopping"
    reads = frozenset({"confidence", "evidence", "prediction"})
    parameters = frozenset({"weight", "offset"})
    per_exit = frozenset({"weight"})
    vectors = MappingProxyType({"weight": BASIS_SIZE})

    def initial_carry(self, zeros: Tensor) -> Any:
        """Log-odds of the confidence at the exit before, and the class predicted there, which is none yet."""
        return zeros, zeros.long() - 1

    def step(self, seen: Observation, carry: Any, parameters: Mapping[str, Tensor]) -> tuple[Tensor, Any]:
        """Leave where the advantage and the offset are not negative together."""
        advantage = torch.einsum("...b,...b->...", basis(seen, carry), parameters["weight"])
        return advantage + parameters["offset"] >= 0, (_log_odds(seen), seen.prediction)

    def mul_adds(self, num_classes: int) -> int:
        """Evidence and confidence as for gates and thresholds, the log-odds, and the products."""
        return 12 * num_classes + 3 + BASIS_SIZE


POLICIES.add(StoppingPolicy.name, StoppingPolicy())
