r"""Where a sample leaves, given its gate scores.

All functions take scores `... x L`, exits last, with any leading axes (W cost weights, N samples). The last exit's
score is 1: whoever reaches it leaves there.
"""

import torch
from torch import Tensor

__all__ = ["exit_distribution", "exit_if_reached", "first_exit", "leaves"]


def exit_distribution(gate_scores: Tensor) -> Tensor:
    r"""Probability of leaving at each exit.

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


def exit_if_reached(gate_scores: Tensor) -> Tensor:
    r"""Probability of leaving at each exit for a sample that has reached it.

    $$P(E^l) = P(G = l) \Big/ \prod_{j<l} \bigl(1 - P(E^j)\bigr) = \min\bigl(1,\ g^l \big/ (1 - \sum_{j<l} g^j)\bigr)$$

    Eq. 4 of [Regol2024], solved for $P(E^l)$ with $P(G)$ from Eq. 8. Where no probability is left the
    exit cannot be reached; 1 stands there.

    Args:
        gate_scores: `... x L` scores in [0, 1]; the last exit's score is 1.

    Returns:
        `... x L` probabilities; the last is 1.

    Example:
        >>> exit_if_reached(torch.tensor([0.5, 0.25, 1.0]))
        tensor([0.5000, 0.5000, 1.0000])
    """
    left = 1 - (gate_scores.cumsum(-1) - gate_scores)  # what P(G) leaves, wherever that is more than nothing
    reachable = left > 0
    return torch.where(reachable, gate_scores / torch.where(reachable, left, 1), 1.0).clamp_max(1)


def leaves(gate_scores: Tensor) -> Tensor:
    r"""Whether a sample that reaches an exit leaves there, by the deterministic rule.

    $$P(E^l) \ge \tfrac12 \iff 2 g^l + \sum_{j<l} g^j \ge 1$$

    The rule of [Regol2024], section 5, in closed form: one running sum a sample is all that has to be carried. It is
    not $g^l \ge 1/2$. The paper leaves on $>$; ties decide nothing in floating point.

    Args:
        gate_scores: `... x L` scores in [0, 1]; the last exit's score is 1.

    Returns:
        `... x L` booleans. Only the first true entry of a row is ever acted upon.

    Example:
        >>> leaves(torch.tensor([0.4, 0.4, 1.0]))
        tensor([False,  True,  True])
    """
    return gate_scores + gate_scores.cumsum(-1) >= 1


def first_exit(leave: Tensor) -> Tensor:
    """Index of the first exit that lets each sample leave.

    Args:
        leave: `... x L` booleans; the last exit is taken by whoever gets there, whatever stands in its column.

    Returns:
        `...` exit indices, 0-based.

    Example:
        >>> first_exit(torch.tensor([[False, True, True], [False, False, False]]))
        tensor([1, 2])
    """
    reached_end = ~leave[..., :-1].any(-1)
    return torch.where(reached_end, leave.shape[-1] - 1, leave.to(torch.uint8).argmax(-1))
