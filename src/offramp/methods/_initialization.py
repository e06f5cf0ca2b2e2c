"""Exits before training, and the averaging of a cascade's own heads."""

import torch
from torch import Tensor

from offramp.errors import InputError
from offramp.exits import ExitSet, LadderExits, LinearExits
from offramp.exits._averaging import Averaging
from offramp.exits._linear import CumulativeLinearExits
from offramp.exits._none import NoExits
from offramp.features import BatchSource
from offramp.functional._objective import cross_entropies
from offramp.functional._statistics import log_probabilities
from offramp.methods._settings import DEFAULT, JointSettings
from offramp.uncertainty._temperature import fit_temperatures, floor_temperatures

__all__ = ["check_samples", "create_exits", "fit_averaging", "initialize_exits"]

SCALE_ROWS = 1024
"""Rows that the scale of features is measured on: enough for 3 %."""

SHARES = tuple(step / 10 for step in range(10))
"""Shares of the previous answer that are tried; 0, the head alone, wins a tie."""


def create_exits(
    widths: tuple[int, ...], own_heads: tuple[int, ...], num_classes: int, *, settings: JointSettings = DEFAULT
) -> ExitSet:
    """Create untrained exits, one after every stage without a head of the network's own.

    Args:
        widths: Number of features of each stage.
        own_heads: Stages after which the network has a head of its own.
        num_classes: K.
        settings: The kind and size of the exits.

    Example:
        >>> create_exits((16, 32, 64), (2,), 10).stages
        (0, 1)
    """
    stages = tuple(stage for stage in range(len(widths)) if stage not in own_heads)
    if not stages:
        return NoExits(widths, stages, num_classes)
    if settings.exits == "ladder":
        width = settings.state_width(num_classes)
        return LadderExits(widths, stages, num_classes, width=width, dropout=settings.dropout)
    kind = LinearExits if settings.exits == "linear" else CumulativeLinearExits
    return kind(widths, stages, num_classes)


def initialize_exits(
    fit: BatchSource, tune: BatchSource, settings: JointSettings, *, dtype: torch.dtype = torch.float32
) -> ExitSet:
    """Create exits, fit their averaging on the tune split, and standardise the features of a ladder.

    Args:
        fit: Samples to train on.
        tune: Samples to fit the averaging of a cascade's heads on.
        settings: Settings of the fit.
        dtype: Data type of the weights.

    Raises:
        InputError: If a split is empty.
    """
    check_samples(fit, tune)
    exits = create_exits(fit.widths, fit.own_heads, fit.num_classes, settings=settings)
    exits.averaging = fit_averaging(tune)
    exits.to(dtype)
    if isinstance(exits, LadderExits):
        rows = next(fit.shuffled(batch_size=SCALE_ROWS, seed=settings.seed, epoch=0))
        exits.standardize(rows.features.to(dtype))
    return exits


def check_samples(fit: BatchSource, tune: BatchSource) -> None:
    """Refuse an empty split."""
    if not fit.num_samples or not tune.num_samples:
        raise InputError(expected="samples to fit and to tune on", got=f"{fit.num_samples} and {tune.num_samples}")


def fit_averaging(tune: BatchSource) -> Averaging:
    """Choose for each of a cascade's own heads the share of the previous answer with the highest likelihood.

    Args:
        tune: Samples with the own logits of every head; not those the networks were trained on.

    Returns:
        The averaging; an empty one for a single head.
    """
    stages = tune.own_heads
    if len(stages) == 1:
        return Averaging((), torch.zeros(0), torch.zeros(0))
    batches = list(tune.in_order(batch_size=1000))
    labels = torch.cat([batch.labels for batch in batches])
    own = {stage: torch.cat([batch.own_logits[stage].float() for batch in batches]) for stage in stages}
    stacked = torch.stack([own[stage] for stage in stages], dim=1)[None]  # 1 x N x H x K
    chunks = list(zip(torch.split(stacked, 1000, dim=1), torch.split(labels, 1000), strict=True))
    temperatures = floor_temperatures(fit_temperatures(lambda: chunks))[0]
    shares = torch.zeros(len(stages))
    previous = log_probabilities(own[stages[0]] / temperatures[0])
    for index, stage in enumerate(stages[1:], start=1):
        losses = []
        for share in SHARES:
            trial = Averaging((stage,), torch.tensor([share]), temperatures[index : index + 1])
            answer, _ = trial.step(stage, own[stage], previous)
            if share == 0:
                answer = answer / temperatures[index]
            losses.append(_mean_loss(answer, labels))
        shares[index] = SHARES[losses.index(min(losses))]
        trial = Averaging((stage,), shares[index : index + 1], temperatures[index : index + 1])
        _, previous = trial.step(stage, own[stage], previous)
    return Averaging(stages, shares, temperatures)


def _mean_loss(logits: Tensor, labels: Tensor) -> float:
    return float(cross_entropies(log_probabilities(logits[None, :, None]), labels).double().mean())
