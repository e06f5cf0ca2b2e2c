"""Distillation: every exit learns from what the network's last head says, beside the labels."""

import torch
import torch.nn.functional as F
from torch import Tensor

from offramp.cost import Prices
from offramp.exits import stack_exits
from offramp.features import Batch, BatchSource
from offramp.functional import cross_entropies, log_probabilities, plain_loss
from offramp.methods.fitted import FittedExits
from offramp.methods.fresh import begun_exits
from offramp.methods.method import METHODS
from offramp.methods.settings import DEFAULT, JointSettings
from offramp.methods.steps import classifier_optimizer, descend, seeded

__all__ = ["distillation_loss", "fit_distilled", "raised_temperature"]

SHARE = 0.5
"""Of the head's answers in the loss, beside the labels: that of the released code."""

RISE = 1.05
"""The factor by which a temperature is raised after a step: that of the released code."""


def fit_distilled(fit: BatchSource, tune: BatchSource, costs: Prices, settings: JointSettings = DEFAULT) -> FittedExits:
    r"""Fit classifiers on labels and on the answers of the network's last head; no gates.

    $$\sum_l (1 - a)\, \mathrm{CE}^l + a\, \tau^2\, \mathrm{KL}\big(\mathrm{softmax}(z^L/\tau) \,\|\,
    \mathrm{softmax}(z^l/\tau)\big)$$

    with z the logits, a the `SHARE` and tau the `raised_temperature`, 1 at first. It is what [Phuong2019] (Phuong,
    Lampert: Distillation-Based Training for Multi-Exit Architectures, ICCV 2019) train with, the last exit as the
    teacher; here it is frozen and does not learn. Their optimiser, SGD, is that of whole networks; this has that of
    `fit_classifiers`.

    Args:
        fit: Samples that classifiers learn from. On those that the network has memorised it says little but the label.
        tune: Samples that tell how far the heads of a cascade answer together.
        costs: What the backbone and its exits cost; it plays no part.
        settings: How to fit, as for `fit_classifiers`.

    Example:
        >>> from offramp.cost import BackboneMulAdds
        >>> from offramp.features import MemorySource
        >>> ones = torch.ones(1, 2, dtype=torch.float64)
        >>> costs = BackboneMulAdds(ones, ones, ones, full=ones[0, :1])
        >>> samples = MemorySource(torch.eye(4), {1: torch.eye(4)[:, :2]}, torch.arange(4) % 2, (2, 2))
        >>> fit_distilled(samples, samples, costs, JointSettings()).gates is None
        True
    """
    temperature = 1.0
    with seeded(settings.seed):
        bank = begun_exits(fit, tune, settings).train()

        def loss_of(batch: Batch) -> Tensor:
            nonlocal temperature
            teacher = batch.own_logits[fit.own_heads[-1]].float()
            answers = stack_exits(bank(batch.features.float()))
            loss = distillation_loss(answers, teacher, batch.labels, temperature=temperature)
            temperature = raised_temperature(teacher, temperature)
            return loss.sum()

        epochs = settings.warmup_epochs + settings.epochs
        descend(classifier_optimizer(bank, settings), loss_of, fit, settings, epochs=epochs)
    return FittedExits(bank.eval(), None, torch.tensor(settings.cost_weights))


def raised_temperature(teacher: Tensor, temperature: float) -> float:
    """A temperature that is raised as long as the teacher's answers are too sure to tell more than a class.

    [Phuong2019] raise it while the mean confidence exceeds .5, of 100 and 1,000 classes: about halfway between chance
    and certainty, and with fewer classes so it is here.

    Args:
        teacher: `n x K` logits.
        temperature: So far.

    Returns:
        The next temperature.

    Example:
        >>> raised_temperature(torch.tensor([[9.0, 0.0]]), 1.0), raised_temperature(torch.tensor([[1.0, 0.0]]), 1.0)
        (1.05, 1.0)
    """
    confidence = (teacher / temperature).softmax(-1).amax(-1).mean()
    halfway = 0.5 + 0.5 / teacher.shape[-1]
    return temperature * RISE if confidence > halfway else temperature


def distillation_loss(logits: Tensor, teacher: Tensor, labels: Tensor, *, temperature: float) -> Tensor:
    """Labels and the teacher's softened answers, summed over exits, a mean over samples.

    Args:
        logits: `W x n x E x K` of the exits.
        teacher: `n x K` logits.
        labels: `n` classes.
        temperature: Of both sides.

    Returns:
        `W` losses.

    Example:
        >>> same = torch.tensor([[2.0, 0.0]])
        >>> distillation_loss(same[None, :, None], same, torch.tensor([0]), temperature=3.0)  # half of the labels'
        tensor([0.0635])
    """
    hard = plain_loss(cross_entropies(log_probabilities(logits), labels))
    softened = log_probabilities(logits / temperature)
    target = (teacher / temperature).softmax(-1)[:, None].expand_as(softened)
    soft = plain_loss(F.kl_div(softened, target, reduction="none").sum(-1))
    return (1 - SHARE) * hard + SHARE * temperature**2 * soft


METHODS.add("distilled", fit_distilled)
