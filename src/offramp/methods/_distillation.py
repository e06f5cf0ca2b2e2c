"""Distillation: exits learn from the labels and from the answers of the network's last head."""

import torch.nn.functional as F
from torch import Tensor

from offramp.functional._objective import cross_entropies, plain_loss
from offramp.functional._statistics import log_probabilities

__all__ = ["distillation_loss", "raise_temperature"]

RISE = 1.05
"""Factor by which the temperature is raised after a step, as in the released code."""


def raise_temperature(teacher: Tensor, temperature: Tensor) -> Tensor:
    """Raise the temperature by `RISE` while the teacher's mean confidence is above halfway between chance and 1.

    [Phuong2019] raise it while the mean confidence exceeds 0.5, for 100 and 1,000 classes.

    Args:
        teacher: `n x K` logits.
        temperature: The current temperature, one number.
    """
    confidence = (teacher / temperature).softmax(-1).amax(-1).mean()
    halfway = 0.5 + 0.5 / teacher.shape[-1]
    return temperature * RISE if confidence > halfway else temperature


def distillation_loss(logits: Tensor, teacher: Tensor, labels: Tensor, *, temperature: Tensor, share: float) -> Tensor:
    r"""Return the loss against labels and the teacher's softened answers: a sum over exits, a mean over samples.

    $$\sum_l (1 - a)\, \mathrm{CE}^l + a\, \tau^2\, \mathrm{KL}\big(\mathrm{softmax}(z^L/\tau) \,\|\,
    \mathrm{softmax}(z^l/\tau)\big)$$

    with z the logits, a the share and tau the temperature, 1 at first and raised by `raise_temperature`. The loss of
    [Phuong2019] (Phuong, Lampert: Distillation-Based Training for Multi-Exit Architectures, ICCV 2019), with the last
    exit as the teacher; here the teacher is frozen.

    Args:
        logits: `W x n x E x K` of the exits.
        teacher: `n x K` logits.
        labels: `n` classes.
        temperature: Temperature of exits and teacher in the soft part.
        share: Share of the soft part; 0.5 in the released code.

    Returns:
        `W` losses.
    """
    hard = plain_loss(cross_entropies(log_probabilities(logits), labels))
    softened = log_probabilities(logits / temperature)
    target = (teacher / temperature).softmax(-1)[:, None].expand_as(softened)
    soft = plain_loss(F.kl_div(softened, target, reduction="none").sum(-1))
    return (1 - share) * hard + share * temperature**2 * soft
