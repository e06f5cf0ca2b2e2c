"""Distillation: exits learn from the labels and from the answers of the network's last head."""

import torch.nn.functional as F
from torch import Tensor

from offramp.cost._table import Prices
from offramp.exits._exit_set import stack_exits
from offramp.features import BatchSource
from offramp.features._batch import Batch
from offramp.functional._objective import cross_entropies, plain_loss
from offramp.functional._statistics import log_probabilities
from offramp.methods._initialization import initialize_exits
from offramp.methods._method import METHODS, FittedExits
from offramp.methods._settings import DEFAULT, JointSettings
from offramp.methods._steps import classifier_optimizer, descend, seeded

__all__ = ["distillation_loss", "fit_distilled", "raise_temperature"]

SHARE = 0.5
"""Share of the teacher's answers in the loss, as in the released code."""

RISE = 1.05
"""Factor by which the temperature is raised after a step, as in the released code."""


def fit_distilled(fit: BatchSource, tune: BatchSource, costs: Prices, settings: JointSettings = DEFAULT) -> FittedExits:
    r"""Fit classifiers on labels and on the answers of the network's last head, without gates.

    $$\sum_l (1 - a)\, \mathrm{CE}^l + a\, \tau^2\, \mathrm{KL}\big(\mathrm{softmax}(z^L/\tau) \,\|\,
    \mathrm{softmax}(z^l/\tau)\big)$$

    with z the logits, a the `SHARE` and tau the temperature, 1 at first and raised by `raise_temperature`. The loss of
    [Phuong2019] (Phuong, Lampert: Distillation-Based Training for Multi-Exit Architectures, ICCV 2019), with the last
    exit as the teacher; here the teacher is frozen, and the optimiser is that of `fit_classifiers`, not SGD.

    Args:
        fit: Samples to train on; if the network has memorised them, its answers add little to the labels.
        tune: Samples to fit the averaging of a cascade's heads on.
        costs: Costs of the backbone and its exits; they do not affect the result.
        settings: Settings, as for `fit_classifiers`.
    """
    del costs
    temperature = 1.0
    with seeded(settings.seed):
        exits = initialize_exits(fit, tune, settings).train()

        def loss_of(batch: Batch) -> Tensor:
            nonlocal temperature
            teacher = batch.own_logits[fit.own_heads[-1]].float()
            answers = stack_exits(exits(batch.features.float()))
            loss = distillation_loss(answers, teacher, batch.labels, temperature=temperature)
            temperature = raise_temperature(teacher, temperature)
            return loss.sum()

        epochs = settings.warmup_epochs + settings.epochs
        descend(classifier_optimizer(exits, settings), loss_of, fit, settings, epochs=epochs)
    return FittedExits(exits.eval())


def raise_temperature(teacher: Tensor, temperature: float) -> float:
    """Raise the temperature by `RISE` while the teacher's mean confidence is above halfway between chance and 1.

    [Phuong2019] raise it while the mean confidence exceeds 0.5, for 100 and 1,000 classes.

    Args:
        teacher: `n x K` logits.
        temperature: The current temperature.
    """
    confidence = (teacher / temperature).softmax(-1).amax(-1).mean()
    halfway = 0.5 + 0.5 / teacher.shape[-1]
    return temperature * RISE if confidence > halfway else temperature


def distillation_loss(logits: Tensor, teacher: Tensor, labels: Tensor, *, temperature: float) -> Tensor:
    """Return the loss against labels and the teacher's softened answers: a sum over exits, a mean over samples.

    Args:
        logits: `W x n x E x K` of the exits.
        teacher: `n x K` logits.
        labels: `n` classes.
        temperature: Temperature of exits and teacher in the soft part.

    Returns:
        `W` losses.
    """
    hard = plain_loss(cross_entropies(log_probabilities(logits), labels))
    softened = log_probabilities(logits / temperature)
    target = (teacher / temperature).softmax(-1)[:, None].expand_as(softened)
    soft = plain_loss(F.kl_div(softened, target, reduction="none").sum(-1))
    return (1 - SHARE) * hard + SHARE * temperature**2 * soft


METHODS.add("distilled", fit_distilled)
