"""The loss of a network whose gates mix the answers of its exits."""

import torch.nn.functional as F
from torch import Tensor

__all__ = ["branching_loss"]


def branching_loss(losses: Tensor, gate_logits: Tensor, relative_costs: Tensor, cost_weights: Tensor) -> Tensor:
    r"""Return the cross-entropy of the mixture of all answers, plus its weighted expected cost.

    $$\frac1N \sum_i -\ln \tilde y^1_i + \lambda\, \tilde c^1_i, \qquad
    \tilde c^l = h^l\, \mathrm{IC}^l_{\mathrm{norm}} + (1 - h^l)\, \tilde c^{l+1}$$

    with the recursion unrolled, $\tilde y^1 = \sum_l P^l p^l$ and $P^l = h^l \prod_{j<l} (1 - h^j)$, in logarithms:
    with many exits, the products of scores underflow.

    Args:
        losses: `W x N x L` cross-entropies (W = 1 where classifiers are shared): $-\ln p^l$ of the true class.
        gate_logits: `W x N x (L-1)` logits of $h$.
        relative_costs: `L` costs of leaving at each exit.
        cost_weights: `W` weights, lambda.

    Returns:
        `W` losses.

    Example:
        >>> import torch
        >>> losses, gate = -torch.tensor([[[0.5, 1.0]]]).log(), torch.zeros(1, 1, 1)
        >>> branching_loss(losses, gate, torch.tensor([0.2, 1.0]), torch.tensor([1.0]))  # - ln 0.75 + 0.6
        tensor([0.8877])
    """
    log_reach = F.pad(F.logsigmoid(-gate_logits).cumsum(-1), (1, 0))
    log_leave = log_reach + F.pad(F.logsigmoid(gate_logits), (0, 1))  # ln P
    expected_cost = (log_leave.exp() * relative_costs).sum(-1)
    return (cost_weights[:, None] * expected_cost - (log_leave - losses).logsumexp(-1)).mean(-1)
