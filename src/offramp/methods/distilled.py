"""Distillation: every exit learns from what the whole network says, beside the labels."""

import torch
from torch import Tensor

from offramp.cost import Prices
from offramp.exits import stack_exits
from offramp.features import Batch, BatchSource
from offramp.functional import cross_entropies, log_probabilities, plain_loss
from offramp.methods.fitted import FittedExits
from offramp.methods.fresh import begun_exits
from offramp.methods.method import METHODS
from offramp.methods.settings import JointSettings
from offramp.methods.steps import check_samples, classifier_optimizer, descend, seeded

__all__ = ["distillation_loss", "fit_distilled", "raised_temperature"]

SHARE = 0.5
"""Of the network's answers in the loss, beside the labels, as published."""

RISE = 1.05
"""The factor by which a temperature is raised at a step, as published."""


def fit_distilled(fit: BatchSource, tune: BatchSource, costs: Prices, settings: JointSettings) -> FittedExits:
    r"""Fit classifiers on labels and on the network's own answers in equal parts; no gates.

    $$\tfrac12 \mathrm{CE}^l + \tfrac12 \tau^2\, \mathrm{KL}\big(\mathrm{softmax}(z^L/\tau) \,\|\,
    \mathrm{softmax}(z^l/\tau)\big)$$

    summed over exits, z the logits, with the temperature of `raised_temperature`. [Phuong2019] is Phuong, Lampert:
    Distillation-Based Training for Multi-Exit Architectures, ICCV 2019. With a frozen trunk the teacher stays as it is.

    Args:
        fit: Samples that classifiers learn from. On those that the network has memorised it says little but the label.
        tune: Samples that tell how far the heads of a chain answer together.
        costs: What the trunk and its exits cost; it plays no part.
        settings: How to fit, as for `fit_classifiers`.

    Example:
        >>> from offramp.cost import TrunkMulAdds
        >>> from offramp.features import MemorySource
        >>> ones = torch.ones(1, 2, dtype=torch.float64)
        >>> costs = TrunkMulAdds(ones, ones, ones, bare=ones[0, :1])
        >>> samples = MemorySource(torch.eye(4), {1: torch.eye(4)[:, :2]}, torch.arange(4) % 2, (2, 2))
        >>> fit_distilled(samples, samples, costs, JointSettings()).gates is None
        True
    """
    check_samples(fit, tune)
    temperature = 1.0
    with seeded(settings.seed):
        bank = begun_exits(fit, tune, settings).train()

        def loss_of(batch: Batch) -> Tensor:
            nonlocal temperature
            teacher = batch.own_logits[fit.own_heads[-1]].float()
            temperature = raised_temperature(teacher, temperature)
            return distillation_loss(stack_exits(bank(batch.features.float())), teacher, batch.labels, temperature)

        epochs = settings.warmup_epochs + settings.epochs
        descend(classifier_optimizer(bank, settings), loss_of, fit, settings, epochs=epochs)
    return FittedExits(bank.eval(), None, torch.tensor(settings.cost_weights))


def raised_temperature(teacher: Tensor, temperature: float) -> float:
    """A temperature that is raised as long as the teacher's answers are too sure to tell more than a class.

    [Phuong2019] raise it while the mean confidence exceeds .5, of a hundred classes or more; that is halfway between
    chance and certainty, and of fewer classes so it is here.

    Args:
        teacher: `n x K` logits.
        temperature: So far.

    Example:
        >>> raised_temperature(torch.tensor([[9.0, 0.0]]), 1.0), raised_temperature(torch.tensor([[1.0, 0.0]]), 1.0)
        (1.05, 1.0)
    """
    confidence = (teacher / temperature).softmax(-1).amax(-1).mean()
    halfway = 0.5 + 0.5 / teacher.shape[-1]
    return temperature * RISE if confidence > halfway else temperature


def distillation_loss(logits: Tensor, teacher: Tensor, labels: Tensor, temperature: float) -> Tensor:
    """Labels and the teacher's softened answers, in equal parts, summed over exits.

    Args:
        logits: `1 x n x E x K` of the exits.
        teacher: `n x K` logits.
        labels: `n` classes.
        temperature: Of both sides.

    Example:
        >>> same = torch.tensor([[2.0, 0.0]])
        >>> round(float(distillation_loss(same[None, :, None], same, torch.tensor([0]), 3.0)), 4)  # half of the labels'
        0.0635
    """
    hard = plain_loss(cross_entropies(log_probabilities(logits), labels))
    softened = log_probabilities(logits / temperature)
    target = log_probabilities(teacher / temperature)[:, None]
    soft = plain_loss((target.exp() * (target - softened)).sum(-1))
    return ((1 - SHARE) * hard + SHARE * temperature**2 * soft).sum()


METHODS.add("distilled", fit_distilled)
