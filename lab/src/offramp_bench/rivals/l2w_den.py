"""L2W-DEN: exits on samples that a small network weighs, and learns to."""

from dataclasses import replace

import torch
from torch.optim import Adam

from offramp.cost._table import Prices
from offramp.features import BatchSource
from offramp.features._batch import Batch
from offramp.methods._initialization import initialize_exits
from offramp.methods._method import FittedExits
from offramp.methods._settings import PAPER, JointSettings
from offramp.methods._steps import (
    batches_of,
    check_finite,
    classifier_optimizer,
    cosine_rate,
    cosine_step,
    seeded,
)
from offramp_bench.rivals.weighing import exit_losses, meta_loss, sample_weights, weighing_network

__all__ = ["fit_l2w_den"]

VIRTUAL_RATE = 0.1
"""Of the virtual steps, at its peak: the published rate of real ones."""

EVERY = 10
"""Batches from one step of the network that weighs to the next. Published are 1 for CIFAR and 100 for ImageNet and in
the literature's port to frozen backbones; here 100 would be some thirty steps in a fit, and 1 three times the time for
the same accuracy (CIFAR-10 on a ResNet-56: within .2 points at every cost)."""

WEIGHING_RATE = 1e-4
"""Of the network that weighs (Adam), and its decay."""


def fit_l2w_den(fit: BatchSource, tune: BatchSource, costs: Prices, settings: JointSettings = PAPER) -> FittedExits:
    """Fit linear exits on losses weighed by a network that learns to weigh; no gates.

    [L2W-DEN] (Han et al.: Learning to Weight Samples for Dynamic Early-Exiting Networks, ECCV 2022) with a frozen
    backbone. Each batch is halved: the network takes a step on the `meta_loss` of one half after a virtual step on the
    other, exits take a real step on that other half, and the halves change places; the network learns with every tenth
    batch. Weights are 1 +- .3, as in the literature's port to frozen backbones. Exits are trained by the optimiser of
    `fit_classifiers`, virtual steps are those of plain gradient descent. The network's own heads do not learn and are
    not weighed.

    Args:
        fit: Samples to learn from.
        tune: Samples that tell how far the heads of a cascade answer together.
        costs: What the backbone and its exits cost; it plays no part.
        settings: How to fit; the exits are linear whatever it says.

    Example:
        >>> from offramp.cost._mul_adds import BackboneMulAdds
        >>> from offramp.features._batch import MemorySource
        >>> ones = torch.ones(1, 2, dtype=torch.float64)
        >>> costs = BackboneMulAdds(ones, ones, ones, full=ones[0, :1])
        >>> samples = MemorySource(torch.eye(4), {1: torch.eye(4)[:, :2]}, torch.arange(4) % 2, (2, 2))
        >>> type(fit_l2w_den(samples, samples, costs, JointSettings()).exits).__name__
        'LinearExits'
    """
    epochs = settings.warmup_epochs + settings.epochs
    with seeded(settings.seed):
        exits = initialize_exits(fit, tune, replace(settings, exits="linear"))
        optimizer = classifier_optimizer(exits, settings)
        network = weighing_network(len(exits.stages))
        learned = list(network.parameters())
        weighing = Adam(learned, lr=WEIGHING_RATE, weight_decay=WEIGHING_RATE, fused=True)
        batches = 0
        for epoch in range(epochs):
            total = 0.0
            for progress, batch in batches_of(fit, settings, epoch, first_epoch=0, epochs=epochs):
                for taught, judged in _halves(batch):
                    if len(judged.labels) and batches % EVERY == 0:
                        rate = VIRTUAL_RATE * cosine_rate(progress)
                        weighing.zero_grad()
                        torch.autograd.backward(meta_loss(exits, network, taught, judged, rate=rate), inputs=learned)
                        weighing.step()
                    losses = exit_losses(exits, taught)
                    loss = (sample_weights(network, losses).detach() * losses).sum(1).mean()
                    cosine_step(optimizer, loss, progress)
                    total += loss.item()
                batches += 1
            check_finite(total, epoch + 1)
    return FittedExits(exits.eval())


def _halves(batch: Batch) -> list[tuple[Batch, Batch]]:
    """Each half of a batch with the other; of a single sample, it with nothing."""
    cut = (len(batch.labels) + 1) // 2
    one, other = batch.take(slice(cut)), batch.take(slice(cut, None))
    return [(one, other), (other, one)] if len(other.labels) else [(one, other)]
