"""L2W-DEN: exits trained on samples whose weights a small network learns."""

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
"""Largest learning rate of the virtual steps: the published rate of real ones."""

EVERY = 10
"""Batches between two steps of the weighing network. Published are 1 for CIFAR and 100 for ImageNet and in the
literature's port to frozen backbones; here 100 would give some thirty steps per fit, and 1 takes three times as long
for the same accuracy (CIFAR-10 on a ResNet-56: within 0.2 points at every cost)."""

WEIGHING_RATE = 1e-4
"""Learning rate of the weighing network (Adam), and its weight decay."""


def fit_l2w_den(fit: BatchSource, tune: BatchSource, costs: Prices, settings: JointSettings = PAPER) -> FittedExits:
    """Fit linear exits on losses whose weights a second network learns; no gates.

    [L2W-DEN] (Han et al.: Learning to Weight Samples for Dynamic Early-Exiting Networks, ECCV 2022) with a frozen
    backbone. Each batch is halved. The weighing network takes a step on the `meta_loss` of one half after a virtual
    step of the exits on the other, the exits take a real step on that other half, and the halves change places. The
    weighing network learns with every tenth batch. Weights are 1 +- 0.3, as in the literature's port to frozen
    backbones. Exits are trained by the optimiser of `fit_classifiers`; virtual steps are plain gradient descent. The
    backbone's own heads are not trained and not weighted.

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
        >>> type(fit_l2w_den(samples, samples, costs, JointSettings()).exits).__name__
        'LinearExits'
    """
    epochs = settings.warmup_epochs + settings.epochs
    with seeded(settings.seed):
        exits = initialize_exits(fit, tune, replace(settings, exits="linear"))
        optimizer = classifier_optimizer(exits, settings)
        network = weighing_network(len(exits.stages))
        parameters = list(network.parameters())
        network_optimizer = Adam(parameters, lr=WEIGHING_RATE, weight_decay=WEIGHING_RATE, fused=True)
        batches = 0
        for epoch in range(epochs):
            total = 0.0
            for progress, batch in batches_of(fit, settings, epoch, first_epoch=0, epochs=epochs):
                for train_batch, meta_batch in _halves(batch):
                    if len(meta_batch.labels) and batches % EVERY == 0:
                        rate = VIRTUAL_RATE * cosine_rate(progress)
                        network_optimizer.zero_grad()
                        network_loss = meta_loss(exits, network, train_batch, meta_batch, rate=rate)
                        torch.autograd.backward(network_loss, inputs=parameters)
                        network_optimizer.step()
                    losses = exit_losses(exits, train_batch)
                    loss = (sample_weights(network, losses).detach() * losses).sum(1).mean()
                    cosine_step(optimizer, loss, progress)
                    total += loss.item()
                batches += 1
            check_finite(total, epoch + 1)
    return FittedExits(exits.eval())


def _halves(batch: Batch) -> list[tuple[Batch, Batch]]:
    """Return both halves of a batch, each with the other; a single sample has an empty other half."""
    cut = (len(batch.labels) + 1) // 2
    first, second = batch.take(slice(cut)), batch.take(slice(cut, None))
    return [(first, second), (second, first)] if len(second.labels) else [(first, second)]
