r"""The paper's method: classifiers and gates trained jointly, for every cost weight at once.

Algorithm 1 of [Regol2024] on cached features. Warm-up does not depend on the cost weight and runs once. After it,
linear classifiers are copied for each cost weight; a ladder is shared, and so are classifiers whose loss does not
depend on the gates (`plain`, `fixed`). Copied classifiers take exactly the steps they would take alone; the loss of
shared ones is the sum over cost weights.
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

from offramp.cost._table import Prices
from offramp.exits import LinearExits
from offramp.exits._exit_set import all_logits, stack_exits
from offramp.exits._gate import Gates
from offramp.features import BatchSource
from offramp.features._batch import Batch
from offramp.functional import evidence, exit_distribution, gate_loss, gate_targets, imbalance_weights, weighted_loss
from offramp.functional._leaving import first_exit, should_leave
from offramp.functional._objective import (
    cross_entropies,
    full_loss,
    plain_loss,
    priced_losses,
    rescaled_loss,
)
from offramp.functional._statistics import log_probabilities
from offramp.methods._checkpoint import load_checkpoint, save_checkpoint
from offramp.methods._distillation import distillation_loss, raise_temperature
from offramp.methods._initialization import initialize_exits
from offramp.methods._method import METHODS, FittedExits
from offramp.methods._settings import DEFAULT, PAPER, JointSettings
from offramp.methods._steps import (
    batches_of,
    begin_epoch,
    check_finite,
    classifier_optimizer,
    cosine_step,
    remember_rates,
    seeded,
)
from offramp.policy._gates import GatePolicy

__all__ = ["EpochRecord", "fit_classifiers", "fit_joint", "fit_paper"]


@dataclass(frozen=True)
class EpochRecord:
    """The result of one epoch, for progress bars and experiment trackers."""

    epoch: int
    """Epochs done, warm-up included."""
    epochs: int
    """Epochs planned."""
    phase: str
    """`warmup` or `joint`."""
    loss: float
    """Mean loss of the steps taken, summed over exits and cost weights."""
    tune_priced_loss: tuple[float, ...]
    """Priced loss of each cost weight on the tune split, at the exits its gates choose; empty during warm-up."""


def fit_joint(
    fit: BatchSource,
    tune: BatchSource,
    costs: Prices,
    settings: JointSettings = DEFAULT,
    *,
    checkpoint: Path | None = None,
    on_epoch: Callable[[EpochRecord], object] | None = None,
    on_exits: Callable[[FittedExits], object] | None = None,
    dtype: torch.dtype = torch.float32,
) -> FittedExits:
    """Fit classifiers, and gates for every cost weight unless `settings.epochs` is 0.

    Deterministic for the same seed, data and number of threads.

    Args:
        fit: Samples to train on.
        tune: Samples that set the weights of gate targets and select each cost weight's best epoch.
        costs: Costs of the backbone and its exits, in any unit.
        settings: Settings of the fit.
        checkpoint: File to save the state in after every epoch; if it exists, the fit continues from it.
        on_epoch: Callback after every epoch.
        on_exits: Callback after every epoch with the exits and gates in training, which must not be changed.
        dtype: Data type of the exits and all arithmetic.

    Returns:
        The exits and gates of each cost weight's best epoch on the tune split.
    """
    with seeded(settings.seed):
        run = _Run(fit, tune, costs, settings, dtype)
        if checkpoint is not None and checkpoint.exists():
            run.load(checkpoint)
        while run.epoch < run.epochs and run.stale < settings.patience:
            begin_epoch(settings, run.epoch)
            record = run.train_epoch()
            check_finite(record.loss, record.epoch)
            if checkpoint is not None:
                run.save(checkpoint)
            if on_epoch is not None:
                on_epoch(record)
            if on_exits is not None:
                on_exits(FittedExits(run.exits.eval(), run.gates))
    return FittedExits(run.best_exits.eval(), run.best_gates if settings.epochs else None)


def fit_paper(
    fit: BatchSource,
    tune: BatchSource,
    costs: Prices,
    settings: JointSettings = PAPER,
    *,
    checkpoint: Path | None = None,
    on_epoch: Callable[[EpochRecord], object] | None = None,
) -> FittedExits:
    """Run `fit_joint` with the paper's settings as the default."""
    return fit_joint(fit, tune, costs, settings, checkpoint=checkpoint, on_epoch=on_epoch)


def fit_classifiers(fit: BatchSource, tune: BatchSource, costs: Prices, settings: JointSettings = PAPER) -> FittedExits:
    """Fit classifiers on all samples, without gates: the warm-up of `fit_joint`, extended over all epochs.

    Args:
        fit: Samples to train on.
        tune: Samples to fit the averaging of a cascade's heads on.
        costs: Costs of the backbone and its exits; they do not affect the result.
        settings: Settings, as for `fit_joint`.
    """
    epochs = settings.warmup_epochs + settings.epochs
    return fit_joint(fit, tune, costs, replace(settings, warmup_epochs=epochs, epochs=0))


