r"""The paper's method: classifiers and gates learned jointly, for every cost weight at once.

Algorithm 1 of [Regol2024] on cached features. Warm-up does not depend on the cost weight and runs once. After it,
classifiers are copied for each cost weight where they are linear, and shared where they are a ladder or where their
loss does not depend on the gates (`plain`, `fixed`). Where they are copied, each cost weight's parameters see exactly
the steps they would see alone; where they are shared, their loss is the sum over cost weights.
"""

import hashlib
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Adam

from offramp.cost import Prices
from offramp.exits import Gates, LinearExits, all_logits, stack_exits
from offramp.features import Batch, BatchSource
from offramp.functional import (
    best_exit,
    cross_entropies,
    evidence,
    exit_distribution,
    first_exit,
    full_loss,
    gate_loss,
    gate_targets,
    imbalance_weights,
    leaves,
    log_probabilities,
    plain_loss,
    priced_losses,
    rescaled_loss,
    weighted_loss,
)
from offramp.methods.checkpoint import load_checkpoint, save_checkpoint
from offramp.methods.fitted import FittedExits
from offramp.methods.fresh import begun_exits
from offramp.methods.method import METHODS
from offramp.methods.settings import DEFAULT, PAPER, JointSettings
from offramp.methods.steps import (
    batches_of,
    begin_epoch,
    check_finite,
    classifier_optimizer,
    cosine_step,
    remember_rates,
    seeded,
)
from offramp.policy import GatePolicy

__all__ = ["EpochRecord", "fit_classifiers", "fit_joint", "fit_paper"]


@dataclass(frozen=True)
class EpochRecord:
    """What one epoch did, for progress bars and experiment trackers."""

    epoch: int
    """Epochs done, warm-up included."""
    epochs: int
    """Epochs planned."""
    phase: str
    """`warmup` or `joint`."""
    loss: float
    """Mean loss of the steps taken, summed over exits and cost weights."""
    tune_priced_loss: tuple[float, ...]
    """Of each cost weight, on the tune split, at the exits its gates choose; empty during warm-up."""


def fit_joint(
    fit: BatchSource,
    tune: BatchSource,
    costs: Prices,
    settings: JointSettings = DEFAULT,
    *,
    checkpoint: Path | None = None,
    on_epoch: Callable[[EpochRecord], object] | None = None,
    dtype: torch.dtype = torch.float32,
) -> FittedExits:
    """Fit classifiers and gates for every cost weight.

    Deterministic given the settings' seed, the data and the number of threads.

    Args:
        fit: Samples that classifiers and gates learn from.
        tune: Samples that weigh the gates' targets and pick each cost weight's best epoch.
        costs: What the backbone and its exits cost, in any unit.
        settings: How to fit.
        checkpoint: A file that keeps the state after every epoch; an interrupted fit goes on from there.
        on_epoch: Called after every epoch.
        dtype: Of the exits and all arithmetic.

    Returns:
        The exits and gates of each cost weight's best epoch on the tune split.
    """
    with seeded(settings.seed):
        run = _Run(fit, tune, costs, settings, dtype)
        if checkpoint is not None and checkpoint.exists():
            run.load(checkpoint)
        while run.epoch < run.epochs and run.stale < settings.patience:
            begin_epoch(settings, run.epoch)
            record = run.one_epoch()
            check_finite(record.loss, record.epoch)
            if checkpoint is not None:
                run.save(checkpoint)
            if on_epoch is not None:
                on_epoch(record)
    return FittedExits(run.best_bank.eval(), run.best_gates, run.cost_weights)


def fit_paper(
    fit: BatchSource,
    tune: BatchSource,
    costs: Prices,
    settings: JointSettings = PAPER,
    *,
    checkpoint: Path | None = None,
    on_epoch: Callable[[EpochRecord], object] | None = None,
) -> FittedExits:
    """Fit as the paper does: `fit_joint` with the paper's settings unless given others.

    Args:
        fit: Samples that classifiers and gates learn from.
        tune: Samples that weigh the gates' targets and pick each cost weight's best epoch.
        costs: What the backbone and its exits cost, in any unit.
        settings: How to fit.
        checkpoint: A file that keeps the state after every epoch.
        on_epoch: Called after every epoch.
    """
    return fit_joint(fit, tune, costs, settings, checkpoint=checkpoint, on_epoch=on_epoch)


def fit_classifiers(fit: BatchSource, tune: BatchSource, costs: Prices, settings: JointSettings = PAPER) -> FittedExits:
    """Fit classifiers alone, all of them on all samples: the warm-up, for as many epochs as there are, and no gates.

    Args:
        fit: Samples that classifiers learn from.
        tune: Samples that tell how far the heads of a cascade answer together.
        costs: What the backbone and its exits cost; it plays no part.
        settings: How to fit, as for `fit_joint`.

    Example:
        >>> from offramp.cost import BackboneMulAdds
        >>> from offramp.features import MemorySource
        >>> ones = torch.ones(1, 2, dtype=torch.float64)
        >>> costs = BackboneMulAdds(ones, ones, ones, full=ones[0, :1])
        >>> samples = MemorySource(torch.eye(4), {1: torch.eye(4)[:, :2]}, torch.arange(4) % 2, (2, 2))
        >>> fit_classifiers(samples, samples, costs, JointSettings()).gates is None
        True
    """
    epochs = settings.warmup_epochs + settings.epochs
    return replace(fit_joint(fit, tune, costs, replace(settings, warmup_epochs=epochs, epochs=0)), gates=None)


