r"""How large a mean may be, given so many samples of it: tests and bounds that hold at any sample size.

Losses lie in [0, 1], `P x N`: P candidates, N samples in an order that says nothing of them. The samples are taken to
be independent draws from what the promise is about; nothing else is assumed of their distribution. [WaudbySmith2024] is
Waudby-Smith, Ramdas: Estimating Means of Bounded Random Variables by Betting, JRSS-B 2024.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

__all__ = ["betting_p_values", "binomial_p_values", "capital", "fixed_bets", "predictable_bets"]

BOLDEST = 0.9
"""Share of the capital at stake at most, if a sample's loss is 1: a bet of all of it could never come back."""

_BLOCK = 64  # factors; one that grew past all numbers would have passed any test


def binomial_p_values(failures: Tensor, *, samples: int, most: float) -> Tensor:
    r"""How likely so few failures are, were they as frequent as they may be: exact for losses that are 0 or 1.

    $$p = P(\mathrm{Bin}(n, \varepsilon) \le k)$$

    Args:
        failures: `...` counts k.
        samples: n.
        most: $\varepsilon$, between 0 and 1.

    Returns:
        `...` p-values of "the mean loss is $\varepsilon$ or more".

    Example:
        >>> binomial_p_values(torch.tensor([0, 2]), samples=2, most=0.5)
        tensor([0.2500, 1.0000], dtype=torch.float64)
    """
    counts = torch.arange(samples + 1, dtype=torch.float64)
    left = samples - counts
    choices = math.lgamma(samples + 1) - torch.lgamma(counts + 1) - torch.lgamma(left + 1)
    likelihood = choices + counts * math.log(most) + left * math.log1p(-most)
    return likelihood.logcumsumexp(0).exp().clamp_max(1)[failures]


def predictable_bets(losses: Tensor, *, confidence: float) -> Tensor:
    r"""What to stake on each sample, by the spread of those before it.

    $$\hat\mu_t = \frac{\frac12 + \sum_{i \le t} x_i}{t + 1}, \quad
      \hat\sigma_t^2 = \frac{\frac14 + \sum_{i \le t} (x_i - \hat\mu_i)^2}{t + 1}, \quad
      \nu_t = \sqrt{\frac{2 \ln(1/\delta)}{n\, \hat\sigma_{t-1}^2}}$$

    The predictable plug-in of [WaudbySmith2024], for the bound after n samples.

    Args:
        losses: `P x N` in [0, 1].
        confidence: $1 - \delta$.

    Returns:
        `P x N` bets, from 0 up.

    Example:
        >>> predictable_bets(torch.zeros(1, 2), confidence=0.95).round(decimals=2)
        tensor([[3.4600, 4.3800]], dtype=torch.float64)
    """
    values = losses.double()
    samples = values.shape[-1]
    counts = torch.arange(2, samples + 2, dtype=torch.float64)
    means = values.cumsum(-1).add_(0.5).div_(counts)
    spread = means.sub_(values).square_().cumsum(-1).add_(0.25).div_(counts)
    before = torch.cat([torch.full_like(spread[..., :1], 0.25), spread[..., :-1]], dim=-1)
    return before.rsqrt_().mul_((2 * math.log(1 / (1 - confidence)) / max(1, samples)) ** 0.5)


def fixed_bets(variances: Tensor, *, samples: int, confidence: float) -> Tensor:
    r"""What to stake on every sample, by a spread that is known from other samples.

    $$\lambda = \sqrt{2 \ln(1/\delta) / (n \sigma^2)}$$

    is the bet that tells apart the closest mean that n samples of variance $\sigma^2$ can. A wrong variance costs power
    and nothing else.

    Args:
        variances: `...`, above 0.
        samples: n.
        confidence: $1 - \delta$.

    Returns:
        `...` bets.

    Example:
        >>> fixed_bets(torch.tensor([0.25]), samples=24, confidence=0.95).round(decimals=2)
        tensor([1.])
    """
    return (2 * math.log(1 / (1 - confidence)) / (samples * variances)).sqrt()


def capital(losses: Tensor, bets: Tensor, most: float | Tensor) -> Tensor:
    r"""Log of what a gambler owns at best who began with 1 and staked that losses are below $\varepsilon$ on average.

    $$\max_t \sum_{i \le t} \ln\bigl(1 + \lambda_i (\varepsilon - x_i)\bigr), \qquad
      \lambda_i \le \frac{0.9}{1 - \varepsilon}$$

    If the mean loss is $\varepsilon$ or more, the capital does not grow on average, and ever reaches $1/\delta$ with
    probability $\delta$ at most (Ville).

    Args:
        losses: `P x N` in [0, 1].
        bets: `P x N`, each made before its sample is seen, or `P x 1`.
        most: $\varepsilon$ below 1, or `P` of them.

    Returns:
        `P` logs, 0 at least.

    Example:
        >>> capital(torch.zeros(1, 10), torch.ones(1, 1), 0.5).exp()  # 1.5 ** 10
        tensor([57.6650], dtype=torch.float64)
    """
    limit = torch.as_tensor(most, dtype=torch.float64)[..., None]
    stakes = torch.minimum(bets.double(), BOLDEST / (1 - limit))
    factors = (limit - losses.double()).mul_(stakes).add_(1)
    # Multiplied for a while, then logged: a log takes as long as many products, and so few do not overflow.
    padded = F.pad(factors, (0, -factors.shape[-1] % _BLOCK), value=1.0)
    blocks = padded.view(*padded.shape[:-1], padded.shape[-1] // _BLOCK, _BLOCK).cumprod(-1)
    gains = blocks[..., -1].log().cumsum(-1)
    before = F.pad(gains, (1, 0))[..., :-1]
    return F.pad(before + blocks.amax(-1).log(), (1, 0)).amax(-1)


def betting_p_values(losses: Tensor, bets: Tensor, *, most: float) -> Tensor:
    r"""One over what the gambler owns at best: p-values of "the mean loss is $\varepsilon$ or more".

    Args:
        losses: `P x N` in [0, 1].
        bets: `P x N`, each made before its sample is seen, or `P x 1`.
        most: $\varepsilon$, below 1.

    Returns:
        `P` p-values.

    Example:
        >>> betting_p_values(torch.zeros(1, 10), torch.ones(1, 1), most=0.5)
        tensor([0.0173], dtype=torch.float64)
    """
    return (-capital(losses, bets, most)).exp()
