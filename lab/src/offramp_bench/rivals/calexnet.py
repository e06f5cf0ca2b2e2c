"""CalexNet: exits that learn the network's answers, mostly from samples that reach them."""

from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from offramp.cost._table import Prices
from offramp.exits._exit_set import stack_exits
from offramp.features import BatchSource
from offramp.features._batch import Batch
from offramp.functional._statistics import log_probabilities
from offramp.methods._initialization import initialize_exits
from offramp.methods._method import FittedExits
from offramp.methods._settings import PAPER, JointSettings
from offramp.methods._steps import classifier_optimizer, descend, seeded

__all__ = ["aligned_loss", "fit_calexnet", "survival_weights"]

TEMPERATURE = 4.0
"""Temperature of the distillation: the usual one (Hinton, Vinyals, Dean: Distilling the Knowledge in a Neural Network,
2015, and most work since); the paper's abstract names none."""


def fit_calexnet(fit: BatchSource, tune: BatchSource, costs: Prices, settings: JointSettings = PAPER) -> FittedExits:
    """Fit linear exits on the `aligned_loss`: the network's softmax, and the samples that reach each exit; no gates.

    [Aperstein2026] with the linear exits of all rivals on the same features, instead of its prototype-pooling heads.
    Its per-class thresholds are the policy "class_precision". The abstract leaves open, and we chose: that all exits
    train together, the form of the weights (see `survival_weights`), and the temperature. The optimiser is that of
    `fit_classifiers`, at `warmup_learning_rate` over all epochs. Labels are not used.

    Args:
        fit: Samples to train on.
        tune: Samples to fit the averaging of a cascade's heads on.
        costs: Costs of the backbone and its exits; they do not affect the result.
        settings: Settings of the fit; the exits are linear in any case.

    Example:
        >>> from offramp.cost._mul_adds import BackboneMulAdds
        >>> from offramp.features._batch import MemorySource
        >>> ones = torch.ones(1, 2, dtype=torch.float64)
        >>> costs = BackboneMulAdds(ones, ones, ones, full=ones[0, :1])
        >>> samples = MemorySource(torch.eye(4), {1: torch.eye(4)[:, :2]}, torch.arange(4) % 2, (2, 2))
        >>> type(fit_calexnet(samples, samples, costs, JointSettings()).exits).__name__
        'LinearExits'
    """
    del costs
    epochs = settings.warmup_epochs + settings.epochs
    with seeded(settings.seed):
        exits = initialize_exits(fit, tune, replace(settings, exits="linear"))

        def loss_of(batch: Batch) -> Tensor:
            teacher = batch.own_logits[fit.own_heads[-1]].float()
            return aligned_loss(stack_exits(exits(batch.features.float()))[0], teacher)

        descend(classifier_optimizer(exits, settings), loss_of, fit, settings, epochs=epochs)
    return FittedExits(exits.eval())


def survival_weights(confidence: Tensor) -> Tensor:
    r"""Return the weight of each sample at each exit: its probability of passing all earlier exits, scaled.

    $$w^l \propto 1 - \max_{j<l} c^j, \qquad w^1 = 1$$

    scaled to mean 1 over the samples. It is the share of the global thresholds between 0 and 1 at which the sample
    passes the exits before l: one training then serves all operating points. A product of $1 - c^j$ would vanish with
    the number of exits. An exit that no sample reaches has weights of 0.

    Args:
        confidence: `n x E` largest probabilities; no gradient passes through them.

    Returns:
        `n x E` weights.

    Example:
        >>> survival_weights(torch.tensor([[0.8, 0.9, 0.9], [0.4, 0.7, 0.9]]))
        tensor([[1.0000, 0.5000, 0.5000],
                [1.0000, 1.5000, 1.5000]])
    """
    largest = confidence.detach().cummax(-1).values
    survival = F.pad(1 - largest[:, :-1], (1, 0), value=1.0).clamp_min(0)
    return survival / survival.mean(0).clamp_min(torch.finfo(survival.dtype).tiny)


def aligned_loss(logits: Tensor, teacher: Tensor) -> Tensor:
    r"""Return the divergence of the exits from the network, each sample weighted by its survival.

    $$\sum_l \frac1n \sum_i w_i^l\, T^2\, \mathrm{KL}\bigl(\mathrm{softmax}(z_i^L/T) \,\|\,
    \mathrm{softmax}(z_i^l/T)\bigr)$$

    with z the logits, w the `survival_weights` and T = 4.

    Args:
        logits: `n x E x K` of the exits.
        teacher: `n x K` of the network's last head.

    Returns:
        The loss, a number.
    """
    weights = survival_weights(log_probabilities(logits.detach()).amax(-1).exp())
    softened = log_probabilities(logits / TEMPERATURE)
    target = (teacher / TEMPERATURE).softmax(-1)[:, None].expand_as(softened)
    divergence = F.kl_div(softened, target, reduction="none").sum(-1)
    return TEMPERATURE**2 * (weights * divergence).mean(0).sum()
