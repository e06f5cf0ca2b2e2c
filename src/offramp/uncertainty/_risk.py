r"""Risk control by fixed-sequence testing: the cheapest candidate whose mean loss is bounded with a confidence.

Candidates are tested from the safest to the cheapest, in an order fixed on the tune split; testing stops at the first
candidate that fails on the calibrate split. A guarantee can only fail through the first bad candidate of the sequence,
which passes with probability at most $\delta$: testing many candidates needs no correction. [Angelopoulos2021] is
Angelopoulos, Bates, Candes, Jordan, Lei: Learn then Test, 2021; [Jazbec2024] is Jazbec and others: Fast yet Safe,
NeurIPS 2024, which defines the losses.
"""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from offramp.uncertainty._bounds import (
    MAX_STAKE,
    betting_p_values,
    binomial_p_values,
    fixed_bets,
    log_wealth,
    predictable_bets,
)

__all__ = [
    "LOSSES",
    "RiskBound",
    "RiskLoss",
    "last_passing",
    "order_candidates",
    "passes",
    "samples_needed",
    "smooth_variances",
]

RiskBound = Literal["ltt", "wsr"]
"""The test of a candidate: Learn then Test, or the bound of Waudby-Smith and Ramdas."""

_AT_ONCE = 16  # candidates tested together: results after the first failure are not needed

_MOST_SAMPLES = 10**9  # larger numbers of samples are not reported


@dataclass(frozen=True)
class RiskLoss:
    """A loss per sample against the full network, and its scaling to [0, 1].

    Example:
        >>> LOSSES["accuracy"].to_unit(torch.tensor([-1, 0, 1])).tolist()
        [0.0, 0.5, 1.0]
    """

    name: str
    low: float
    """Its smallest value."""
    high: float
    """Its largest value."""
    labelled: bool
    """True if it needs true classes."""
    binary: bool
    """True if it is always `low` or `high`."""

    def to_unit(self, values: Tensor) -> Tensor:
        """Scale losses in [low, high] to [0, 1]."""
        return values.double().sub(self.low).div_(self.high - self.low)

    def limit_to_unit(self, limit: float) -> float:
        """Scale one number in [low, high] to [0, 1]."""
        return (limit - self.low) / (self.high - self.low)


LOSSES = {
    loss.name: loss
    for loss in (
        RiskLoss("accuracy", -1, 1, labelled=True, binary=False),
        RiskLoss("brier", -2, 2, labelled=True, binary=False),
        RiskLoss("disagreement", 0, 1, labelled=False, binary=True),
    )
}
"""The losses of [Jazbec2024], by name. Accuracy: 1 or 0 for the full network being right, minus 1 or 0 for the point.
Brier: the point's Brier score minus the full network's. Disagreement: 1 where the point answers otherwise than the full
network; its mean is at least that of accuracy, so that a guarantee of disagreement is one of accuracy too."""


def order_candidates(
    costs: Tensor,
    means: Tensor,
    variances: Tensor,
    loss: RiskLoss,
    *,
    max_loss: float,
    samples: int,
    confidence: float,
) -> Tensor:
    r"""Return the candidates to test, the most expensive first, chosen on the tune split.

    A candidate is left out if it is expected to fail and less likely to pass than a cheaper one: it could only stop the
    sequence. The expected log wealth of fixed bets is $n (\lambda d - \lambda^2 (\sigma^2 + d^2) / 2)$, with
    $d = \varepsilon - \mu$ on [0, 1]; a candidate is expected to pass from $\ln(1/\delta)$ on.

    Args:
        costs: `P` costs on tune.
        means: `P` mean losses on tune, in the loss's own range.
        variances: `P` variances on tune, on [0, 1], from `smooth_variances`.
        loss: The loss.
        max_loss: $\varepsilon$, in the loss's own range.
        samples: n, the number of calibrate samples.
        confidence: $1 - \delta$.

    Returns:
        Indices of the candidates, in the order of testing.

    Example:
        >>> costs, means = torch.tensor([0.3, 0.6, 0.7, 1.0]), torch.tensor([0.05, 0.01, 0.04, 0.0])
        >>> limits = {"max_loss": 0.03, "samples": 1000, "confidence": 0.9}
        >>> order_candidates(costs, means, torch.full((4,), 0.01), LOSSES["disagreement"], **limits)
        tensor([3, 1, 0])
    """
    limit, enough = loss.limit_to_unit(max_loss), math.log(1 / (1 - confidence))
    gap, spread = limit - loss.to_unit(means), variances.double()
    bets = fixed_bets(spread, samples=max(1, samples), confidence=confidence).clamp_max(MAX_STAKE / (1 - limit))
    expected = (samples * (bets * gap - bets.square() * (spread + gap.square()) / 2)).tolist()
    order, best = [], -math.inf
    for place in costs.argsort(stable=True).tolist():  # the cheapest first
        if expected[place] > best or expected[place] >= enough:
            order.append(place)
        best = max(best, expected[place])
    return torch.tensor(order[::-1], dtype=torch.long)


