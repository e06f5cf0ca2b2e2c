"""Log-probabilities of an answer, and the four statistics of it that gates read."""

import torch
from torch import Tensor

__all__ = ["EVIDENCE_SIZE", "evidence", "log_probabilities", "samples_last"]

EVIDENCE_SIZE = 4


def log_probabilities(logits: Tensor) -> Tensor:
    r"""Return $\ln \mathrm{softmax}$ of the logits, in float32 or better.

    The result has classes as its last axis but first in memory, and samples last in memory: on CPUs a reduction over a
    short last axis is some fifteen times slower than over a leading one, and these reductions dominate the time of
    fitting linear exits. `exits.all_logits` returns the same order, so nothing is copied.

    Args:
        logits: `... x K` logits.

    Returns:
        `... x K` log-probabilities.

    Example:
        >>> log_probabilities(torch.zeros(2)).exp()
        tensor([0.5000, 0.5000])
    """
    if logits.dtype in (torch.float16, torch.bfloat16):
        logits = logits.float()
    return _samples_first(samples_last(logits).log_softmax(0))


def samples_last(values: Tensor) -> Tensor:
    """Return a view `K x ... x L x N` of `... x N x L x K`; `K x ...` where there are fewer axes."""
    classes_first = values.movedim(-1, 0)
    return classes_first.transpose(-1, -2) if values.ndim > 2 else classes_first


def _samples_first(values: Tensor) -> Tensor:
    """Undo `samples_last`."""
    return (values.transpose(-1, -2) if values.ndim > 2 else values).movedim(0, -1)


def evidence(log_probabilities: Tensor) -> Tensor:
    r"""Return four statistics of the certainty of a predicted distribution.

    $$m = \bigl[\,p_{\max},\ -\sum_k p_k \ln p_k,\ -\sum_k \tilde p_k \ln \tilde p_k,\ p_{(1)} - p_{(2)}\,\bigr],
    \qquad \tilde p_k = p_k^2 \big/ \textstyle\sum_j p_j^2$$

    Largest probability, entropy, sharpened entropy and margin: appendix "Uncertainty statistics" of [Regol2024]. The
    paper prints the entropies without the minus sign; here they are positive, in nats. With $S = \sum_k p_k^2$ the
    sharpened entropy is $\ln S - \frac2S \sum_k p_k^2 \ln p_k$, so one exponential per class serves all four.

    Args:
        log_probabilities: `... x K`, K >= 2, finite, of raw logits, as gates are trained on those.

    Returns:
        `... x 4` statistics.

    Example:
        >>> evidence(torch.tensor([0.25, 0.75]).log())
        tensor([0.7500, 0.5623, 0.3251, 0.5000])
    """
    log_p = samples_last(log_probabilities)
    p = log_p.exp()
    p_log_p = p * log_p
    total_squared = p.square().sum(0)
    sharpened_entropy = total_squared.log() - 2 * (p * p_log_p).sum(0) / total_squared
    largest = p.amax(0)
    # topk over so short an axis takes ten times as long as these reductions.
    others = torch.where(p < largest, p, 0)
    tied = 1 - others.sum(0) > 1.5 * largest  # two classes have the largest probability: the margin is 0
    margin = torch.where(tied, 0, largest - others.amax(0))
    return _samples_first(torch.stack([largest, -p_log_p.sum(0), sharpened_entropy, margin]))
