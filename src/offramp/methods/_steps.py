"""Training steps that all methods share: the batches of an epoch, cosine learning rates, seeds."""

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.optim import Adam, AdamW, Optimizer

from offramp.errors import InputError
from offramp.exits import ExitSet, LinearExits
from offramp.features import BatchSource
from offramp.features._batch import Batch
from offramp.methods._settings import JointSettings

__all__ = [
    "batches_of",
    "begin_epoch",
    "check_finite",
    "classifier_optimizer",
    "cosine_rate",
    "cosine_step",
    "descend",
    "remember_rates",
    "seeded",
]


def batches_of(
    source: BatchSource, settings: JointSettings, epoch: int, *, first_epoch: int, epochs: int
) -> Iterator[tuple[float, Batch]]:
    """Yield the batches of an epoch, each with the progress of its phase, from 0 to 1.

    Args:
        source: The samples.
        settings: Seed and batch size.
        epoch: The epoch, counted from the start of the fit.
        first_epoch: First epoch of the phase.
        epochs: Number of epochs of the phase.
    """
    size = settings.samples_per_step(source.num_samples)
    total = epochs * math.ceil(source.num_samples / size)
    done = (epoch - first_epoch) * (total // epochs)
    for index, batch in enumerate(source.shuffled(batch_size=size, seed=settings.seed, epoch=epoch)):
        yield (done + index) / total, batch


def classifier_optimizer(exits: ExitSet, settings: JointSettings) -> Optimizer:
    """Return the optimiser of classifiers: Adam with rates by depth for linear exits, else AdamW with one rate.

    Args:
        exits: The exits.
        settings: Learning rates and weight decay.
    """
    rate, decay = settings.warmup_learning_rate, settings.weight_decay
    optimizer: Optimizer
    if not isinstance(exits, LinearExits):
        optimizer = AdamW(exits.parameters(), lr=rate, weight_decay=decay, fused=True)
    else:
        # The paper writes (L - l) lr_0 into the loss; as a factor of the loss it does nothing under Adam.
        last = len(exits.widths) - 1
        depth = {stage: last - stage if settings.scale_rates_by_depth else 1 for stage in exits.stages}
        groups = [{"params": exits.parameters_of(stage), "lr": rate * depth[stage]} for stage in exits.stages]
        optimizer = Adam(groups, weight_decay=decay, fused=True)
    remember_rates([optimizer])
    return optimizer


def remember_rates(optimizers: Iterable[Optimizer]) -> None:
    """Store the current learning rates as the peaks of the cosine schedule."""
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["peak"] = group["lr"]


def cosine_rate(progress: float) -> float:
    """Return the share of the peak learning rate at a progress from 0 to 1: a cosine from 1 to 0."""
    return 0.5 * (1 + math.cos(math.pi * progress))


def cosine_step(optimizer: Optimizer, loss: Tensor, progress: float) -> None:
    """Take one optimiser step on a loss, at the cosine learning rate of `progress`, from 0 to 1."""
    for group in optimizer.param_groups:
        group["lr"] = group["peak"] * cosine_rate(progress)
    optimizer.zero_grad()
    torch.autograd.backward(loss)
    optimizer.step()


def check_finite(loss: float, epoch: int) -> None:
    """Refuse a loss that is not finite; epochs are counted from 1."""
    if not math.isfinite(loss):
        raise InputError(expected="a finite loss", got=f"{loss} in epoch {epoch}", hint="lower the learning rates")


def begin_epoch(settings: JointSettings, epoch: int) -> None:
    """Seed the random numbers of an epoch (dropout), so that a resumed fit equals an uninterrupted one."""
    torch.manual_seed(settings.seed * 1_000_003 + epoch)


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed the random numbers drawn inside, and restore the caller's generator after."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


def descend(
    optimizer: Optimizer,
    loss_of: Callable[[Batch], Tensor],
    source: BatchSource,
    settings: JointSettings,
    *,
    first_epoch: int = 0,
    epochs: int,
) -> None:
    """Minimise a loss for some epochs, one step per batch.

    Args:
        optimizer: The optimiser.
        loss_of: Function from a batch to its loss.
        source: The samples.
        settings: As for `batches_of`.
        first_epoch: First epoch, counted from the start of the fit.
        epochs: Number of epochs.
    """
    for epoch in range(first_epoch, first_epoch + epochs):
        begin_epoch(settings, epoch)
        total = 0.0
        for progress, batch in batches_of(source, settings, epoch, first_epoch=first_epoch, epochs=epochs):
            loss = loss_of(batch)
            cosine_step(optimizer, loss, progress)
            total += loss.item()
        check_finite(total, epoch + 1)
