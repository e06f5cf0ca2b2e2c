r"""The gates' evidence with its gradient written out, where gradients pass through gates into classifiers."""

from typing import Any

import torch
from torch import Tensor

from offramp.functional import evidence
from offramp.functional._statistics import samples_last

__all__ = ["differentiable_evidence"]


def differentiable_evidence(log_probabilities: Tensor) -> Tensor:
    r"""Return `functional.evidence`, with an explicit gradient that takes less than half the time of autograd.

    With $S = \sum_k p_k^2$, $T = \sum_k p_k^2 \ln p_k$ and $e_1, \ldots, e_4$ the gradients of the four statistics, the
    gradient of $\ln p_k$ is

    $$p_k \Bigl( (e_1 + e_4)\, [k = (1)] - e_4\, [k = (2)] - e_2 (\ln p_k + 1)
    + \frac{4 e_3 p_k}{S} \Bigl(\frac TS - \ln p_k\Bigr) \Bigr)$$

    Args:
        log_probabilities: `... x N x L x K`, K >= 2, finite.

    Returns:
        `... x N x L x 4` statistics.

    Example:
        >>> differentiable_evidence(torch.tensor([[[0.25, 0.75]]]).log())
        tensor([[[0.7500, 0.5623, 0.3251, 0.5000]]])
    """
    result: Tensor = _Evidence.apply(log_probabilities)  # type: ignore[no-untyped-call]
    return result


class _Evidence(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, log_probabilities: Tensor) -> Tensor:
        ctx.save_for_backward(log_probabilities)
        return evidence(log_probabilities)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        (log_probabilities,) = ctx.saved_tensors
        first, second, third, fourth = samples_last(gradients[0]).contiguous()
        log_p = samples_last(log_probabilities)
        p = log_p.exp()
        squared = p.square()
        total = squared.sum(0)
        center = (squared * log_p).sum(0) / total
        result = torch.sub(center, log_p).mul_(p).mul_(4 * third / total)
        result.addcmul_(log_p, -second).sub_(second)
        # Comparisons that write floats: seven times faster than booleans that are converted to floats.
        winner = torch.eq(p, p.amax(0), out=torch.empty_like(p))
        result.addcmul_(winner, first + fourth)
        others = torch.addcmul(p, p, winner, value=-1)
        result.addcmul_(torch.eq(others, others.amax(0), out=winner), -fourth)
        return result.mul_(p).movedim(0, -1).transpose(-2, -3)
