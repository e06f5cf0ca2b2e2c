r"""Confidence intervals over test samples: of a share, of a difference of paired shares, of a ratio of totals.

They refer to the draw of the test samples alone, and say nothing about another training run, seed or operating point.
Shares have closed-form intervals because a bootstrap of samples that all agree, or of a single one, would claim
certainty. [BrownCaiDasGupta2001] is Brown, Cai, DasGupta: Interval Estimation for a Binomial Proportion, Statistical
Science 2001. [BonettPrice2012] is Bonett, Price: Adjusted Wald Confidence Interval for a Difference of Binomial
Proportions Based on Paired Data, JEBS 2012.
"""

import math

import torch
from torch import Tensor

from offramp.errors import InputError

__all__ = ["bootstrap_ratio_interval", "paired_interval", "wilson_interval"]

_Z = 1.959964  # 95 % of a normal distribution lies within this many standard deviations

# Entries of the weight matrix in memory at a time: 8 MB of weights and 8 MB of indices, whatever N and the draws.
_CHUNK = 2**20


def wilson_interval(hits: int, count: int) -> tuple[float, float]:
    r"""Return Wilson's score interval of a share, at 95 %.

    $$\frac{\hat p + z^2/2n \pm z\sqrt{\hat p(1-\hat p)/n + z^2/4n^2}}{1 + z^2/n}$$

    Eq. 4 of [BrownCaiDasGupta2001].

    Args:
        hits: Number of samples that count.
        count: n, the number of all samples; at least 1.

    Returns:
        Lower and upper ends, in [0, 1].

    Example:
        >>> lower, upper = wilson_interval(1, 1)
        >>> print(f"{lower:.2f} to {upper:.2f}")
        0.21 to 1.00
    """
    if not 0 <= hits <= count or count == 0:
        raise InputError(expected="hits among at least one sample", got=f"{hits} of {count}")
    share = hits / count
    middle = share + _Z**2 / (2 * count)
    reach = _Z * math.sqrt(share * (1 - share) / count + _Z**2 / (4 * count**2))
    scale = 1 + _Z**2 / count
    # At 0 and at n the formula gives 0 and 1 but for rounding.
    lower = 0.0 if hits == 0 else (middle - reach) / scale
    upper = 1.0 if hits == count else (middle + reach) / scale
    return lower, upper


def paired_interval(gained: int, lost: int, count: int) -> tuple[float, float]:
    r"""Return Bonett and Price's interval of a difference of two shares of the same samples, at 95 %.

    $$\tilde p_{12} - \tilde p_{21} \pm z\sqrt{\frac{\tilde p_{12} + \tilde p_{21} - (\tilde p_{12} - \tilde
    p_{21})^2}{n + 2}}, \qquad \tilde p_{ij} = \frac{n_{ij} + 1}{n + 2}$$

    The adjusted Wald interval of [BonettPrice2012].

    Args:
        gained: $n_{12}$, samples that only the first has right.
        lost: $n_{21}$, samples that only the second has right.
        count: n, all samples; at least 1.

    Returns:
        Lower and upper ends, in [-1, 1].

    Example:
        >>> lower, upper = paired_interval(0, 0, 5)
        >>> print(f"{lower:+.2f} to {upper:+.2f}")
        -0.40 to +0.40
    """
    if gained < 0 or lost < 0 or gained + lost > count or count == 0:
        raise InputError(expected="changes among at least one sample", got=f"{gained} and {lost} of {count}")
    up, down = (gained + 1) / (count + 2), (lost + 1) / (count + 2)
    reach = _Z * math.sqrt((up + down - (up - down) ** 2) / (count + 2))
    return max(-1.0, up - down - reach), min(1.0, up - down + reach)


