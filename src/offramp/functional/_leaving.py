r"""The exits at which samples leave, given their gate scores.

Scores are `... x L`, exits last, with any leading axes (W cost weights, N samples). The last exit's score is 1: every
sample that reaches it leaves there.
"""

import torch
from torch import Tensor

__all__ = ["exit_distribution", "first_exit", "should_leave"]


def exit_distribution(gate_scores: Tensor) -> Tensor:
    r"""Return the probability of leaving at each exit.

    Each gate takes its score, or whatever the earlier gates left:

    $$P(G = l) = \min\bigl(g^l,\ \max(0,\ 1 - \sum_{j<l} g^j)\bigr)$$

    Eq. 8 of [Regol2024], which omits the max; without it, scores that sum past 1 give negative probabilities.

    Args:
        gate_scores: `... x L` scores in [0, 1]; the last exit's score is 1.

    Returns:
        `... x L` probabilities, summing to 1 over exits.

    Example:
        >>> exit_distribution(torch.tensor([0.7, 0.6, 0.5, 1.0]))
        tensor([0.7000, 0.3000, 0.0000, 0.0000])
    """
    taken_before = gate_scores.cumsum(-1) - gate_scores
    return torch.minimum(gate_scores, (1 - taken_before).clamp_min(0))


def should_leave(gate_scores: Tensor) -> Tensor:
    r"""Decide at each exit whether a sample that reaches it leaves, by the deterministic rule.

    $$P(E^l) \ge \tfrac12 \iff 2 g^l + \sum_{j<l} g^j \ge 1$$

    The rule of [Regol2024], section 5, in closed form, so that a sample carries one running sum. It is not
    $g^l \ge 1/2$. The paper leaves on $>$; in floating point the difference does not matter.

    Args:
        gate_scores: `... x L` scores in [0, 1]; the last exit's score is 1.

    Returns:
        `... x L` booleans; a sample leaves at the first true entry of its row.

    Example:
        >>> should_leave(torch.tensor([0.4, 0.4, 1.0]))
        tensor([False,  True,  True])
    """
    return gate_scores + gate_scores.cumsum(-1) >= 1


def first_exit(leave: Tensor) -> Tensor:
    """Return the index of the first exit at which each sample leaves.

    Args:
        leave: `... x L` booleans; the last column counts as true.

    Returns:
        `...` exit indices, 0-based.

    Example:
        >>> first_exit(torch.tensor([[False, True, True], [False, False, False]]))
        tensor([1, 2])
    """
    reached_end = ~leave[..., :-1].any(-1)
    return torch.where(reached_end, leave.shape[-1] - 1, leave.to(torch.uint8).argmax(-1))
