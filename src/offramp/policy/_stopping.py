"""Optimal stopping: leave where going on is estimated not to be worth its price."""

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

__all__ = ["BASIS_SIZE", "StoppingPolicy", "basis", "ridge"]

BASIS_SIZE = EVIDENCE_SIZE + 4

PRICES = torch.logspace(-1.7, 0.48, 24, dtype=torch.float64)
"""Prices of the full network, in correct answers: from 0.02 to 3."""

OFFSETS = torch.linspace(-0.1, 0.1, 25)
"""Offsets of the advantage, in correct answers. Where accuracy is convex in cost, as with weak exits, prices reach only
the two ends of the convex stretch; offsets reach the points between."""

CONFIDENCE_SHARE = 0.5
"""Weight of the confidence in a reward; the rest is 1 or 0, whether the answer was right."""

RIDGE = 30.0
"""The ridge penalty, in samples: negligible from some hundred samples on."""

CONFIDENCE_MARGIN = 1e-4
"""Confidences are clamped this far from 0 and 1: a tune split of some thousand samples cannot tell them apart."""


def basis(observation: Observation, carry: Any) -> Tensor:
    r"""Return the regressors of the advantage.

    $$\bigl[\,1,\ m,\ \mathrm{logit}\, c^l,\ \mathrm{logit}\, c^{l-1},\ [\hat y^l = \hat y^{l-1}]\,\bigr]$$

    with the evidence $m$ of the raw logits, the temperature-scaled confidence $c$ and the predicted class $\hat y$; the
    last two are 0 at the first active exit.

    Args:
        observation: Evidence, confidence and prediction of the samples.
        carry: Log-odds and prediction at the previous active exit.

    Returns:
        `... x n x 8` numbers.
    """
    assert observation.evidence is not None
    assert observation.prediction is not None
    previous_odds, previous_prediction = carry
    odds = _log_odds(observation)
    agrees = (observation.prediction == previous_prediction).to(odds.dtype)
    numbers = [torch.ones_like(odds), *observation.evidence.unbind(-1), odds, previous_odds, agrees]
    return torch.stack([number.expand(agrees.shape) for number in numbers], dim=-1)


def _log_odds(observation: Observation) -> Tensor:
    assert observation.confidence is not None
    return observation.confidence.logit(eps=CONFIDENCE_MARGIN)


def ridge(regressors: Tensor, targets: Tensor) -> Tensor:
    """Fit a ridge regression on standardised regressors; the constant is not penalised.

    Args:
        regressors: `N x B`, the first column 1.
        targets: `N x T`.

    Returns:
        `B x T` coefficients of the original regressors; 0 for those that do not vary.
    """
    mean, deviation = regressors[:, 1:].mean(0), regressors[:, 1:].std(0, correction=0)
    varies = deviation > 1e-6
    scale = torch.where(varies, 1 / deviation.clamp_min(1e-6), 0)
    standard = (regressors[:, 1:] - mean) * scale
    penalised = standard.T @ standard + RIDGE * torch.eye(len(scale), dtype=standard.dtype)
    slopes = torch.linalg.solve(penalised, standard.T @ (targets - targets.mean(0))) * scale[:, None]
    return torch.cat([targets.mean(0, keepdim=True) - mean[None] @ slopes, slopes])


class StoppingPolicy(Policy):
    r"""A policy that leaves at the first exit where the estimated advantage, $w_l \cdot b^l$, plus an offset reaches 0.

    The advantage is the reward of leaving here minus the value of going on, both with compute priced in: the rule of
    post-hoc deferral and optimal stopping. It is linear in the `basis` b of this exit and the previous active one.
    Parameters: `weight` (8 numbers per exit) and `offset`, one number per point; positive offsets leave earlier.

    Example:
        >>> policy = StoppingPolicy()
        >>> observation = Observation(torch.tensor([0.9]), torch.zeros(1, 4), prediction=torch.tensor([3]))
        >>> weight = torch.tensor([-2.0, 0, 0, 0, 0, 1, 0, 0])  # going on is worth odds of e^2
        >>> parameters = {"weight": weight, "offset": torch.tensor(0.0)}
        >>> policy.step(observation, policy.initial_carry(torch.zeros(1)), parameters)[0]
        tensor([True])
    """

    name = "stopping"
    reads = frozenset({"confidence", "evidence", "prediction"})
    parameters = frozenset({"weight", "offset"})
    per_exit = frozenset({"weight"})
    vectors = MappingProxyType({"weight": BASIS_SIZE})
    stay_values = MappingProxyType({"offset": -100.0})

    def initial_carry(self, zeros: Tensor) -> Any:
        """Return log-odds 0 and class -1, which no exit predicts."""
        return zeros, zeros.long() - 1

    def step(self, observation: Observation, carry: Any, parameters: Mapping[str, Tensor]) -> tuple[Tensor, Any]:
        """Leave where advantage plus offset is at least 0."""
        advantage = torch.einsum("...b,...b->...", basis(observation, carry), parameters["weight"])
        return advantage + parameters["offset"] >= 0, (_log_odds(observation), observation.prediction)

    def candidates(self, tuning: Tuning) -> list[OperatingPoint]:
        r"""Fit the advantages by backward induction, for 24 prices of compute, and offer 25 offsets of each.

        For a price $\lambda$ of compute and relative costs $\kappa$, a sample that leaves at exit l earns

        $$R^l = \tfrac12 [\hat y^l = y] + \tfrac12 c^l - \lambda\, \kappa^l$$

        The temperature-scaled confidence c has the same mean as being right, and less noise; half of each limits both
        the noise and the effect of a miscalibrated c. From the last exit backwards, $V^L = R^L$ and

        $$a^l = \mathrm{E}[R^l - V^{l+1} \mid b^l], \qquad V^l = R^l \text{ where } a^l \ge 0, \text{ else } V^{l+1}$$

        with the expectation by ridge regression on the `basis` b. As in [Longstaff2001], the rewards that samples earn
        are carried back, not estimates of them, so that errors do not add up.

        Returns:
            600 points, and two more: all samples leave at the first exit, and no sample leaves early.
        """
        bases = self._bases(tuning)
        active = list(tuning.active)
        correct = tuning.correct[:, active].double()
        gains = torch.lerp(correct, tuning.confidence[:, active].double(), CONFIDENCE_SHARE)
        rewards = gains[..., None] - tuning.relative_costs.double()[:, None] * PRICES  # N x A x prices
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
        """Return the `N x B` basis at each early active exit."""
        carry: Any = self.initial_carry(torch.zeros(len(tuning.labels)))
        zeros = {"weight": torch.zeros(BASIS_SIZE), "offset": torch.tensor(0.0)}
        bases = []
        for exit in tuning.early:
            observation = tuning.observe(exit, self.reads)
            bases.append(basis(observation, carry).double())
            _, carry = self.step(observation, carry, zeros)
        return bases

    def mul_adds(self, num_classes: int) -> int:
        """Count evidence, confidence, log-odds and the product with the weights."""
        return 12 * num_classes + 3 + BASIS_SIZE


POLICIES.add(StoppingPolicy.name, StoppingPolicy())
