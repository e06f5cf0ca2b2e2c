"""Optimal stopping by backward regression on the tune split."""

from typing import Any

import torch
from torch import Tensor

from offramp.frontier.candidates.tuning import CANDIDATES, Tuning
from offramp.policy import OperatingPoint, StoppingPolicy
from offramp.policy.stopping import BASIS_SIZE, basis

__all__ = ["ridge", "stopping_candidates"]

PRICES = torch.logspace(-1.7, 0.48, 24, dtype=torch.float64)
"""What the whole network costs, in correct answers: from .02 to 3."""

OFFSETS = torch.linspace(-0.1, 0.1, 25)
"""On advantages, in correct answers. Where accuracy grows faster and faster with cost, as with weak exits, prices reach
the two ends of that stretch alone, and offsets what lies between."""

BELIEVED = 0.5
"""Share of the confidence in a reward; the rest is whether the answer was right."""

RIDGE = 30.0
"""Samples' worth of belief that a number of the basis says nothing: harmless from some hundred samples on."""


def stopping_candidates(tuning: Tuning) -> list[OperatingPoint]:
    r"""Rules that leave where the priced reward is estimated to be no less than that of going on.

    For a price $\lambda$ of compute and relative costs $\kappa$, a sample that leaves at exit l earns

    $$R^l = \tfrac12 [\hat y^l = y] + \tfrac12 c^l - \lambda\, \kappa^l$$

    The temperature-scaled confidence c expects to be right as often as the answer is, and is not a matter of luck: half
    of each keeps the noise down and what is wrong with c in sight. From the last exit backwards, $V^L = R^L$ and

    $$a^l = \mathrm{E}[R^l - V^{l+1} \mid b^l], \qquad V^l = R^l \text{ where } a^l \ge 0, \text{ else } V^{l+1}$$

    with the expectation by ridge regression on the `basis` b. As [Longstaff2001] do, rewards that samples have earned
    are carried back, not estimates of them: errors do not add up. The reward now and the value of going on share basis
    and ridge, so that one regression of their difference is the difference of two.

    Args:
        tuning: What there is to look at.

    Returns:
        Points for 24 prices and 25 offsets, and the two where everybody leaves at once and nobody leaves early.
    """
    seen = _bases(tuning)
    force = list(tuning.active)
    correct = tuning.seen.correct[tuning.classifier][:, force].double()
    earned = torch.lerp(correct, tuning.seen.confidence[tuning.classifier][:, force].double(), BELIEVED)
    rewards = earned[..., None] - tuning.relative_costs.double()[:, None] * PRICES  # N x A x prices
    value = rewards[:, -1]
    weights = torch.zeros(len(PRICES), len(seen), BASIS_SIZE, dtype=torch.float64)
    for place in reversed(range(len(seen))):
        now = rewards[:, place]
        coefficients = ridge(seen[place], now - value)
        value = torch.where(seen[place] @ coefficients >= 0, now, value)
        weights[:, place] = coefficients.T
    priced = [(weight, offset) for weight in weights for offset in OFFSETS]
    ends = [(torch.zeros_like(weights[0]), torch.tensor(offset)) for offset in (1.0, -1.0)]
    return [
        tuning.point("stopping", weight=tuning.per_exit(weight), offset=offset) for weight, offset in [*priced, *ends]
    ]


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


def _bases(tuning: Tuning) -> list[Tensor]:
    """`N x B` numbers at each early exit in force, as the policy sees them."""
    policy = StoppingPolicy()
    carry: Any = policy.initial_carry(torch.zeros(len(tuning.seen.labels)))
    nothing = {"weight": torch.zeros(BASIS_SIZE), "offset": torch.tensor(0.0)}
    found = []
    for exit in tuning.early:
        seen = tuning.observe(exit, policy.reads)
        found.append(basis(seen, carry).double())
        _, carry = policy.step(seen, carry, nothing)
    return found


CANDIDATES.add("stopping", stopping_candidates)
