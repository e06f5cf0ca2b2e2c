"""Refusal of a full network that is no better than always answering the most frequent class."""

import math
import warnings
from collections.abc import Sequence

import torch
from torch import Tensor

from offramp.errors import GuessingError, GuessingWarning, InputError
from offramp.features import BatchSource
from offramp.uncertainty._bounds import binomial_p_values

__all__ = ["check_full_network", "check_not_guessing"]

LEVEL = 0.05
"""Probability at most that a network that only guesses passes: one-sided, 95 %."""


def check_not_guessing(
    labels: Tensor, predictions: Tensor, *, split: str, classes: Sequence[str] = (), anyway: bool = False
) -> None:
    r"""Refuse a full network whose accuracy is not above the share of the most frequent class at 95 %, one-sided.

    The exact binomial test: k right answers of n must be unlikely at a probability s of the most frequent class:

    $$P(\mathrm{Bin}(n, s) \ge k) \le 0.05$$

    Args:
        labels: `N` true classes.
        predictions: `N` classes that the full network predicts.
        split: Name of the split, for the message.
        classes: Class names, if known.
        anyway: Warn instead of refusing.

    Raises:
        GuessingError: If it is not above; the message says what to check.

    Example:
        >>> check_not_guessing(torch.arange(20) % 2, torch.arange(20) % 2, split="tune")
    """
    count = len(labels)
    if not count:
        raise InputError(expected=f"at least one sample in the {split} split", got="none")
    frequency, commonest = torch.bincount(labels).max(0)
    right, share = int((labels == predictions).sum()), float(frequency) / count
    single = int(frequency) == count
    if not single:
        failures = torch.tensor(count - right)
        if float(binomial_p_values(failures, samples=count, max_loss=1 - share)) <= LEVEL:
            return
    name = f"'{classes[int(commonest)]}'" if classes else str(int(commonest))
    problem = (
        f"the full network is no better than guessing on the {split} split: it is right on {right:,} of {count:,} "
        f"samples ({100 * right / count:.1f} %), and class {name} alone is {100 * share:.1f} % of them; expected more "
        f"than that at 95 % confidence. {_advice(count, share, classes, single=single)}"
    )
    if not anyway:
        raise GuessingError(problem, hint="to continue regardless: anyway=True")
    warnings.warn(problem, GuessingWarning, stacklevel=3)


def check_full_network(source: BatchSource, *, split: str, classes: Sequence[str] = (), anyway: bool = False) -> None:
    """Check the full network by its own logits among cached features; for a cascade, those of its last member.

    Args:
        source: The samples' cached features.
        split: Name of the split, for the message.
        classes: Class names, if known.
        anyway: Warn instead of refusing.
    """
    last = source.own_heads[-1]
    parts = [(batch.labels, batch.own_logits[last].argmax(1)) for batch in source.in_order(batch_size=1000)]
    labels, predictions = (torch.cat(column) for column in zip(*parts, strict=True))
    check_not_guessing(labels, predictions, split=split, classes=classes, anyway=anyway)


def _advice(count: int, share: float, classes: Sequence[str], *, single: bool) -> str:
    """Say what to check; where no network could pass, that more samples are needed."""
    if single:
        return "All samples belong to this class, so the check is impossible: give samples of several classes."
    enough = math.ceil(math.log(LEVEL) / math.log(share))  # share ** enough <= LEVEL: all right, and it would pass
    if count < enough:
        return f"Too few samples: even a perfect network could not pass. Give at least {enough}, better hundreds."
    order = f" ({', '.join(classes[:5])}{', ...' if len(classes) > 5 else ''})" if classes else ""
    return (
        f"Check that the class names are in the order of the network's outputs{order}, that inputs are prepared as in "
        "training, that labels are read from the right column, and that the trained weights were loaded."
    )
