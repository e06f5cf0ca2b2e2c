"""Exits before they are trained."""

import torch

from offramp.exits import CumulativeLinearExits, ExitBank, LadderExits, LinearExits
from offramp.features import BatchSource
from offramp.methods.averaging import fit_averaging
from offramp.methods.settings import DEFAULT, JointSettings
from offramp.methods.steps import check_samples

__all__ = ["begun_exits", "fresh_exits"]

_SCALE_ROWS = 1024  # give a feature's scale to 3 %


def fresh_exits(
    widths: tuple[int, ...], own_heads: tuple[int, ...], num_classes: int, *, settings: JointSettings = DEFAULT
) -> ExitBank:
    """The exits that a fit starts from: one after every stage without a head of the network's own.

    Args:
        widths: Features of each stage.
        own_heads: Stages after which the network has a head of its own.
        num_classes: K.
        settings: How they would be fitted.

    Example:
        >>> fresh_exits((16, 32, 64), (2,), 10).stages
        (0, 1)
    """
    stages = tuple(stage for stage in range(len(widths)) if stage not in own_heads)
    if settings.exits == "ladder":
        width = settings.state_width(num_classes)
        return LadderExits(widths, stages, num_classes, width=width, dropout=settings.dropout)
    kind = LinearExits if settings.exits == "linear" else CumulativeLinearExits
    return kind(widths, stages, num_classes)


def begun_exits(
    fit: BatchSource, tune: BatchSource, settings: JointSettings, *, dtype: torch.dtype = torch.float32
) -> ExitBank:
    """Fresh exits that know the scale of their features, where they mind it, and how a cascade's heads answer together.

    Args:
        fit: Samples that they will learn from.
        tune: Samples that tell how far the heads of a cascade answer together.
        settings: How they will be fitted.
        dtype: Of their weights.

    Raises:
        InputError: If there are no samples to learn from, or none to tune on.

    Example:
        >>> from offramp.features import MemorySource
        >>> samples = MemorySource(torch.eye(4), {1: torch.eye(4)[:, :2]}, torch.arange(4) % 2, (2, 2))
        >>> begun_exits(samples, samples, DEFAULT).stages
        (0,)
    """
    check_samples(fit, tune)
    bank = fresh_exits(fit.widths, fit.own_heads, fit.num_classes, settings=settings)
    bank.averaging = fit_averaging(tune)
    bank.to(dtype)
    if isinstance(bank, LadderExits):
        rows = next(fit.shuffled(batch_size=_SCALE_ROWS, seed=settings.seed, epoch=0))
        bank.standardize(rows.features.to(dtype))
    return bank
