"""Intervals of shares, and of differences of two shares of the same samples, that hold for few samples too.

A bootstrap of samples that all agree, or of a single one, would claim certainty. [BrownCaiDasGupta2001] is Brown, Cai,
DasGupta: Interval Estimation for a Binomial Proportion, Statistical Science 2001. [BonettPrice2012] is Bonett, Price:
Adjusted Wald Confidence Interval for a Difference of Binomial Proportions Based on Paired Data, JEBS 2012.
"""

import math

from offramp.errors import InputError

__all__ = ["paired_interval", "wilson_interval"]

_Z = 1.959964  # 95 % of a normal distribution lies within this many standard deviations


def wilson_interval(hits: int, count: int) -> tuple[float, float]:
    r"""Return Wilson's score interval of a share, at 95 %.

    $$\frac{\hat p + z^2/2n \pm z\sqrt{\hat p(1-\hat p)/n + z^2/4n^2}}{1 + z^2/n}$$

    Eq. 4 of [BrownCaiDasGupta2001], after Wilson. A single sample gives a wide interval, not a point.

    Args:
        hits: How many did.
        count: n, of how many; at least 1.

    Returns:
        Lower and upper ends, in [0, 1].

    Example:
        >>> lower, upper = wilson_interval(1, 1)
        >>> print(f"{lower:.2f} to {upper:.2f}")
        0.21 to 1.00
    """
    if not 0 <= hits <= count or count == 0:
        raise InputError(f"expected hits among at least one sample, got {hits} of {count}")
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

    The adjusted Wald interval of [BonettPrice2012]. Five samples of which none changed still leave room for a change.

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
        raise InputError(f"expected changes among at least one sample, got {gained} and {lost} of {count}")
    up, down = (gained + 1) / (count + 2), (lost + 1) / (count + 2)
    reach = _Z * math.sqrt((up + down - (up - down) ** 2) / (count + 2))
    return max(-1.0, up - down - reach), min(1.0, up - down + reach)
