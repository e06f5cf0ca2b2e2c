r"""Which of many candidates may be promised to lose no more than so much, with so much confidence.

Candidates are walked from the safest to the cheapest, in an order that the tune split has fixed, and the walk stops
before the first that the calibrate split cannot vouch for. Only the first bad candidate of the walk can break the
promise, and it is passed with probability $\delta$ at most: no price is paid for trying many. [Angelopoulos2021] is
Angelopoulos, Bates, Candes, Jordan, Lei: Learn then Test, 2021; [Jazbec2024] is Jazbec and others: Fast yet Safe,
NeurIPS 2024, which has the losses.
"""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from offramp.uncertainty.bounds import (
    BOLDEST,
    betting_p_values,
    binomial_p_values,
    capital,
    fixed_bets,
    predictable_bets,
)

__all__ = ["LOSSES", "RiskBound", "RiskLoss", "last_passed", "passes", "samples_needed", "smoothed", "walk"]

RiskBound = Literal["ltt", "wsr"]
"""How the calibrate split vouches for a candidate: Learn then Test, or the bound of Waudby-Smith and Ramdas."""

_AT_ONCE = 16  # candidates: nobody needs what lies behind the first that fails

_ENOUGH = 10**9  # samples: more are not told of


@dataclass(frozen=True)
class RiskLoss:
    """What may be lost against the full network on a sample, and the map from its range to [0, 1].

    Example:
        >>> LOSSES["accuracy"].unit(torch.tensor([-1, 0, 1])).tolist()
        [0.0, 0.5, 1.0]
    """

    name: str
    low: float
    """The least it can be."""
    high: float
    """The most."""
    labelled: bool
    """Whether true classes are needed."""
    binary: bool
    """Whether it is one of the two ends, nothing between."""

    def unit(self, values: Tensor) -> Tensor:
        """Losses on the scale of bounds, $(x - a) / (b - a)$ for a range [a, b].

        Args:
            values: Losses in [low, high].
        """
        return values.double().sub(self.low).div_(self.high - self.low)

    def unit_limit(self, most: float) -> float:
        """The same of a limit."""
        return (most - self.low) / (self.high - self.low)


LOSSES = {
    loss.name: loss
    for loss in (
        RiskLoss("accuracy", -1, 1, labelled=True, binary=False),
        RiskLoss("brier", -2, 2, labelled=True, binary=False),
        RiskLoss("disagreement", 0, 1, labelled=False, binary=True),
    )
}
"""Of [Jazbec2024]. Accuracy: whether the full network is right, 1 or 0, less whether the point is. Brier: the point's
Brier score less the full network's. Disagreement: whether the point answers otherwise than the full network; its mean
is no less than that of accuracy, so that a promise of it is one of accuracy too."""


def walk(
    costs: Tensor, means: Tensor, variances: Tensor, loss: RiskLoss, *, most: float, samples: int, confidence: float
) -> Tensor:
    r"""The candidates to test, the dearest first: fixed on the tune split.

    Left out is a candidate that is expected to fail and less likely to pass than a cheaper one: it could only stop the
    walk. What is expected is that a gambler with fixed bets comes to $n (\lambda d - \lambda^2 (\sigma^2 + d^2) / 2)$,
    with $d = \varepsilon - \mu$ on [0, 1], and passes at $\ln(1/\delta)$. Where dear candidates have lost nothing but
    the samples are too few even for that, the walk so begins at one that gains.

    Args:
        costs: `P` costs on tune.
        means: `P` mean losses on tune, in the loss's own range.
        variances: `P` of them on [0, 1], above 0: `smoothed`.
        loss: Which loss.
        most: $\varepsilon$, in the loss's own range.
        samples: n, how many calibrate.
        confidence: $1 - \delta$.

    Returns:
        Places of the candidates, in the order of the walk.

    Example:
        >>> costs, means = torch.tensor([0.3, 0.6, 0.7, 1.0]), torch.tensor([0.05, 0.01, 0.04, 0.0])
        >>> tested = {"most": 0.03, "samples": 1000, "confidence": 0.9}
        >>> walk(costs, means, torch.full((4,), 0.01), LOSSES["disagreement"], **tested)
        tensor([3, 1, 0])
    """
    limit, enough = loss.unit_limit(most), math.log(1 / (1 - confidence))
    lead, spread = limit - loss.unit(means), variances.double()
    bets = fixed_bets(spread, samples=max(1, samples), confidence=confidence).clamp_max(BOLDEST / (1 - limit))
    expected = (samples * (bets * lead - bets.square() * (spread + lead.square()) / 2)).tolist()
    kept, best = [], -math.inf
    for place in costs.argsort(stable=True).tolist():  # the cheapest first
        if expected[place] > best or expected[place] >= enough:
            kept.append(place)
        best = max(best, expected[place])
    return torch.tensor(kept[::-1], dtype=torch.long)