def smooth_variances(variances: Tensor, samples: int) -> Tensor:
    r"""Add one sample of variance 1/4 to `P` variances of n samples on [0, 1], so that none is 0."""
    return (variances.double() * samples + 0.25) / (samples + 1)


def passes(
    losses: Tensor, loss: RiskLoss, *, max_loss: float, confidence: float, bound: RiskBound, variances: Tensor
) -> Tensor:
    r"""Test each candidate by itself on the calibrate split.

    With `ltt` a candidate passes if its p-value of "the mean loss is $\varepsilon$ or more" is at most $\delta$: the
    exact binomial one for binary losses, else that of fixed bets by the tune variances. With `wsr` it passes if its
    upper bound from predictable bets is below $\varepsilon$.

    Args:
        losses: `P x N` in the loss's own range, samples in random order.
        loss: The loss.
        max_loss: $\varepsilon$, in the loss's own range.
        confidence: $1 - \delta$.
        bound: `ltt` or `wsr`.
        variances: `P` variances of other samples, on [0, 1], from `smooth_variances`.

    Returns:
        `P` booleans.

    Example:
        >>> disagree = torch.zeros(2, 300)
        >>> disagree[1, :30] = 1  # 10 %
        >>> limits = {"max_loss": 0.05, "confidence": 0.95, "bound": "ltt"}
        >>> passes(disagree, LOSSES["disagreement"], **limits, variances=torch.ones(2))
        tensor([ True, False])
    """
    unit, limit, risk = loss.to_unit(losses), loss.limit_to_unit(max_loss), 1 - confidence
    if bound == "wsr":
        return log_wealth(unit, predictable_bets(unit, confidence=confidence), limit) > math.log(1 / risk)
    if loss.binary:
        return binomial_p_values(unit.sum(-1).long(), samples=unit.shape[-1], max_loss=limit) <= risk
    bets = fixed_bets(variances[:, None], samples=max(1, unit.shape[-1]), confidence=confidence)
    return betting_p_values(unit, bets, max_loss=limit) <= risk


def last_passing(
    losses: Tensor, loss: RiskLoss, *, max_loss: float, confidence: float, bound: RiskBound, variances: Tensor
) -> int | None:
    """Return the index of the last candidate before the first that fails; None if the first fails.

    Args:
        losses: `P x N`, candidates in the order of testing; this and all that follows as for `passes`.
        loss: The loss.
        max_loss: The largest allowed mean loss.
        confidence: The confidence.
        bound: `ltt` or `wsr`.
        variances: `P` variances.
    """
    if not len(losses):
        return None
    # A candidate with the same losses as the one before has the same result.
    alike = (losses[1:] == losses[:-1]).all(1) & (variances[1:] == variances[:-1])
    firsts = torch.cat([alike.new_tensor([True]), ~alike]).nonzero().squeeze(1)
    for part in torch.split(firsts, _AT_ONCE):
        passed = passes(
            losses[part], loss, max_loss=max_loss, confidence=confidence, bound=bound, variances=variances[part]
        )
        if not bool(passed.all()):
            failed = int(part[int(passed.long().argmin())])
            return failed - 1 if failed else None
    return len(losses) - 1


def samples_needed(mean: float, variance: float, loss: RiskLoss, *, max_loss: float, confidence: float) -> int | None:
    r"""Estimate the number of calibrate samples with which a candidate is about as likely to pass as to fail.

    By the growth of the log wealth per sample at the best bet, $\lambda d - \lambda^2 (\sigma^2 + d^2) / 2$ with
    $d = \varepsilon - \mu$ on [0, 1].

    Args:
        mean: $\mu$, in the loss's own range.
        variance: $\sigma^2$ on [0, 1].
        loss: The loss.
        max_loss: $\varepsilon$, in the loss's own range.
        confidence: $1 - \delta$.

    Returns:
        The number; None where no number is enough.

    Example:
        >>> samples_needed(0.0, 0.0, LOSSES["disagreement"], max_loss=0.01, confidence=0.95)
        332
        >>> samples_needed(0.02, 0.01, LOSSES["disagreement"], max_loss=0.01, confidence=0.95)
    """
    limit = loss.limit_to_unit(max_loss)
    gap = limit - loss.limit_to_unit(mean)
    if gap <= 0:
        return None
    square = variance + gap * gap
    stake = min(gap / square, MAX_STAKE / (1 - limit))
    growth = math.log1p(stake * gap) if variance == 0 else stake * gap - stake * stake * square / 2
    needed = math.ceil(math.log(1 / (1 - confidence)) / growth)
    return needed if needed <= _MOST_SAMPLES else None