class _Run:
    """The state of a fit between two epochs, and the step to the next one."""

    def __init__(
        self, fit: BatchSource, tune: BatchSource, costs: Prices, settings: JointSettings, dtype: torch.dtype
    ) -> None:
        self.fit, self.tune, self.settings = fit, tune, settings
        self.cost_weights = torch.tensor(settings.cost_weights, dtype=dtype)
        self.exits = initialize_exits(fit, tune, settings, dtype=dtype)
        self.gates = Gates(len(fit.widths), stacked=len(self.cost_weights)).to(dtype)
        priced = costs.price(self.exits, GatePolicy())
        self.relative_costs = priced.average(keys.sizes for keys in fit.keys()).relative_costs().to(dtype)
        self.optimizers = {"classifiers": classifier_optimizer(self.exits, settings)}
        self.best_exits, self.best_gates = self.exits, self.gates
        self.best_loss = torch.full_like(self.cost_weights, torch.inf)
        self.temperature = torch.ones((), dtype=dtype)  # of the distillation
        self.epoch = 0
        self.batches = 0  # of the alternation, over all epochs, so that short epochs train classifiers too
        self.stale = 0

    @property
    def epochs(self) -> int:
        return self.settings.warmup_epochs + self.settings.epochs

    def train_epoch(self) -> EpochRecord:
        """Train for one epoch; during alternation, keep what is best on the tune split."""
        if self.epoch < self.settings.warmup_epochs:
            loss, tune_losses = self._warm_up(), ()
        else:
            if self.epoch == self.settings.warmup_epochs:
                self._begin_alternation()
            loss = self._alternate(self._positive_weights())
            priced = self._tune_priced_loss()
            self._keep_best(priced)
            tune_losses = tuple(priced.tolist())
        self.epoch += 1
        return EpochRecord(self.epoch, self.epochs, "joint" if tune_losses else "warmup", loss, tune_losses)

    def save(self, path: Path) -> None:
        """Write the state to a file, atomically."""
        counters = {"epoch": self.epoch, "batches": self.batches, "stale": self.stale}
        tensors = {"best_loss": self.best_loss, "temperature": self.temperature}
        save_checkpoint(path, self._modules(), self.optimizers, tensors, counters, self._identity)

    def load(self, path: Path) -> None:
        """Continue from a state that was saved by the same fit."""
        saved = load_checkpoint(path, self._identity)
        if saved.counters["epoch"] > self.settings.warmup_epochs:
            self._begin_alternation()
        saved.restore(self._modules(), self.optimizers)
        self.best_loss, self.temperature = saved.tensors["best_loss"], saved.tensors["temperature"]
        self.epoch, self.batches, self.stale = (saved.counters[key] for key in ("epoch", "batches", "stale"))

    def _modules(self) -> dict[str, nn.Module]:
        """Return the modules whose weights a checkpoint holds; the alternation replaces some of them."""
        return {"exits": self.exits, "gates": self.gates, "best_exits": self.best_exits, "best_gates": self.best_gates}

    @cached_property
    def _identity(self) -> dict[str, Any]:
        """Everything the result depends on: settings, data and costs.

        Cached: it reads the ids of every sample, and a checkpoint is written every epoch.
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
        """Train every classifier on every sample for one epoch."""
        self.exits.train()
        optimizer = self.optimizers["classifiers"]
        total, steps = torch.zeros(()), 0
        for progress, batch in self._batches_of(0, self.settings.warmup_epochs):
            loss = self._warmup_loss(batch)
            cosine_step(optimizer, loss, progress)
            total, steps = total + loss.detach(), steps + 1
        return float(total / steps)

    def _warmup_loss(self, batch: Batch) -> Tensor:
        """Return the loss of every classifier on every sample, against labels and the network's own answers."""
        dtype, share = self.cost_weights.dtype, self.settings.distillation
        logits = stack_exits(self.exits(batch.features.to(dtype)))
        if share == 0:
            return plain_loss(cross_entropies(log_probabilities(logits), batch.labels)).sum()
        teacher = batch.own_logits[self.fit.own_heads[-1]].to(dtype)
        loss = distillation_loss(logits, teacher, batch.labels, temperature=self.temperature, share=share)
        self.temperature = raise_temperature(teacher, self.temperature)
        return loss.sum()

    def _begin_alternation(self) -> None:
        """Give each cost weight its classifiers, and make the optimisers of both sides."""
        settings = self.settings
        if isinstance(self.exits, LinearExits) and settings.classifier_loss not in ("plain", "fixed"):
            self.exits = self.exits.stack(len(self.cost_weights))
        self.best_exits, self.best_gates = deepcopy(self.exits), deepcopy(self.gates)
        self.optimizers = {
            name: Adam(module.parameters(), lr=settings.learning_rate, weight_decay=settings.weight_decay, fused=True)
            for name, module in (("classifiers", self.exits), ("gates", self.gates))
        }
        remember_rates(self.optimizers.values())

    def _alternate(self, positive_weights: Tensor) -> float:
        """Train gates and classifiers in turn for one epoch, gates first."""
        settings = self.settings
        steps_per_epoch = -(-self.fit.num_samples // settings.samples_per_step(self.fit.num_samples))
        # At most half an epoch: with few samples both sides still get their turns before early stopping.
        switch_every = min(settings.switch_every, max(1, steps_per_epoch // 2))
        total, steps = torch.zeros(()), 0
        for progress, batch in self._batches_of(settings.warmup_epochs, settings.epochs):
            gates_turn = settings.classifier_loss == "fixed" or self.batches // switch_every % 2 == 0
            self.exits.train(not gates_turn)  # gates are trained on classifiers without dropout
            if gates_turn:
                loss = self._gate_loss(batch, positive_weights)
            else:
                loss = self._classifier_loss(batch)
            cosine_step(self.optimizers["gates" if gates_turn else "classifiers"], loss, progress)
            self.batches += 1
            total, steps = total + loss.detach(), steps + 1
        return float(total / steps)

    def _log_probabilities(self, batch: Batch) -> Tensor:
        """Return `W x n x L x K` of every exit; W = 1 where classifiers are shared."""
        return log_probabilities(all_logits(self.exits, batch.features, batch.own_logits))

    def _targets(self, log_p: Tensor, labels: Tensor) -> Tensor:
        priced = priced_losses(cross_entropies(log_p, labels), self.relative_costs, self.cost_weights)
        return gate_targets(priced, kind=self.settings.gate_target)

    def _gate_loss(self, batch: Batch, positive_weights: Tensor) -> Tensor:
        """Return the loss of the gates against their targets, classifiers fixed: Eq. 16."""
        with torch.no_grad():
            log_p = self._log_probabilities(batch)
            targets = self._targets(log_p, batch.labels)
            statistics = evidence(log_p[..., :-1, :])
        return gate_loss(self.gates(statistics), targets, positive_weights).sum()

    def _classifier_loss(self, batch: Batch) -> Tensor:
        """Return the loss of the classifiers, each on the samples that leave there, gates fixed: Eq. 14."""
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
        """Return `W x (L-1)` weights against imbalance, counted on the tune split with the current classifiers."""
        shape = (len(self.cost_weights), len(self.relative_costs) - 1)
        if not self.settings.imbalance:
            return torch.ones(shape, dtype=self.cost_weights.dtype)
        self.exits.eval()
        positives = torch.zeros(shape, dtype=torch.long)
        for batch in self.tune.in_order(batch_size=self.settings.batch_size):
            positives += self._targets(self._log_probabilities(batch), batch.labels).sum(1)
        return imbalance_weights(positives, self.tune.num_samples).to(self.cost_weights.dtype)

    @torch.no_grad()
    def _tune_priced_loss(self) -> Tensor:
        """Return `W` mean priced losses on the tune split, at the exits the gates choose."""
        self.exits.eval()
        total = torch.zeros_like(self.cost_weights)
        for batch in self.tune.in_order(batch_size=self.settings.batch_size):
            log_p = self._log_probabilities(batch)
            priced = priced_losses(cross_entropies(log_p, batch.labels), self.relative_costs, self.cost_weights)
            exits = first_exit(should_leave(Gates.scores(self.gates(evidence(log_p[..., :-1, :])))))
            total += priced.gather(-1, exits[..., None]).sum((1, 2))
        return total / self.tune.num_samples

    def _keep_best(self, priced: Tensor) -> None:
        """Keep every cost weight that improved; with shared classifiers in training, all or none."""
        shared = self.exits.stacked == 1 and self.settings.classifier_loss != "fixed"
        better = (priced.mean() < self.best_loss.mean()).expand_as(priced) if shared else priced < self.best_loss
        self.stale = 0 if better.any() else self.stale + 1
        self.best_loss = torch.where(better, priced, self.best_loss)
        self.best_exits.copy_points(self.exits, better if self.exits.stacked > 1 else better.any()[None])
        with torch.no_grad():
            for best, current in zip(self.best_gates.parameters(), self.gates.parameters(), strict=True):
                best[better] = current[better]


METHODS.add("default", fit_joint)
METHODS.add("paper", fit_paper)
METHODS.add("classifiers", fit_classifiers)