def bootstrap_ratio_interval(
    numerator: Tensor, denominator: Tensor, *, confidence: float = 0.95, draws: int = 1000, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    r"""Return the percentile bootstrap interval of a ratio of totals, $R_s = \sum_i a_{is} \big/ \sum_i b_{is}$.

    For relative cost: total spent over the total of the full network, both over the same resampled samples. It is the
    ratio of the means, not the mean of the samples' ratios.

    Args:
        numerator: `N x S`, one row per test sample.
        denominator: `N`, shared by all columns, or `N x S`; above 0.
        confidence: Share of the draws inside the interval.
        draws: Number of resampled test sets.
        generator: Source of random numbers.

    Returns:
        Lower and upper ends, `S` each, in the dtype of `numerator` (float32 for half precision, integers and booleans).

    Raises:
        InputError: If there are no rows, shapes differ, values are not finite, a denominator is not above 0, or an
            option is out of range.

    Example:
        >>> spent, full = torch.tensor([[1.0], [2.0], [4.0]]), torch.tensor([2.0, 4.0, 8.0])
        >>> bootstrap_ratio_interval(spent, full, generator=torch.Generator().manual_seed(0))
        (tensor([0.5000]), tensor([0.5000]))
    """
    if not 0 < confidence < 1:
        raise InputError(expected="confidence between 0 and 1", got=confidence, hint="95 % is 0.95")
    if draws < 1:
        raise InputError(expected="draws of at least 1", got=draws, hint="leave it at 1000 when in doubt")
    above = _check_rows(numerator, "numerator")
    below = _check_rows(denominator[:, None] if denominator.ndim == 1 else denominator, "denominator")
    if len(below) != len(above) or below.shape[1] not in (1, above.shape[1]):
        raise InputError(
            expected=f"a denominator of {len(above)} or {tuple(above.shape)} for a numerator of {tuple(above.shape)}",
            got=tuple(denominator.shape),
            hint="pass one value for each sample",
        )
    if not (below > 0).all():
        raise InputError(
            expected="denominators above 0",
            got=f"{below.min().item():g}",
            hint="pass the full network's cost of each sample",
        )
    sums = _resample_sums(torch.cat([above, below], dim=1), draws, generator)
    ratios = sums[:, : above.shape[1]] / sums[:, above.shape[1] :]
    return _quantiles(ratios, confidence, numerator.dtype)


def _resample_sums(rows: Tensor, draws: int, generator: torch.Generator) -> Tensor:
    """Return the `draws x S` column sums of resampled sets of rows, as products with the count of each row."""
    num_rows = len(rows)
    at_once = max(1, _CHUNK // num_rows)
    sums = []
    for start in range(0, draws, at_once):
        size = (min(at_once, draws - start), num_rows)
        indices = torch.randint(num_rows, size, device=generator.device, generator=generator).to(rows.device)
        counts = torch.zeros(size, dtype=rows.dtype, device=rows.device)
        counts.scatter_add_(1, indices, torch.ones_like(counts))
        sums.append(counts @ rows)
    return torch.cat(sums)


def _quantiles(values: Tensor, confidence: float, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return two quantiles of the draws, interpolated linearly; torch.quantile refuses more than 2^24 values."""
    ordered = values.sort(0).values

    def quantile(level: float) -> Tensor:
        position = level * (len(ordered) - 1)
        below = math.floor(position)
        above = min(below + 1, len(ordered) - 1)
        return ordered[below].lerp(ordered[above], position - below).to(torch.promote_types(dtype, torch.float32))

    return quantile((1 - confidence) / 2), quantile((1 + confidence) / 2)


def _check_rows(rows: Tensor, name: str) -> Tensor:
    """Return the rows in float64, or refuse them."""
    if rows.ndim != 2 or rows.numel() == 0:
        raise InputError(
            expected=f"{name} 'N x S' with at least one row and column",
            got=tuple(rows.shape),
            hint="use x[:, None] for one statistic",
        )
    rows = rows.double()
    if not rows.isfinite().all():
        raise InputError(expected=f"finite {name}", got="NaN or infinity", hint="look for a sample without an answer")
    return rows
