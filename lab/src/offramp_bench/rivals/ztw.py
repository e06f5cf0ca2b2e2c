"""Zero Time Waste: classifiers as they are, every answer put together with those before."""

import torch
from torch import Tensor
from torch.optim import Adam

from offramp.cost._table import Prices
from offramp.exits._exit_set import stack_exits
from offramp.features import BatchSource
from offramp.features._batch import Batch
from offramp.functional._objective import cross_entropies, plain_loss
from offramp.functional._statistics import log_probabilities
from offramp.methods._joint import fit_classifiers
from offramp.methods._method import FittedExits
from offramp.methods._settings import PAPER, JointSettings
from offramp.methods._steps import descend, remember_rates, seeded
from offramp_bench.rivals.ensembled_exits import EnsembledExits

__all__ = ["fit_ztw"]

EPOCHS = 2
"""Of the ensembles, as published; they come after those of the classifiers."""

LEARNING_RATE = 1e-2
"""Of the ensembles (Adam): ten times the published one, made for few classifiers. Two epochs of 200 steps at 1e-3
hardly move weights from the plain mean, and of 26 exits of a ResNet-56 that is far worse than the exits by themselves.
"""


def fit_ztw(fit: BatchSource, tune: BatchSource, costs: Prices, settings: JointSettings = PAPER) -> FittedExits:
    """Fit classifiers alone, then weights and biases that put each together with those before it; no gates.

    [ZTW] with a frozen backbone, see `exits.EnsembledExits`: `fit_classifiers`, then two epochs on the sum of the
    ensembles' cross-entropies, classifiers held fixed. Left out is its other half, connections that hand a classifier
    the answer before.

    Args:
        fit: Samples to learn from.
        tune: Samples that tell how far the heads of a cascade answer together.
        costs: What the backbone and its exits cost; it plays no part.
        settings: How to fit the classifiers.

    Example:
        >>> from offramp.cost._mul_adds import BackboneMulAdds
        >>> from offramp.features._batch import MemorySource
        >>> ones = torch.ones(1, 2, dtype=torch.float64)
        >>> costs = BackboneMulAdds(ones, ones, ones, full=ones[0, :1])
        >>> samples = MemorySource(torch.eye(4), {1: torch.eye(4)[:, :2]}, torch.arange(4) % 2, (2, 2))
        >>> type(fit_ztw(samples, samples, costs, JointSettings()).exits).__name__
        'EnsembledExits'
    """
    trained = fit_classifiers(fit, tune, costs, settings)
    first = settings.warmup_epochs + settings.epochs
    with seeded(settings.seed):
        exits = EnsembledExits(trained.exits).eval()
        optimizer = Adam([exits.weight, exits.bias], lr=LEARNING_RATE, fused=True)
        remember_rates([optimizer])

        def loss_of(batch: Batch) -> Tensor:
            with torch.no_grad():
                members = exits.members(batch.features.float())
            log_q = log_probabilities(stack_exits(exits.ensembled(members)))
            return plain_loss(cross_entropies(log_q, batch.labels)).sum()

        descend(optimizer, loss_of, fit, settings, first_epoch=first, epochs=EPOCHS)
    return FittedExits(exits)
