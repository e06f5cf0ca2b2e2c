r"""The two levels of the paper's objective, for W cost weights at once: classifier losses, gate targets, gate loss.

Every loss keeps the leading axis of cost weights and returns `W` numbers. An optimiser steps on their sum: each cost
weight's parameters then receive exactly the gradient they would receive alone.
"""

from typing import Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from offramp._registry import unknown_name
from offramp.functional._statistics import samples_last

__all__ = [
    "ClassifierLoss",
    "GateTarget",
    "best_exit",
    "cross_entropies",
    "full_loss",
    "gate_loss",
    "gate_targets",
    "imbalance_weights",
    "plain_loss",
    "priced_losses",
    "rescaled_loss",
    "weighted_loss",
]

ClassifierLoss = Literal["weighted", "rescaled", "plain", "full"]
GateTarget = Literal["exit_subsequent", "exit_if_min"]


def cross_entropies(log_probabilities: Tensor, labels: Tensor) -> Tensor:
    """Return the cross-entropy of every exit's answer.

    Args:
        log_probabilities: `... x N x L x K`.
        labels: `N` classes.

    Returns:
        `... x N x L` losses.

    Example:
        >>> cross_entropies(torch.tensor([[[0.25, 0.75]]]).log(), torch.tensor([1]))
        tensor([[0.2877]])
    """
    log_p = samples_last(log_probabilities)
    return -log_p.gather(0, labels.expand(1, *log_p.shape[1:])).squeeze(0).transpose(-1, -2)


def priced_losses(cross_entropies: Tensor, relative_costs: Tensor, cost_weights: Tensor) -> Tensor:
    r"""Return the loss of leaving at each exit, compute priced in.

    $$C^l = \mathrm{CE}(y, \hat p^l) + \lambda\, \mathrm{IC}^l_{\mathrm{norm}}$$

    The summand of Eq. 6 of [Regol2024].

    Args:
        cross_entropies: `W x N x L`, or `N x L` where all cost weights share the classifiers.
        relative_costs: `L` or `N x L` costs of leaving at each exit, relative to the last exit's.
        cost_weights: `W` weights, lambda.

    Returns:
        `W x N x L` priced losses.

    Example:
        >>> priced_losses(torch.tensor([[1.0, 0.5]]), torch.tensor([0.5, 1.0]), torch.tensor([2.0]))
        tensor([[[2.0000, 2.5000]]])
    """
    return cross_entropies + cost_weights[:, None, None] * relative_costs


def best_exit(priced: Tensor) -> Tensor:
    r"""Return the best exit of each sample, $l^* = \arg\min_l C^l$; ties go to the earliest.

    Args:
        priced: `... x L` priced losses of all L exits.

    Returns:
        `...` exit indices, 0-based.

    Example:
        >>> best_exit(torch.tensor([[2.0, 1.0, 1.0]]))
        tensor([1])
    """
    return priced.argmin(-1)


def gate_targets(priced: Tensor, *, kind: GateTarget = "exit_subsequent") -> Tensor:
    r"""Return the binary target of each gate.

    `exit_subsequent` (the paper): $t^l = 1$ for $l \ge l^*$. `exit_if_min` (its ablation): $t^l = 1$ at $l^*$ and at
    every later exit whose priced loss is below that of all exits after it. Section 4.1 and the appendix of [Regol2024].

    Args:
        priced: `... x L` priced losses, the final exit included.
        kind: One of the two targets.

    Returns:
        `... x (L-1)` booleans: the final exit has no gate.

    Example:
        >>> priced = torch.tensor([[4.0, 1.0, 3.0, 2.0, 5.0]])
        >>> gate_targets(priced)
        tensor([[False,  True,  True,  True]])
        >>> gate_targets(priced, kind="exit_if_min")
        tensor([[False,  True, False,  True]])
    """
    if kind not in get_args(GateTarget):
        raise unknown_name("gate target", kind, get_args(GateTarget))
    best = best_exit(priced)[..., None]
    exits = torch.arange(priced.shape[-1] - 1, device=priced.device)
    if kind == "exit_subsequent":
        return exits >= best
    least_after = priced.flip(-1).cummin(-1).values.flip(-1)[..., 1:]
    # No exit before the best one is below all exits after it; the best one itself may tie with a later one.
    return (priced[..., :-1] < least_after) | (exits == best)


def imbalance_weights(positives: Tensor, total: int) -> Tensor:
    r"""Return the weight of positive targets at each gate: negatives over positives, at most 5.

    Counted on the targets the gates are trained on: with `exit_subsequent`, positives of gate l are samples with
    $l^* \le l$. The released code counts $l^* = l$ and so pushes late gates to open. The clip at 5 is the released
    code's. A gate without positives or without negatives counts one, so that no gate loses its loss.

    Args:
        positives: `... x (L-1)` counts of positive targets.
        total: N, the number of samples counted.

    Returns:
        `... x (L-1)` weights.

    Example:
        >>> imbalance_weights(torch.tensor([1, 3]), 4)
        tensor([3.0000, 0.3333])
    """
    return ((total - positives).clamp_min(1) / positives.clamp_min(1)).clamp_max(5.0)


