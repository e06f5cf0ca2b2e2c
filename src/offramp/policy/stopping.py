"""Optimal stopping: leave where going on is estimated not to be worth its price."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from offramp.functional import EVIDENCE_SIZE
from offramp.policy.point import OperatingPoint
from offramp.policy.policy import POLICIES, Observation, Policy
from offramp.policy.tuning import Tuning

__all__ = ["BASIS_SIZE", "StoppingPolicy", "basis", "ridge"]

BASIS_SIZE = EVIDENCE_SIZE + 4

PRICES = torch.logspace(-1.7, 0.48, 24, dtype=torch.float64)
"""Price of the whole network, in correct answers: from 0.02 to 3."""

OFFSETS = torch.linspace(-0.1, 0.1, 25)
"""On advantages, in correct answers. Where accuracy grows faster and faster with cost, as with weak exits, prices reach
the two ends of that stretch alone, and offsets what lies between."""

BELIEVED = 0.5
"""Share of the confidence in a reward; the rest is whether the answer was right."""

RIDGE = 30.0
"""Samples' worth of belief that a number of the basis says nothing: harmless from some hundred samples on."""

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


def ridge(numbers: Tensor, targets: Tensor) -> Tensor:
    """Least squares with a penalty on everything but the first number, a constant.

    The others are standardised first, so that the penalty treats them alike; those that do not vary get 0.

    Args:
        numbers: `N x B`, the first 1.
        targets: `N x T`.

    Returns:
        `B x T` coefficients of the numbers as they came.

    Example:
        >>> line = torch.stack([torch.ones(10_000), torch.arange(10_000) / 1000], 1).double()
        >>> ridge(line, 3 + 2 * line[:, 1:]).round(decimals=1).T
        tensor([[3., 2.]], dtype=torch.float64)
    """
    mean, deviation = numbers[:, 1:].mean(0), numbers[:, 1:].std(0, correction=0)
    varies = deviation > 1e-6
    scale = torch.where(varies, 1 / deviation.clamp_min(1e-6), 0)
    standard = (numbers[:, 1:] - mean) * scale
    penalised = standard.T @ standard + RIDGE * torch.eye(len(scale), dtype=standard.dtype)
    slopes = torch.linalg.solve(penalised, standard.T @ (targets - targets.mean(0))) * scale[:, None]
    return torch.cat([targets.mean(0, keepdim=True) - mean[None] @ slopes, slopes])


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
    staying = MappingProxyType({"offset": -100.0})

    def initial_carry(self, zeros: Tensor) -> Any:
        """Log-odds of the confidence at the exit before, and the class predicted there, which is none yet."""
        return zeros, zeros.long() - 1

    def step(self, seen: Observation, carry: Any, parameters: Mapping[str, Tensor]) -> tuple[Tensor, Any]:
        """Leave where the advantage and the offset are not negative together."""
        advantage = torch.einsum("...b,...b->...", basis(seen, carry), parameters["weight"])
        return advantage + parameters["offset"] >= 0, (_log_odds(seen), seen.prediction)

    def candidates(self, tuning: Tuning) -> list[OperatingPoint]:
        r"""Offer rules that leave where the priced reward is estimated to be no less than that of going on.

        For a price $\lambda$ of compute and relative costs $\kappa$, a sample that leaves at exit l earns

        $$R^l = \tfrac12 [\hat y^l = y] + \tfrac12 c^l - \lambda\, \kappa^l$$

        The temperature-scaled confidence c expects to be right as often as the answer is, and is not a matter of luck:
        half of each keeps the noise down and what is wrong with c in sight. From the last exit backwards, $V^L = R^L$
        and

        $$a^l = \mathrm{E}[R^l - V^{l+1} \mid b^l], \qquad V^l = R^l \text{ where } a^l \ge 0, \text{ else } V^{l+1}$$

        with the expectation by ridge regression on the `basis` b. As [Longstaff2001] do, rewards that samples have
        earned are carried back, not estimates of them: errors do not add up. The reward now and the value of going on
        share basis and ridge, so that one regression of their difference is the difference of two.

        Returns:
            Points for 24 prices and 25 offsets, and the two where everybody leaves at once and nobody leaves early.
        """
        bases = self._bases(tuning)
        force = list(tuning.active)
        correct = tuning.correct[:, force].double()
        earned = torch.lerp(correct, tuning.confidence[:, force].double(), BELIEVED)
        rewards = earned[..., None] - tuning.relative_costs.double()[:, None] * PRICES  # N x A x prices
        value = rewards[:, -1]
        weights = torch.zeros(len(PRICES), len(bases), BASIS_SIZE, dtype=torch.float64)
        for place in reversed(range(len(bases))):
            now = rewards[:, place]
            coefficients = ridge(bases[place], now - value)
            value = torch.where(bases[place] @ coefficients >= 0, now, value)
            weights[:, place] = coefficients.T
        priced = [(weight, offset) for weight in weights for offset in OFFSETS]
        ends = [(torch.zeros_like(weights[0]), torch.tensor(offset)) for offset in (1.0, -1.0)]
        return [
            tuning.point(self.name, weight=tuning.per_exit(weight), offset=offset)
            for weight, offset in [*priced, *ends]
        ]

    def _bases(self, tuning: Tuning) -> list[Tensor]:
        """Return `N x B` numbers at each early exit in force, as the policy sees them."""
        carry: Any = self.initial_carry(torch.zeros(len(tuning.labels)))
        nothing = {"weight": torch.zeros(BASIS_SIZE), "offset": torch.tensor(0.0)}
        bases = []
        for exit in tuning.early:
            seen = tuning.observe(exit, self.reads)
            bases.append(basis(seen, carry).double())
            _, carry = self.step(seen, carry, nothing)
        return bases

    def mul_adds(self, num_classes: int) -> int:
        """Evidence and confidence as for gates and thresholds, the log-odds, and the products."""
        return 12 * num_classes + 3 + BASIS_SIZE


POLICIES.add(StoppingPolicy.name, StoppingPolicy())
