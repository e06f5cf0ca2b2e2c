r"""Exits and gates trained as one mixture of answers: DiffBranch, and PTEENet without labels.

Both train on a mixture of the answers of all exits,

$$\tilde y^l = h^l p^l + (1 - h^l)\, \tilde y^{l+1}, \qquad \tilde y^L = p^L$$

and on its cost, by the same recursion; gradients pass through gates and classifiers. DiffBranch is Scardapane et al.:
Differentiable branching in deep networks for fast inference, ICASSP 2020; PTEENet is Lahiany and Aperstein:
PTEENet: Post-Trained Early-Exit Neural Networks Augmentation for Inference Cost Optimization, IEEE Access 2022.
"""

from copy import deepcopy
from dataclasses import replace

import torch
from torch import Tensor
from torch.optim import Adam

from offramp.cost._table import Prices
from offramp.exits import ExitSet, LinearExits
from offramp.exits._exit_set import all_logits
from offramp.exits._gate import Gates
from offramp.features import BatchSource
from offramp.features._batch import Batch
from offramp.functional._leaving import first_exit
from offramp.functional._objective import cross_entropies, priced_losses
from offramp.functional._statistics import log_probabilities
from offramp.methods._joint import fit_joint
from offramp.methods._method import FittedExits
from offramp.methods._settings import PAPER, JointSettings
from offramp.methods._steps import batches_of, check_finite, cosine_step, remember_rates, seeded
from offramp.policy import POLICIES
from offramp_bench.rivals.answered import AnsweredSource
from offramp_bench.rivals.evidence_gradient import differentiable_evidence
from offramp_bench.rivals.mixture import branching_loss

__all__ = ["fit_diff_branch", "fit_pteenet"]


def fit_diff_branch(fit: BatchSource, tune: BatchSource, costs: Prices, settings: JointSettings = PAPER) -> FittedExits:
    """Fit classifiers and gates on `branching_loss`, for every cost weight at once.

    The paper names no settings for a frozen network, and its training is known to be unstable. So the warm-up, the
    gates, the optimiser and the choice of each cost weight's best epoch are those of `fit_joint`, but every step trains
    gates and classifiers together. Linear classifiers are copied for each cost weight. Samples leave at the first gate
    whose score is at least 1/2: the policy "branch_gates".

    Args:
        fit: Samples to train on.
        tune: Samples that select each cost weight's best epoch.
        costs: Costs of the backbone and its exits, in any unit.
        settings: Settings of the fit; `switch_every`, `patience` and those of gate targets are not used.

    Example:
        >>> from offramp.cost._mul_adds import BackboneMulAdds
        >>> from offramp.features._batch import MemorySource
        >>> ones = torch.ones(1, 2, dtype=torch.float64)
        >>> costs = BackboneMulAdds(ones, ones, ones, full=ones[0, :1])
        >>> samples = MemorySource(torch.eye(4), {1: torch.eye(4)[:, :2]}, torch.arange(4) % 2, (2, 2))
        >>> fit_diff_branch(samples, samples, costs, JointSettings()).gate_policy
        'branch_gates'
    """
    warm = fit_joint(fit, tune, costs, replace(settings, epochs=0))
    prices, exits = torch.tensor(settings.cost_weights), warm.exits
    first, epochs = settings.warmup_epochs, settings.epochs
    with seeded(settings.seed):
        if isinstance(exits, LinearExits):
            exits = exits.stack(len(prices))
        gates = Gates(len(fit.widths), stacked=len(prices))
        priced = costs.price(exits, POLICIES.get("branch_gates"))
        relative = priced.average(keys.sizes for keys in fit.keys()).relative_costs().to(prices.dtype)
        parameters = [*exits.parameters(), *gates.parameters()]
        optimizer = Adam(parameters, lr=settings.learning_rate, weight_decay=settings.weight_decay, fused=True)
        remember_rates([optimizer])
        best_exits, best_gates, best = deepcopy(exits), deepcopy(gates), torch.full_like(prices, torch.inf)
        for epoch in range(first, first + epochs):
            exits.train()
            total = 0.0
            for progress, batch in batches_of(fit, settings, epoch, first_epoch=first, epochs=epochs):
                loss = branching_loss(*_losses_and_gate_logits(exits, gates, batch), relative, prices).sum()
                cosine_step(optimizer, loss, progress)
                total += loss.item()
            check_finite(total, epoch + 1)
            tune_losses = _tune_priced_loss(exits.eval(), gates, tune, relative, prices, settings.batch_size)
            # Shared classifiers can only be replaced all at once.
            means_improve = (tune_losses.mean() < best.mean()).expand_as(tune_losses)
            better = tune_losses < best if exits.stacked > 1 else means_improve
            best = torch.where(better, tune_losses, best)
            best_exits.copy_points(exits, better if exits.stacked > 1 else better.any()[None])
            with torch.no_grad():
                for best_values, values in zip(best_gates.parameters(), gates.parameters(), strict=True):
                    best_values[better] = values[better]
    return FittedExits(best_exits.eval(), best_gates, gate_policy="branch_gates")


def fit_pteenet(fit: BatchSource, tune: BatchSource, costs: Prices, settings: JointSettings = PAPER) -> FittedExits:
    """Fit as `fit_diff_branch` does, on the answers of the full network instead of the labels, warm-up included.

    Args:
        fit: Samples to train on.
        tune: Samples that select each cost weight's best epoch.
        costs: Costs of the backbone and its exits, in any unit.
        settings: As for `fit_diff_branch`.

    Example:
        >>> from offramp.methods import METHODS
        >>> METHODS.get("pteenet").__name__
        'fit_pteenet'
    """
    return fit_diff_branch(AnsweredSource(fit), AnsweredSource(tune), costs, settings)


def _losses_and_gate_logits(exits: ExitSet, gates: Gates, batch: Batch) -> tuple[Tensor, Tensor]:
    """Return `W x n x L` cross-entropies and `W x n x (L-1)` gate logits, both with gradients."""
    log_p = log_probabilities(all_logits(exits, batch.features, batch.own_logits))
    return cross_entropies(log_p, batch.labels), gates(differentiable_evidence(log_p)[..., :-1, :])


@torch.no_grad()
def _tune_priced_loss(
    exits: ExitSet, gates: Gates, tune: BatchSource, relative_costs: Tensor, cost_weights: Tensor, batch_size: int
) -> Tensor:
    """Return `W` mean priced losses at the first exits whose gate has a score of at least 1/2."""
    total = torch.zeros_like(cost_weights)
    for batch in tune.in_order(batch_size=batch_size):
        losses, gate_logits = _losses_and_gate_logits(exits, gates, batch)
        left = first_exit(Gates.scores(gate_logits) >= 0.5)
        priced = priced_losses(losses, relative_costs, cost_weights)
        total += priced.gather(-1, left[..., None]).sum((1, 2))
    return total / tune.num_samples
