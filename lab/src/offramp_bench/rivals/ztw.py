"""Zero Time Waste: classifiers that read the previous answer, and ensembles of all answers so far."""

import torch
from torch import Tensor
from torch.optim import Adam

from offramp.cost._table import Prices
from offramp.exits import ExitSet
from offramp.exits._exit_set import stack_exits
from offramp.features import BatchSource
from offramp.features._batch import Batch
from offramp.functional._objective import cross_entropies, plain_loss
from offramp.functional._statistics import log_probabilities
from offramp.methods._initialization import check_samples, fit_averaging
from offramp.methods._joint import fit_classifiers
from offramp.methods._method import FittedExits
from offramp.methods._settings import PAPER, JointSettings
from offramp.methods._steps import classifier_optimizer, descend, remember_rates, seeded
from offramp_bench.rivals.cascaded_exits import CascadedExits
from offramp_bench.rivals.ensembled_exits import EnsembledExits

__all__ = ["fit_ztw", "fit_ztw_ensemble"]


def fit_ztw(fit: BatchSource, tune: BatchSource, costs: Prices, settings: JointSettings = PAPER) -> FittedExits:
    """Fit linear classifiers with cascade connections, then the ensembles of all answers so far; no gates.

    [ZTW] with a frozen backbone: `CascadedExits` on the sum of their cross-entropies, then, classifiers held fixed,
    `EnsembledExits` on the sum of the ensembles' cross-entropies. Both phases last for all the epochs of `settings`:
    classifiers at `warmup_learning_rate` by the optimiser of `fit_classifiers`, ensembles at `learning_rate` by Adam
    without decay. Published are, for ensembles, 2 epochs at 1e-3 (ImageNet, 20,000 steps each) or 501 epochs at 5e-4
    (CIFAR): both are far more steps than an epoch here has, so the caller sets the number and the rate.

    Args:
        fit: Samples to train on.
        tune: Samples to fit the averaging of a cascade's heads on.
        costs: Costs of the backbone and its exits; they do not affect the result.
        settings: Settings of the fit; the exits are linear with connections in any case.

    Example:
        >>> from offramp.cost._mul_adds import BackboneMulAdds
        >>> from offramp.features._batch import MemorySource
        >>> ones = torch.ones(1, 2, dtype=torch.float64)
        >>> costs = BackboneMulAdds(ones, ones, ones, full=ones[0, :1])
        >>> samples = MemorySource(torch.eye(4), {1: torch.eye(4)[:, :2]}, torch.arange(4) % 2, (2, 2))
        >>> type(fit_ztw(samples, samples, costs, JointSettings()).exits.exits).__name__
        'CascadedExits'
    """
    del costs
    check_samples(fit, tune)
    with seeded(settings.seed):
        stages = tuple(stage for stage in range(len(fit.widths)) if stage not in fit.own_heads)
        exits = CascadedExits(fit.widths, stages, fit.num_classes)
        exits.averaging = fit_averaging(tune)

        def loss_of(batch: Batch) -> Tensor:
            log_p = log_probabilities(stack_exits(exits(batch.features.float())))
            return plain_loss(cross_entropies(log_p, batch.labels)).sum()

        epochs = settings.warmup_epochs + settings.epochs
        descend(classifier_optimizer(exits, settings), loss_of, fit, settings, epochs=epochs)
    return _fit_ensembles(exits, fit, settings)


def fit_ztw_ensemble(
    fit: BatchSource, tune: BatchSource, costs: Prices, settings: JointSettings = PAPER
) -> FittedExits:
    """Fit classifiers alone, then the ensembles of all answers so far: `fit_ztw` without its connections.

    Args:
        fit: Samples to train on.
        tune: Samples to fit the averaging of a cascade's heads on.
        costs: Costs of the backbone and its exits; they do not affect the result.
        settings: As for `fit_ztw`; the exits are of the kind it names.
    """
    return _fit_ensembles(fit_classifiers(fit, tune, costs, settings).exits, fit, settings)


def _fit_ensembles(classifiers: ExitSet, fit: BatchSource, settings: JointSettings) -> FittedExits:
    """Fit the ensembles of trained exits, which do not change."""
    epochs = settings.warmup_epochs + settings.epochs
    with seeded(settings.seed):
        exits = EnsembledExits(classifiers).eval()
        optimizer = Adam([exits.weight, exits.bias], lr=settings.learning_rate, fused=True)
        remember_rates([optimizer])

        def loss_of(batch: Batch) -> Tensor:
            with torch.no_grad():
                members = exits.members(batch.features.float())
            log_q = log_probabilities(stack_exits(exits.ensemble(members)))
            return plain_loss(cross_entropies(log_q, batch.labels)).sum()

        descend(optimizer, loss_of, fit, settings, first_epoch=epochs, epochs=epochs)
    return FittedExits(exits)
