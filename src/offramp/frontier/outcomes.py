"""What every exit says of every sample, computed once; policies are then simulated on it."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from offramp.exits import ExitBank, all_logits
from offramp.features import Batch, BatchSource
from offramp.functional import evidence, log_probabilities
from offramp.uncertainty import believable, conformal_scores, fit_temperatures, scale

__all__ = ["Outcomes", "outcomes", "tune_temperatures"]

_CELLS = 10_000_000  # logits at a time: some hundred megabytes of working memory, whatever W, L and K


@dataclass(frozen=True)
class Outcomes:
    """Answers of all exits on N samples, for W sets of classifiers: numbers an exit, never K an exit."""

    num_classes: int
    """K."""
    labels: Tensor
    """`N` true classes."""
    sizes: Tensor
    """`N` sizes, which costs depend on where samples differ."""
    full: Tensor
    """`N` classes that the bare network predicts: its own last head, averaged with nothing."""
    predictions: Tensor
    """`W x N x L` predicted classes."""
    confidence: Tensor
    """`W x N x L` largest probability, temperature applied."""
    conformal_scores: Tensor
    """`W x N x L` one minus the probability of the true class, temperature applied."""
    evidence: Tensor
    """`W x N x L x 4` evidence of the raw logits."""

    @cached_property
    def full_correct(self) -> Tensor:
        """`N` whether the bare network is right."""
        return self.full == self.labels

    @cached_property
    def correct(self) -> Tensor:
        """`W x N x L` whether each exit is right."""
        return self.predictions == self.labels[:, None]


def tune_temperatures(bank: ExitBank, tune: BatchSource) -> Tensor:
    """Fit one temperature an exit, for each set of classifiers.

    Args:
        bank: The exits.
        tune: Samples to fit on; never those that conformal thresholds come from.

    Returns:
        `W x L` temperatures.
    """
    return believable(fit_temperatures(lambda: ((logits, batch.labels) for logits, batch in _logits(bank, tune))))


def outcomes(bank: ExitBank, source: BatchSource, temperatures: Tensor) -> Outcomes:
    """Let every exit answer every sample.

    Args:
        bank: The exits.
        source: The samples.
        temperatures: `W x L`.

    Returns:
        The outcomes, in the order of the source.
    """
    parts = []
    last = source.own_heads[-1]
    for logits, batch in _logits(bank, source):
        labels, full = batch.labels, batch.own_logits[last].argmax(-1)
        probabilities = log_probabilities(scale(logits, temperatures)).exp()
        confidence, predictions = probabilities.max(-1)
        scores = torch.stack([conformal_scores(one, labels) for one in probabilities])
        parts.append((labels, full, predictions, confidence, scores, evidence(log_probabilities(logits))))
    columns = zip(*parts, strict=True)
    # Labels and the bare network's answers have no axis of cost weights before the samples.
    joined = [torch.cat(column, dim=0 if column[0].ndim == 1 else 1) for column in columns]
    return Outcomes(source.num_classes, joined[0], source.sizes(), *joined[1:])


@torch.no_grad()
def _logits(bank: ExitBank, source: BatchSource) -> Iterator[tuple[Tensor, Batch]]:
    rows = max(1, min(1000, _CELLS // (bank.stacked * len(bank.widths) * bank.num_classes)))
    for batch in source.in_order(batch_size=rows):
        yield all_logits(bank, batch.features, batch.own_logits), batch
