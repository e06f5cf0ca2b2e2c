r"""What each gate should have said: the binary targets of the surrogate task."""

from typing import Literal, get_args

import torch
from torch import Tensor

from offramp.registry import unknown_name

__all__ = ["GateTarget", "best_exit", "gate_targets", "imbalance_weights", "priced_losses"]

GateTarget = Literal["exit_subsequent", "exit_if_min"]


def priced_losses(cross_entropies: Tensor, relative_costs: Tensor, cost_weights: Tensor) -> Tensor:
    r"""Loss of leaving at each exit, its price included.

    $$C^l = \mathrm{CE}(y, \hat p^l) + \lambda\, \mathrm{IC}^l_{\mathrm{norm}}$$

    The summand of Eq. 6 of [Regol2024].

    Args:
        cross_entropies: `W x N x L`, or `N x L` where the classifiers are shared by all cost weights.
        relative_costs: `L` or `N x L` costs of leaving at each exit, as a share of the last exit's.
        cost_weights: `W` weights, lambda.

    Returns:
        `W x N x L` priced losses.

    Example:
        >>> priced_losses(torch.tensor([[1.0, 0.5]]), torch.tensor([0.5, 1.0]), torch.tensor([0.0, 2.0]))
        tensor([[[1.0000, 0.5000]],
        <BLANKLINE>
                [[2.0000, 2.5000]]])
    """
    return cross_entropies + cost_weights[:, None, None] * relative_costs


def best_exit(priced: Tensor) -> Tensor:
    r"""The exit each sample should leave at, $l^* = \arg\min_l C^l$; ties go to the earliest.

    Args:
        priced: `... x L` priced losses, all L exits.

    Returns:
        `...` exit indices, 0-based.

    Example:
        >>> best_exit(torch.tensor([[2.0, 1.0, 1.0]]))
        tensor([1])
    """
    return priced.argmin(-1)


def gate_targets(best: Tensor, num_exits: int, *, kind: GateTarget = "exit_subsequent") -> Tensor:
    r"""Binary target of each gate.

    `exit_subsequent` (the paper): $t^l = 1$ for $l \ge l^*$. `exit_if_min` (its ablation): $t^l = 1$ for $l = l^*$
    only. Section 4.1 of [Regol2024].

    Args:
        best: `...` best exits, 0-based.
        num_exits: L, the final exit included.
        kind: Which of the two targets.

    Returns:
        `... x (L-1)` booleans: the final exit has no gate.

    Example:
        >>> gate_targets(torch.tensor([1]), 4)
        tensor([[False,  True,  True]])
    """
    if kind not in get_args(GateTarget):
        raise unknown_name("gate target", kind, get_args(GateTarget))
    exits = torch.arange(num_exits - 1, device=best.device)
    return exits >= best[..., None] if kind == "exit_subsequent" else exits == best[..., None]


def imbalance_weights(positives: Tensor, total: int, *, largest: float = 5.0) -> Tensor:
    r"""Weight of positive targets at each gate: negatives over positives, at most `largest`.

    Counted on the targets the gates are trained on. With `exit_subsequent` that means the cumulative ones (positives of
    gate l are samples with $l^* \le l$); the released code counts $l^* = l$ and so pushes late gates to open. The clip
    at 5 is the released code's. A gate without positives, or without negatives, counts one, so none loses its loss.

    Args:
        positives: `... x (L-1)` counts of positive targets.
        total: N, how many samples were counted.
        largest: The clip.

    Returns:
        `... x (L-1)` weights.

    Example:
        >>> imbalance_weights(torch.tensor([1, 3]), 4)
        tensor([3.0000, 0.3333])
    """
    return ((total - positives).clamp_min(1) / positives.clamp_min(1)).clamp_max(largest)
