"""What all methods train with: the batches of an epoch, steps at rates that fall along a cosine, one seed."""

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.optim import Adam, AdamW, Optimizer

from offramp.errors import InputError
from offramp.exits import ExitBank, LinearExits
from offramp.features import Batch, BatchSource
from offramp.methods.settings import JointSettings

__all__ = [
    "batches_of",
    "begin_epoch",
    "check_finite",
    "check_samples",
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
    """The epoch's batches, each with how far training has come: 0 at the start of its phase, 1 at its end.

    Args:
        source: The samples.
        settings: Its seed and the epoch decide their order, its size of a step where they are cut.
        epoch: Counted from the start of the fit.
        first_epoch: Of the phase.
        epochs: Of the phase.
    """
    size = settings.samples_a_step(source.num_samples)
    total = epochs * math.ceil(source.num_samples / size)
    done = (epoch - first_epoch) * (total // epochs)
    for index, batch in enumerate(source.shuffled(batch_size=size, seed=settings.seed, epoch=epoch)):
        yield (done + index) / total, batch


def classifier_optimizer(bank: ExitBank, settings: JointSettings) -> Optimizer:
    """What trains classifiers on all samples: Adam at rates by depth for linear ones, AdamW at one rate for others.

    Args:
        bank: The exits.
        settings: Rates and decay.
    """
    rate, decay = settings.warmup_learning_rate, settings.weight_decay
    optimizer: Optimizer
    if not isinstance(bank, LinearExits):
        optimizer = AdamW(bank.parameters(), lr=rate, weight_decay=decay, fused=True)
    else:
        # The paper writes (L - l) lr_0 into the loss; as a factor of the loss it does nothing under Adam.
        last = len(bank.widths) - 1
        depth = {stage: last - stage if settings.scale_rates_by_depth else 1 for stage in bank.stages}
        groups = [{"params": bank.parameters_of(stage), "lr": rate * depth[stage]} for stage in bank.stages]
        optimizer = Adam(groups, weight_decay=decay, fused=True)
    remember_rates([optimizer])
    return optimizer


def remember_rates(optimizers: Iterable[Optimizer]) -> None:
    """Take the rates that optimisers were made with for the peaks of their cosines."""
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["peak"] = group["lr"]


def cosine_rate(progress: float) -> float:
    """What share of its peak a rate has left: a cosine from 1 at the start to 0 at the end.

    Args:
        progress: How far training has come, from 0 to 1.

    Example:
        >>> [round(cosine_rate(progress), 3) for progress in (0, 0.25, 0.5, 1)]
        [1.0, 0.854, 0.5, 0.0]
    """
    return 0.5 * (1 + math.cos(math.pi * progress))


def cosine_step(optimizer: Optimizer, loss: Tensor, progress: float) -> None:
    """One step at the rate that a cosine from 1 to 0 gives at `progress`.

    Args:
        optimizer: With its rates remembered.
        loss: What to descend on.
        progress: How far training has come, from 0 to 1.
    """
    for group in optimizer.param_groups:
        group["lr"] = group["peak"] * cosine_rate(progress)
    optimizer.zero_grad()
    torch.autograd.backward(loss)
    optimizer.step()


def check_samples(fit: BatchSource, tune: BatchSource) -> None:
    """Refuse an empty split."""
    if not fit.num_samples or not tune.num_samples:
        raise InputError(f"expected samples to fit and to tune on, got {fit.num_samples} and {tune.num_samples}")


def check_finite(loss: float, epoch: int) -> None:
    """Refuse to go on from a loss that is no number.

    Args:
        loss: Mean loss of an epoch's steps.
        epoch: Counted from 1.
    """
    if not math.isfinite(loss):
        raise InputError(f"the loss became {loss} in epoch {epoch}; lower the learning rates")


def begin_epoch(settings: JointSettings, epoch: int) -> None:
    """Draw what an epoch draws, dropout, from its own seed: a fit that was resumed goes on like one that was not.

    Args:
        settings: Of the fit.
        epoch: Counted from the start of the fit.
    """
    torch.manual_seed(settings.seed * 1_000_003 + epoch)


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Draw everything inside from one seed, and leave the caller's random numbers alone."""
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
    """Lower one loss for some epochs, a step a batch.

    Args:
        optimizer: What steps.
        loss_of: The loss of a batch.
        source: The samples.
        settings: As for `batches_of`.
        first_epoch: Counted from the start of the fit.
        epochs: How many.
    """
    for epoch in range(first_epoch, first_epoch + epochs):
        begin_epoch(settings, epoch)
        total = 0.0
        for progress, batch in batches_of(source, settings, epoch, first_epoch=first_epoch, epochs=epochs):
            loss = loss_of(batch)
            cosine_step(optimizer, loss, progress)
            total += loss.item()
        check_finite(total, epoch + 1)
