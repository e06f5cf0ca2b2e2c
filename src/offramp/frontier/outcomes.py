"""What every exit says of every sample, computed once; policies are then simulated on it."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from offramp.errors import InputError
from offramp.exits import ExitBank, all_logits
from offramp.features import Batch, BatchSource
from offramp.functional import evidence, log_probabilities
from offramp.policy import Observation
from offramp.policy.margin import lead
from offramp.uncertainty import believable, conformal_scores, fit_temperatures, scale

__all__ = ["Outcomes", "brier_scores", "outcomes", "tune_temperatures"]

_CELLS = 10_000_000  # logits at a time: some hundred megabytes of working memory, whatever W, L and K


@dataclass(frozen=True)
class Outcomes:
    """Answers of all exits on N samples, for W sets of classifiers: numbers an exit, and K an exit where asked for."""

    num_classes: int
    """K."""
    labels: Tensor
    """`N` true classes."""
    sizes: Tensor
    """`N` sizes, which costs depend on where samples differ."""
    full: Tensor
    """`N` classes that the full network predicts: its own last head, averaged with nothing."""
    predictions: Tensor
    """`W x N x L` predicted classes."""
    confidence: Tensor
    """`W x N x L` largest probability, temperature applied."""
    margin: Tensor
    """`W x N x L` how far that is ahead of the next."""
    conformal_scores: Tensor
    """`W x N x L` one minus the probability of the true class, temperature applied."""
    evidence: Tensor
    """`W x N x L x 4` evidence of the raw logits."""
    probabilities: Tensor | None = None
    """`W x N x L x K`, temperature applied, where a policy is to read them; left out otherwise, for their size."""
    brier_gaps: Tensor | None = None
    """`W x N x L` Brier scores, temperature applied, less that of the full network at its own temperature."""

    @cached_property
    def full_correct(self) -> Tensor:
        """`N` whether the full network is right."""
        return self.full == self.labels

    @cached_property
    def correct(self) -> Tensor:
        """`W x N x L` whether each exit is right."""
        return self.predictions == self.labels[:, None]

    def observe(self, reads: Collection[str], classifier: int, exit: int, noise: Tensor | None = None) -> Observation:
        """What a policy sees of the samples at one exit: `policy.observe` of answers that were given before.

        Args:
            reads: What it reads.
            classifier: Which set of classifiers.
            exit: The exit.
            noise: `N` uniform draws, where they are read.
        """
        if "probabilities" in reads and self.probabilities is None:
            raise InputError(
                "expected outcomes with the probabilities of all classes, which a policy here reads, got some without; "
                "make them with outcomes(..., probabilities=True)"
            )
        kept = {
            "confidence": self.confidence,
            "evidence": self.evidence,
            "margin": self.margin,
            "prediction": self.predictions,
            "probabilities": self.probabilities,
        }
        seen = {name: one[classifier, :, exit] for name, one in kept.items() if name in reads and one is not None}
        return Observation(**seen, noise=noise)


def tune_temperatures(bank: ExitBank, tune: BatchSource) -> Tensor:
    """Fit one temperature an exit, for each set of classifiers.

    Args:
        bank: The exits.
        tune: Samples to fit on; never those that conformal thresholds come from.

    Returns:
        `W x L` temperatures.
    """
    return believable(fit_temperatures(lambda: ((logits, batch.labels) for logits, batch in _logits(bank, tune))))


def outcomes(bank: ExitBank, source: BatchSource, temperatures: Tensor, *, probabilities: bool = False) -> Outcomes:
    """Let every exit answer every sample.

    Args:
        bank: The exits.
        source: The samples.
        temperatures: `W x L`.
        probabilities: Whether to keep those of all classes, `W x N x L x K` numbers, for policies that read them.

    Returns:
        The outcomes, in the order of the source.
    """
    parts = []
    last = source.own_heads[-1]
    for logits, batch in _logits(bank, source):
        labels, full = batch.labels, batch.own_logits[last].argmax(-1)
        answers = log_probabilities(scale(logits, temperatures)).exp()
        confidence, predictions = answers.max(-1)
        scores = torch.stack([conformal_scores(one, labels) for one in answers])
        full_answers = log_probabilities(batch.own_logits[last].float() / _full_temperature(bank, temperatures)).exp()
        gaps = brier_scores(answers, labels) - brier_scores(full_answers[None, :, None], labels)
        kept = (answers.contiguous(),) if probabilities else ()  # a row a sample: one exit is read at a time
        numbers = (confidence, scores, evidence(log_probabilities(logits)), gaps, lead(answers))
        parts.append((labels, full, predictions, *numbers, *kept))
    columns = zip(*parts, strict=True)
    # Labels and the full network's answers have no axis of cost weights before the samples.
    labels, full, *joined = (torch.cat(column, dim=0 if column[0].ndim == 1 else 1) for column in columns)
    predictions, confidence, scores, seen, gaps, margin, *answered = joined
    return Outcomes(
        num_classes=source.num_classes,
        labels=labels,
        sizes=source.sizes(),
        full=full,
        predictions=predictions,
        confidence=confidence,
        margin=margin,
        conformal_scores=scores,
        evidence=seen,
        probabilities=answered[0] if answered else None,
        brier_gaps=gaps,
    )


def brier_scores(probabilities: Tensor, labels: Tensor) -> Tensor:
    r"""Squared distance between what was answered and what was true.

    $$\sum_k (p_k - [k = y])^2 = 1 - 2 p_y + \sum_k p_k^2, \text{ in } [0, 2]$$

    Args:
        probabilities: `W x N x L x K`.
        labels: `N` true classes.

    Returns:
        `W x N x L`.

    Example:
        >>> brier_scores(torch.tensor([[[[0.5, 0.5], [1.0, 0.0]]]]), torch.tensor([1]))
        tensor([[[0.5000, 2.0000]]])
    """
    right = probabilities.gather(-1, labels[None, :, None, None].expand(*probabilities.shape[:-1], 1)).squeeze(-1)
    return 1 - 2 * right + probabilities.square().sum(-1)


def _full_temperature(bank: ExitBank, temperatures: Tensor) -> Tensor:
    """The temperature of the network's last head by itself: where it is averaged with others, the one for that."""
    averaging = bank.averaging
    averaged = bool(averaging.stages) and bool(averaging.shares[-1] != 0)
    return averaging.temperatures[-1] if averaged else temperatures[0, -1]


@torch.no_grad()
def _logits(bank: ExitBank, source: BatchSource) -> Iterator[tuple[Tensor, Batch]]:
    rows = max(1, min(1000, _CELLS // (bank.stacked * len(bank.widths) * bank.num_classes)))
    for batch in source.in_order(batch_size=rows):
        yield all_logits(bank, batch.features, batch.own_logits), batch