def smoothed(variances: Tensor, samples: int) -> Tensor:
    r"""Variances on [0, 1] as if one more sample had been seen, of variance 1/4: none is 0.

    Args:
        variances: `P`, of n samples.
        samples: n.

    Example:
        >>> smoothed(torch.tensor([0.0, 0.25]), 24)
        tensor([0.0100, 0.2500], dtype=torch.float64)
    """
    return (variances.double() * samples + 0.25) / (samples + 1)


def passes(
    losses: Tensor, loss: RiskLoss, *, most: float, confidence: float, bound: RiskBound, variances: Tensor
) -> Tensor:
    r"""Whether the calibrate split vouches for each candidate by itself.

    Under `ltt` a candidate passes whose p-value of "it loses $\varepsilon$ or more" is $\delta$ at most: the exact
    binomial one for a loss that is 0 or 1, else that of bets fixed by tune's variances. Under `wsr` one passes whose
    upper bound is below $\varepsilon$: the gambler with predictable bets grows rich against $\varepsilon$.

    Args:
        losses: `P x N` in the loss's own range, samples in an order that says nothing of them.
        loss: Which loss.
        most: $\varepsilon$, in the loss's own range.
        confidence: $1 - \delta$.
        bound: How.
        variances: `P` on [0, 1], of other samples, above 0: `smoothed`.

    Returns:
        `P` booleans.

    Example:
        >>> disagree = torch.zeros(2, 300)
        >>> disagree[1, :30] = 1  # 10 %
        >>> passes(disagree, LOSSES["disagreement"], most=0.05, confidence=0.95, bound="ltt", variances=torch.ones(2))
        tensor([ True, False])
    """
    unit, limit, risk = loss.unit(losses), loss.unit_limit(most), 1 - confidence
    if bound == "wsr":
        return capital(unit, predictable_bets(unit, confidence=confidence), limit) > math.log(1 / risk)
    if loss.binary:
        return binomial_p_values(unit.sum(-1).long(), samples=unit.shape[-1], most=limit) <= risk
    bets = fixed_bets(variances[:, None], samples=max(1, unit.shape[-1]), confidence=confidence)
    return betting_p_values(unit, bets, most=limit) <= risk


def last_passed(
    losses: Tensor, loss: RiskLoss, *, most: float, confidence: float, bound: RiskBound, variances: Tensor
) -> int | None:
    """How far the walk comes: the place before the first candidate that does not pass.

    Args:
        losses: `P x N`, candidates in the order of the walk; else as `passes` takes them.
        loss: Which loss.
        most: What may be lost.
        confidence: How sure to be.
        bound: How.
        variances: `P`.

    Returns:
        The place; None where not even the first passes.

    Example:
        >>> disagree = torch.zeros(3, 300)
        >>> disagree[1, :30] = 1  # what comes after the first that fails is not asked
        >>> known = {"most": 0.05, "confidence": 0.95, "variances": torch.ones(3)}
        >>> last_passed(disagree, LOSSES["disagreement"], bound="ltt", **known)
        0
    """
    if not len(losses):
        return None
    # Who differs on no sample from the one before passes as that does.
    alike = (losses[1:] == losses[:-1]).all(1) & (variances[1:] == variances[:-1])
    firsts = torch.cat([alike.new_tensor([True]), ~alike]).nonzero().squeeze(1)
    for part in torch.split(firsts, _AT_ONCE):
        tested = passes(losses[part], loss, most=most, confidence=confidence, bound=bound, variances=variances[part])
        if not bool(tested.all()):
            failed = int(part[int(tested.long().argmin())])
            return failed - 1 if failed else None
    return len(losses) - 1


def samples_needed(mean: float, variance: float, loss: RiskLoss, *, most: float, confidence: float) -> int | None:
    r"""About how many samples a promise needs, if the loss is what other samples say.

    By the growth of the capital at the best bet, $\lambda d - \lambda^2 (\sigma^2 + d^2) / 2$ a sample with
    $d = \varepsilon - \mu$ on [0, 1]: with so many the candidate is about as likely to pass as not.

    Args:
        mean: $\mu$, in the loss's own range.
        variance: $\sigma^2$ on [0, 1].
        loss: Which loss.
        most: $\varepsilon$, in the loss's own range.
        confidence: $1 - \delta$.

    Returns:
        The number; None where no number would do.

    Example:
        >>> samples_needed(0.0, 0.0, LOSSES["disagreement"], most=0.01, confidence=0.95)
        332
        >>> samples_needed(0.02, 0.01, LOSSES["disagreement"], most=0.01, confidence=0.95)
    """
    limit = loss.unit_limit(most)
    lead = limit - loss.unit_limit(mean)
    if lead <= 0:
        return None
    square = variance + lead * lead
    stake = min(lead / square, BOLDEST / (1 - limit))
    growth = math.log1p(stake * lead) if variance == 0 else stake * lead - stake * stake * square / 2
    needed = math.ceil(math.log(1 / (1 - confidence)) / growth)
    return needed if needed <= _ENOUGH else None