class _Run:
    """A fit between two epochs: all that a checkpoint has to hold, and what moves it on by one epoch."""

    def __init__(
        self, fit: BatchSource, tune: BatchSource, costs: Prices, settings: JointSettings, dtype: torch.dtype
    ) -> None:
        self.fit, self.tune, self.settings = fit, tune, settings
        self.cost_weights = torch.tensor(settings.cost_weights, dtype=dtype)
        self.bank = begun_exits(fit, tune, settings, dtype=dtype)
        self.gates = Gates(len(fit.widths), stacked=len(self.cost_weights)).to(dtype)
        priced = costs.price(self.bank, GatePolicy())
        self.relative_costs = priced.average(keys.sizes for keys in fit.keys()).relative_costs().to(dtype)
        self.optimizers = {"classifiers": classifier_optimizer(self.bank, settings)}
        self.best_bank, self.best_gates = self.bank, self.gates
        self.best_loss = torch.full_like(self.cost_weights, torch.inf)
        self.epoch = 0
        self.batches = 0  # of the alternation, never restarted, so that short epochs train classifiers too
        self.stale = 0

    @property
    def epochs(self) -> int:
        return self.settings.warmup_epochs + self.settings.epochs

    def one_epoch(self) -> EpochRecord:
        """Train for an epoch; during alternation, keep what the tune split likes best."""
        if self.epoch < self.settings.warmup_epochs:
            loss, judged = self._warm_up(), ()
        else:
            if self.epoch == self.settings.warmup_epochs:
                self._begin_alternation()
            loss = self._alternate(self._positive_weights())
            tuned = self._tune_priced_loss()
            self._keep_best(tuned)
            judged = tuple(tuned.tolist())
        self.epoch += 1
        return EpochRecord(self.epoch, self.epochs, "joint" if judged else "warmup", loss, judged)

    def save(self, path: Path) -> None:
        """Write the state to a file, whole or not at all."""
        counters = {"epoch": self.epoch, "batches": self.batches, "stale": self.stale}
        tensors = {"best_loss": self.best_loss}
        save_checkpoint(path, self._modules(), self.optimizers, tensors, counters, self._identity)

    def load(self, path: Path) -> None:
        """Go on from a state that was saved with the same settings."""
        saved = load_checkpoint(path, self._identity)
        if saved.counters["epoch"] > self.settings.warmup_epochs:
            self._begin_alternation()
        saved.restore(self._modules(), self.optimizers)
        self.best_loss = saved.tensors["best_loss"]
        self.epoch, self.batches, self.stale = (saved.counters[key] for key in ("epoch", "batches", "stale"))

    def _modules(self) -> dict[str, nn.Module]:
        """What a checkpoint holds the weights of, as it is now: the alternation begins with other modules."""
        return {"bank": self.bank, "gates": self.gates, "best_bank": self.best_bank, "best_gates": self.best_gates}

    @cached_property
    def _identity(self) -> dict[str, Any]:
        """All that the result depends on: a checkpoint serves the same settings, data and costs alone.

        Read once: it goes through the ids of every sample, and a checkpoint is written every epoch.
        """
        digest = hashlib.sha256()
        for source in (self.fit, self.tune):
            for keys in source.keys():
                digest.update(keys.ids.tobytes())
            digest.update(f"{source.widths} {source.own_heads} {source.num_classes}".encode())
        digest.update(str(self.relative_costs.tolist()).encode())
        return {**asdict(self.settings), "data": digest.hexdigest()}

    def _batches_of(self, first_epoch: int, epochs: int) -> Iterator[tuple[float, Batch]]:
        return batches_of(self.fit, self.settings, self.epoch, first_epoch=first_epoch, epochs=epochs)

    def _warm_up(self) -> float:
        """One epoch of every classifier on every sample."""
        self.bank.train()
        optimizer = self.optimizers["classifiers"]
        total, steps = torch.zeros(()), 0
        for progress, batch in self._batches_of(0, self.settings.warmup_epochs):
            log_p = log_probabilities(stack_exits(self.bank(batch.features.to(self.cost_weights.dtype))))
            loss = plain_loss(cross_entropies(log_p, batch.labels)).sum()
            cosine_step(optimizer, loss, progress)
            total, steps = total + loss.detach(), steps + 1
        return float(total / steps)

    def _begin_alternation(self) -> None:
        """Give each cost weight its classifiers, and both sides an optimiser."""
        settings = self.settings
        if isinstance(self.bank, LinearExits) and settings.classifier_loss not in ("plain", "fixed"):
            self.bank = self.bank.stack(len(self.cost_weights))
        self.best_bank, self.best_gates = deepcopy(self.bank), deepcopy(self.gates)
        self.optimizers = {
            name: Adam(module.parameters(), lr=settings.learning_rate, weight_decay=settings.weight_decay, fused=True)
            for name, module in (("classifiers", self.bank), ("gates", self.gates))
        }
        remember_rates(self.optimizers.values())

    def _alternate(self, positive_weights: Tensor) -> float:
        """One epoch of gates and classifiers in turn, gates first."""
        settings = self.settings
        total, steps = torch.zeros(()), 0
        for progress, batch in self._batches_of(settings.warmup_epochs, settings.epochs):
            gates_turn = settings.classifier_loss == "fixed" or self.batches // settings.switch_every % 2 == 0
            self.bank.train(not gates_turn)  # gates are taught what classifiers say without dropout
            if gates_turn:
                loss = self._gate_loss(batch, positive_weights)
            else:
                loss = self._classifier_loss(batch)
            cosine_step(self.optimizers["gates" if gates_turn else "classifiers"], loss, progress)
            self.batches += 1
            total, steps = total + loss.detach(), steps + 1
        return float(total / steps)

    def _log_probabilities(self, batch: Batch) -> Tensor:
        """`W x n x L x K` (W = 1 where classifiers are shared) of every exit."""
        return log_probabilities(all_logits(self.bank, batch.features, batch.own_logits))

    def _targets(self, log_p: Tensor, labels: Tensor) -> Tensor:
        priced = priced_losses(cross_entropies(log_p, labels), self.relative_costs, self.cost_weights)
        return gate_targets(best_exit(priced), len(self.relative_costs), kind=self.settings.gate_target)

    def _gate_loss(self, batch: Batch, positive_weights: Tensor) -> Tensor:
        """Eq. 16: classifiers fixed, gates against their targets."""
        with torch.no_grad():
            log_p = self._log_probabilities(batch)
            targets = self._targets(log_p, batch.labels)
            seen = evidence(log_p[..., :-1, :])
        return gate_loss(self.gates(seen), targets, positive_weights).sum()

    def _classifier_loss(self, batch: Batch) -> Tensor:
        """Eq. 14: gates fixed, classifiers on the samples that leave at them."""
        kind = self.settings.classifier_loss
        log_p = self._log_probabilities(batch)
        losses = cross_entropies(log_p, batch.labels)
        if kind == "plain":
            return plain_loss(losses).sum()
        with torch.set_grad_enabled(kind == "full"):
            probability = exit_distribution(Gates.scores(self.gates(evidence(log_p[..., :-1, :]))))
        if kind == "full":
            return full_loss(priced_losses(losses, self.relative_costs, self.cost_weights), probability).sum()
        return (weighted_loss if kind == "weighted" else rescaled_loss)(losses, probability).sum()

    @torch.no_grad()
    def _positive_weights(self) -> Tensor:
        """`W x (L-1)` weights against imbalance, counted on the tune split with the classifiers as they are."""
        shape = (len(self.cost_weights), len(self.relative_costs) - 1)
        if not self.settings.imbalance:
            return torch.ones(shape, dtype=self.cost_weights.dtype)
        self.bank.eval()
        positives = torch.zeros(shape, dtype=torch.long)
        for batch in self.tune.in_order(batch_size=self.settings.batch_size):
            positives += self._targets(self._log_probabilities(batch), batch.labels).sum(1)
        return imbalance_weights(positives, self.tune.num_samples).to(self.cost_weights.dtype)

    @torch.no_grad()
    def _tune_priced_loss(self) -> Tensor:
        """`W` mean priced losses on the tune split at the exits the gates choose: accuracy and cost in one number."""
        self.bank.eval()
        total = torch.zeros_like(self.cost_weights)
        for batch in self.tune.in_order(batch_size=self.settings.batch_size):
            log_p = self._log_probabilities(batch)
            priced = priced_losses(cross_entropies(log_p, batch.labels), self.relative_costs, self.cost_weights)
            exits = first_exit(leaves(Gates.scores(self.gates(evidence(log_p[..., :-1, :])))))
            total += priced.gather(-1, exits[..., None]).sum((1, 2))
        return total / self.tune.num_samples

    def _keep_best(self, tuned: Tensor) -> None:
        """Take over every cost weight that got better; shared classifiers that learn, only all at once."""
        shared = self.bank.stacked == 1 and self.settings.classifier_loss != "fixed"
        better = (tuned.mean() < self.best_loss.mean()).expand_as(tuned) if shared else tuned < self.best_loss
        self.stale = 0 if better.any() else self.stale + 1
        self.best_loss = torch.where(better, tuned, self.best_loss)
        self.best_bank.copy_points(self.bank, better if self.bank.stacked > 1 else better.any()[None])
        with torch.no_grad():
            for best, current in zip(self.best_gates.parameters(), self.gates.parameters(), strict=True):
                best[better] = current[better]


METHODS.add("default", fit_joint)
METHODS.add("paper", fit_paper)
METHODS.add("classifiers", fit_classifiers)
