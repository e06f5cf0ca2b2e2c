r"""Tests of the mean of a bounded loss that hold at any sample size.

Losses lie in [0, 1], `P x N`: P candidates, N samples in random order. Samples are assumed to be independent draws from
the distribution of the guarantee, and nothing else. [WaudbySmith2024] is Waudby-Smith, Ramdas: Estimating Means of
Bounded Random Variables by Betting, JRSS-B 2024.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

__all__ = ["betting_p_values", "binomial_p_values", "fixed_bets", "log_wealth", "predictable_bets"]

MAX_STAKE = 0.9
"""Largest share of the wealth that one sample can lose: a stake of all of it could never recover."""

_BLOCK = 64  # factors per product: an overflow would have passed any test


def binomial_p_values(failures: Tensor, *, samples: int, max_loss: float) -> Tensor:
    r"""Return the exact p-values of binary losses: the probability of so few failures at the largest allowed rate.

    $$p = P(\mathrm{Bin}(n, \varepsilon) \le k)$$

    Args:
        failures: `...` counts k.
        samples: n.
        max_loss: $\varepsilon$, between 0 and 1.

    Returns:
        `...` p-values of "the mean loss is $\varepsilon$ or more".

    Example:
        >>> binomial_p_values(torch.tensor([0, 2]), samples=2, max_loss=0.5)
        tensor([0.2500, 1.0000], dtype=torch.float64)
    """
    counts = torch.arange(samples + 1, dtype=torch.float64)
    left = samples - counts
    choices = math.lgamma(samples + 1) - torch.lgamma(counts + 1) - torch.lgamma(left + 1)
    likelihood = choices + counts * math.log(max_loss) + left * math.log1p(-max_loss)
    return likelihood.logcumsumexp(0).exp().clamp_max(1)[failures]


def predictable_bets(losses: Tensor, *, confidence: float) -> Tensor:
    r"""Return the bet on each sample, by the variance of the samples before it.

    $$\hat\mu_t = \frac{\frac12 + \sum_{i \le t} x_i}{t + 1}, \quad
      \hat\sigma_t^2 = \frac{\frac14 + \sum_{i \le t} (x_i - \hat\mu_i)^2}{t + 1}, \quad
      \nu_t = \sqrt{\frac{2 \ln(1/\delta)}{n\, \hat\sigma_{t-1}^2}}$$

    The predictable plug-in of [WaudbySmith2024], for the bound after n samples.

    Args:
        losses: `P x N` in [0, 1].
        confidence: $1 - \delta$.

    Returns:
        `P x N` bets, at least 0.
    """
    values = losses.double()
    samples = values.shape[-1]
    counts = torch.arange(2, samples + 2, dtype=torch.float64)
    means = values.cumsum(-1).add_(0.5).div_(counts)
    spread = means.sub_(values).square_().cumsum(-1).add_(0.25).div_(counts)
    before = torch.cat([torch.full_like(spread[..., :1], 0.25), spread[..., :-1]], dim=-1)
    return before.rsqrt_().mul_((2 * math.log(1 / (1 - confidence)) / max(1, samples)) ** 0.5)


def fixed_bets(variances: Tensor, *, samples: int, confidence: float) -> Tensor:
    r"""Return one bet for all samples, by a variance that is known from other samples.

    $$\lambda = \sqrt{2 \ln(1/\delta) / (n \sigma^2)}$$

    is the bet that detects the smallest difference that n samples of variance $\sigma^2$ can. A wrong variance costs
    power, never validity.

    Args:
        variances: `...`, above 0.
        samples: n.
        confidence: $1 - \delta$.

    Returns:
        `...` bets.
    """
    return (2 * math.log(1 / (1 - confidence)) / (samples * variances)).sqrt()


def log_wealth(losses: Tensor, bets: Tensor, max_loss: float | Tensor) -> Tensor:
    r"""Return the log of the largest wealth, from 1, of a gambler who bets on a mean loss below $\varepsilon$.

    $$\max_t \sum_{i \le t} \ln\bigl(1 + \lambda_i (\varepsilon - x_i)\bigr), \qquad
      \lambda_i \le \frac{0.9}{1 - \varepsilon}$$

    If the mean loss is $\varepsilon$ or more, the wealth does not grow on average, and ever reaches $1/\delta$ with
    probability at most $\delta$ (Ville's inequality).

    Args:
        losses: `P x N` in [0, 1].
        bets: `P x N`, each made before its sample is known, or `P x 1`.
        max_loss: $\varepsilon$ below 1, or `P` of them.

    Returns:
        `P` logs, at least 0.

    Example:
        >>> log_wealth(torch.zeros(1, 10), torch.ones(1, 1), 0.5).exp()  # 1.5 ** 10
        tensor([57.6650], dtype=torch.float64)
    """
    limit = torch.as_tensor(max_loss, dtype=torch.float64)[..., None]
    stakes = torch.minimum(bets.double(), MAX_STAKE / (1 - limit))
    factors = (limit - losses.double()).mul_(stakes).add_(1)
    # One log per block of products: a log takes as long as many products, and 64 of them do not overflow.
    padded = F.pad(factors, (0, -factors.shape[-1] % _BLOCK), value=1.0)
    blocks = padded.view(*padded.shape[:-1], padded.shape[-1] // _BLOCK, _BLOCK).cumprod(-1)
    gains = blocks[..., -1].log().cumsum(-1)
    before = F.pad(gains, (1, 0))[..., :-1]
    return F.pad(before + blocks.amax(-1).log(), (1, 0)).amax(-1)


def betting_p_values(losses: Tensor, bets: Tensor, *, max_loss: float) -> Tensor:
    r"""Return p-values of "the mean loss is $\varepsilon$ or more": one over the largest wealth.

    Args:
        losses: `P x N` in [0, 1].
        bets: `P x N`, each made before its sample is known, or `P x 1`.
        max_loss: $\varepsilon$, below 1.

    Returns:
        `P` p-values.
    """
    return (-log_wealth(losses, bets, max_loss)).exp()