def weighted_loss(losses: Tensor, probability: Tensor) -> Tensor:
    r"""Return the paper's inner loss: each sample counts at an exit by its probability of leaving there.

    $$L^{\mathrm{in}} = \frac1N \sum_i \sum_l P(G = l \mid x_i)\, \mathrm{CE}^l_i$$

    Eq. 13 of [Regol2024] with only the first term of its gradient, Eq. 14: $P$ is held constant, and the cost term,
    which then has no gradient, is left out.

    Args:
        losses: `W x N x L` cross-entropies.
        probability: `W x N x L` exit distribution.

    Returns:
        `W` losses.

    Example:
        >>> weighted_loss(torch.tensor([[[1.0, 3.0]]]), torch.tensor([[[0.5, 0.5]]]))
        tensor([2.])
    """
    return (probability.detach() * losses).sum(-1).mean(-1)


def rescaled_loss(losses: Tensor, probability: Tensor) -> Tensor:
    r"""Return the weighted loss, scaled to the value of the unweighted one.

    $$\rho \cdot L^{\mathrm{in}}, \qquad \rho = \sum_{i,l} \mathrm{CE}^l_i \Big/ \sum_{i,l} P^l_i\, \mathrm{CE}^l_i
    \quad\text{(constant)}$$

    The intention of the released code; it does not hold $\rho$ constant, and so trains `plain_loss`. The loss differs
    from `weighted_loss` by a factor only, which Adam nearly cancels.

    Args:
        losses: `W x N x L` cross-entropies.
        probability: `W x N x L` exit distribution.

    Returns:
        `W` losses, equal in value to `plain_loss`.

    Example:
        >>> rescaled_loss(torch.tensor([[[1.0, 3.0]]]), torch.tensor([[[0.5, 0.5]]]))
        tensor([4.])
    """
    weighted = weighted_loss(losses, probability)
    plain = plain_loss(losses).detach()
    # Where all exits answer perfectly, both losses are 0.
    ratio = plain / weighted.detach().clamp_min(plain.new_tensor(1e-30))
    return ratio * weighted


def plain_loss(losses: Tensor) -> Tensor:
    r"""Return the loss of every classifier on every sample: $\frac1N \sum_i \sum_l \mathrm{CE}^l_i$.

    The released code of [Regol2024] trains this loss: its rescaling ratio is not held constant, so that $P$ cancels.

    Args:
        losses: `... x N x L` cross-entropies.

    Returns:
        `...` losses.

    Example:
        >>> plain_loss(torch.tensor([[[1.0, 3.0]]]))
        tensor([4.])
    """
    return losses.sum(-1).mean(-1)


def full_loss(priced: Tensor, probability: Tensor) -> Tensor:
    r"""Return the whole objective, with gradient through the gates as well.

    $$L = \frac1N \sum_i \sum_l P(G = l \mid x_i)\, (\mathrm{CE}^l_i + \lambda\, \mathrm{IC}^l_{\mathrm{norm}})$$

    Eq. 9 of [Regol2024] with both terms of Eq. 14 (JEI-DNN-FULL). `probability` must not be detached from the
    classifiers.

    Args:
        priced: `W x N x L` priced losses.
        probability: `W x N x L` exit distribution.

    Returns:
        `W` losses.

    Example:
        >>> full_loss(torch.tensor([[[1.0, 3.0]]]), torch.tensor([[[0.5, 0.5]]]))
        tensor([2.])
    """
    return (probability * priced).sum(-1).mean(-1)


def gate_loss(gate_logits: Tensor, targets: Tensor, positive_weights: Tensor) -> Tensor:
    r"""Return the surrogate outer loss: each gate's binary cross-entropy against its target.

    $$L^{\mathrm{out}} \approx \frac1N \sum_i \sum_{l<L} \mathrm{BCE}(t^l_i, g^l_i)$$

    Eq. 16 of [Regol2024], positives weighted against imbalance.

    Args:
        gate_logits: `W x N x (L-1)` scores before the sigmoid.
        targets: `W x N x (L-1)` booleans.
        positive_weights: `W x (L-1)` weights of positives.

    Returns:
        `W` losses.

    Example:
        >>> gate_loss(torch.zeros(1, 1, 1), torch.tensor([[[True]]]), torch.tensor([[2.0]]))
        tensor([1.3863])
    """
    per_gate = F.binary_cross_entropy_with_logits(
        gate_logits, targets.to(gate_logits.dtype), pos_weight=positive_weights[:, None, :], reduction="none"
    )
    return per_gate.sum(-1).mean(-1)
