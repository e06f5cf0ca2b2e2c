r"""The two levels of the paper's objective, for W cost weights at once.

Every loss keeps the leading axis of cost weights and returns `W` numbers. Their sum is what an optimiser steps on: each
cost weight's parameters then receive exactly the gradient they would receive alone.
"""

from typing import Literal

import torch.nn.functional as F
from torch import Tensor

from offramp.functional.evidence import samples_last

__all__ = [
    "ClassifierLoss",
    "cross_entropies",
    "full_loss",
    "gate_loss",
    "plain_loss",
    "rescaled_loss",
    "weighted_loss",
]

ClassifierLoss = Literal["weighted", "rescaled", "plain", "full"]


def cross_entropies(log_probabilities: Tensor, labels: Tensor) -> Tensor:
    """Cross-entropy of every exit's answer.

    Args:
        log_probabilities: `... x N x L x K`.
        labels: `N` classes.

    Returns:
        `... x N x L` losses.

    Example:
        >>> import torch
        >>> cross_entropies(torch.tensor([[[0.25, 0.75]]]).log(), torch.tensor([1]))
        tensor([[0.2877]])
    """
    log_p = samples_last(log_probabilities)
    return -log_p.gather(0, labels.expand(1, *log_p.shape[1:])).squeeze(0).transpose(-1, -2)


def weighted_loss(losses: Tensor, probability: Tensor) -> Tensor:
    r"""The paper's inner loss: each sample counts at an exit as often as it leaves there.

    $$L^{\mathrm{in}} = \frac1N \sum_i \sum_l P(G = l \mid x_i)\, \mathrm{CE}^l_i$$

    Eq. 13 of [Regol2024] with the first term of its gradient, Eq. 14, alone: $P$ is held constant, and the cost term,
    which then has no gradient, is left out.

    Args:
        losses: `W x N x L` cross-entropies.
        probability: `W x N x L` exit distribution.

    Returns:
        `W` losses.

    Example:
        >>> import torch
        >>> weighted_loss(torch.tensor([[[1.0, 3.0]]]), torch.tensor([[[0.5, 0.5]]]))
        tensor([2.])
    """
    return (probability.detach() * losses).sum(-1).mean(-1)


def rescaled_loss(losses: Tensor, probability: Tensor) -> Tensor:
    r"""The weighted loss, scaled to the size of the unweighted one.

    $$\rho \cdot L^{\mathrm{in}}, \qquad \rho = \sum_{i,l} \mathrm{CE}^l_i \Big/ \sum_{i,l} P^l_i\, \mathrm{CE}^l_i
    \quad\text{(constant)}$$

    What the released code meant to do; it does not hold $\rho$ constant, and then `plain_loss` is what it trains. It
    differs from `weighted_loss` by a factor alone, which Adam nearly cancels.

    Args:
        losses: `W x N x L` cross-entropies.
        probability: `W x N x L` exit distribution.

    Returns:
        `W` losses, equal in value to `plain_loss`.

    Example:
        >>> import torch
        >>> rescaled_loss(torch.tensor([[[1.0, 3.0]]]), torch.tensor([[[0.5, 0.5]]]))
        tensor([4.])
    """
    weighted = weighted_loss(losses, probability)
    plain = plain_loss(losses).detach()
    # Exits that answer perfectly leave nothing to rescale.
    ratio = plain / weighted.detach().clamp_min(plain.new_tensor(1e-30))
    return ratio * weighted


def plain_loss(losses: Tensor) -> Tensor:
    r"""Every classifier on every sample alike: $\frac1N \sum_i \sum_l \mathrm{CE}^l_i$.

    What the released code of [Regol2024] trains, because its rescaling ratio is not held constant and $P$ cancels.

    Args:
        losses: `... x N x L` cross-entropies.

    Returns:
        `...` losses.

    Example:
        >>> import torch
        >>> plain_loss(torch.tensor([[[1.0, 3.0]]]))
        tensor([4.])
    """
    return losses.sum(-1).mean(-1)


def full_loss(priced: Tensor, probability: Tensor) -> Tensor:
    r"""The whole objective, with gradient through the gates as well.

    $$L = \frac1N \sum_i \sum_l P(G = l \mid x_i)\, (\mathrm{CE}^l_i + \lambda\, \mathrm{IC}^l_{\mathrm{norm}})$$

    Eq. 9 of [Regol2024] with both terms of Eq. 14 (JEI-DNN-FULL). `probability` must not be detached from the
    classifiers.

    Args:
        priced: `W x N x L` priced losses.
        probability: `W x N x L` exit distribution.

    Returns:
        `W` losses.

    Example:
        >>> import torch
        >>> full_loss(torch.tensor([[[1.0, 3.0]]]), torch.tensor([[[0.5, 0.5]]]))
        tensor([2.])
    """
    return (probability * priced).sum(-1).mean(-1)


def gate_loss(gate_logits: Tensor, targets: Tensor, positive_weights: Tensor) -> Tensor:
    r"""The surrogate outer loss: each gate's binary cross-entropy against its target.

    $$L^{\mathrm{out}} \approx \frac1N \sum_i \sum_{l<L} \mathrm{BCE}(t^l_i, g^l_i)$$

    Eq. 16 of [Regol2024], positives weighted against imbalance.

    Args:
        gate_logits: `W x N x (L-1)` scores before the sigmoid.
        targets: `W x N x (L-1)` booleans.
        positive_weights: `W x (L-1)` weights of positives.

    Returns:
        `W` losses.

    Example:
        >>> import torch
        >>> gate_loss(torch.zeros(1, 1, 1), torch.tensor([[[True]]]), torch.tensor([[2.0]]))
        tensor([1.3863])
    """
    per_gate = F.binary_cross_entropy_with_logits(
        gate_logits, targets.to(gate_logits.dtype), pos_weight=positive_weights[:, None, :], reduction="none"
    )
    return per_gate.sum(-1).mean(-1)
