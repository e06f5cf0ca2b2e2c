r"""Tests of the number of errors in a finite set, from a random sample of it.

The set are the inputs that a cheap model answers; the sample is answered by the expensive model too, and so corrected.
No assumption is made about the inputs: all randomness is in the draw of the sample.
"""

import math

import torch

__all__ = ["finite_p_value", "most_passing_errors"]


def finite_p_value(errors: int, *, sampled: int, total: int, allowed: int) -> float:
    r"""Return the p-value of "more than a number of errors are left in the set once the sample is corrected".

    $$p(x) = P(X \le x), \qquad X \sim \mathrm{Hypergeometric}(N, K = a + x + 1, n)$$

    K is the smallest number of errors of the whole set with which more than a are left. If more than a are left, the
    true number is K or more, and X is stochastically no smaller: $p \le \delta$ then has probability at most $\delta$.

    Args:
        errors: x, the errors in the sample.
        sampled: n, the size of the sample, drawn without replacement.
        total: N, the size of the set.
        allowed: a, the errors that may be left.

    Example:
        >>> round(finite_p_value(0, sampled=50, total=100, allowed=4), 4)  # five errors, none in the sample
        0.0281
    """
    bad = allowed + errors + 1
    if total - sampled <= allowed or bad > total:
        return 0.0
    counts = torch.arange(max(0, sampled - (total - bad)), min(errors, sampled) + 1, dtype=torch.float64)
    if not len(counts):
        return 0.0
    logs = _log_choose(bad, counts) + _log_choose(total - bad, sampled - counts)
    whole = _log_choose(total, torch.tensor(float(sampled), dtype=torch.float64))
    return min(1.0, float((logs - whole).logsumexp(0).exp()))


def most_passing_errors(*, sampled: int, total: int, allowed: int, confidence: float) -> int:
    """Return the largest number of errors in the sample with which the test passes; -1 if even none is too many.

    Args:
        sampled: Size of the sample.
        total: Size of the set.
        allowed: Errors that may be left.
        confidence: Confidence of the test.
    """
    low, high = -1, sampled
    while low < high:
        middle = math.ceil((low + high) / 2)
        if finite_p_value(middle, sampled=sampled, total=total, allowed=allowed) <= 1 - confidence:
            low = middle
        else:
            high = middle - 1
    return low


def _log_choose(whole: int, part: torch.Tensor) -> torch.Tensor:
    return math.lgamma(whole + 1) - torch.lgamma(part + 1) - torch.lgamma(whole - part + 1)
