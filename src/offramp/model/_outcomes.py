"""Answers of all exits on a set of samples, computed once, and the simulation of policies on them."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from offramp.errors import InputError
from offramp.exits import ExitSet
from offramp.exits._exit_set import all_logits
from offramp.features import BatchSource
from offramp.features._batch import Batch
from offramp.functional import evidence
from offramp.functional._statistics import log_probabilities
from offramp.policy import Observation, OperatingPoint
from offramp.policy._observation import top_two_margin
from offramp.uncertainty._conformal import conformal_scores
from offramp.uncertainty._temperature import fit_temperatures, floor_temperatures, scale_logits

__all__ = ["Outcomes", "brier_scores", "compute_outcomes", "exit_shares", "simulate", "tune_temperatures"]

_CELLS = 1_000_000  # logits in a piece: tens of megabytes of working memory; in larger pieces all of it takes longer
_KEPT_CELLS = (
    25_000_000  # logits kept between two passes over the tune split: 100 MB; with more they are computed again
)
_POINT_CELLS = 500_000  # points times samples simulated at a time: less than 20 MB of working memory


@dataclass(frozen=True)
class Outcomes:
    """Answers of all exits on N samples, for W sets of classifiers."""

    num_classes: int
    """K."""
    labels: Tensor
    """`N` true classes."""
    sizes: Tensor
    """`N` sizes, on which costs depend if samples differ in size."""
    full: Tensor
    """`N` predictions of the full network: its own last head, not averaged."""
    predictions: Tensor
    """`W x N x L` predicted classes."""
    confidence: Tensor
    """`W x N x L` largest probability, temperature applied."""
    margin: Tensor
    """`W x N x L` lead of the largest probability over the second."""
    conformal_scores: Tensor
    """`W x N x L` one minus the probability of the true class, temperature applied."""
    evidence: Tensor
    """`W x N x L x 4` evidence of the raw logits."""
    probabilities: Tensor | None = None
    """`W x N x L x K` probabilities, temperature applied, if a policy reads them; None otherwise, for their size."""
    brier_gaps: Tensor | None = None
    """`W x N x L` Brier scores, temperature applied, minus that of the full network at its own temperature."""

    @cached_property
    def full_correct(self) -> Tensor:
        """`N` booleans: the full network is right."""
        return self.full == self.labels

    @cached_property
    def correct(self) -> Tensor:
        """`W x N x L` booleans: the exit is right."""
        return self.predictions == self.labels[:, None]

    def observe(self, reads: Collection[str], classifier: int, exit: int, noise: Tensor | None = None) -> Observation:
        """Return the observation of a policy at one exit, from these answers.

        Args:
            reads: Statistics that the policy reads.
            classifier: Place of the set of classifiers.
            exit: The exit.
            noise: `N` uniform draws, if the policy reads them.
        """
        if "probabilities" in reads and self.probabilities is None:
            raise InputError(
                expected="outcomes with the probabilities of all classes, which this policy reads",
                got="outcomes without",
                hint="make them with compute_outcomes(..., probabilities=True)",
            )
        columns = {
            "confidence": self.confidence,
            "evidence": self.evidence,
            "margin": self.margin,
            "prediction": self.predictions,
            "probabilities": self.probabilities,
        }
        fields = {
            name: column[classifier, :, exit]
            for name, column in columns.items()
            if name in reads and column is not None
        }
        # Contiguous, as each number is compared with the parameters of many points; probabilities are rows already.
        fields |= {name: field.contiguous() for name, field in fields.items() if name != "probabilities"}
        return Observation(**fields, noise=noise)


def tune_temperatures(exits: ExitSet, tune: BatchSource) -> Tensor:
    """Fit one temperature per exit, for each set of classifiers.

    Args:
        exits: The exits.
        tune: Samples to fit on; never those that conformal thresholds come from.

    Returns:
        `W x L` temperatures.
    """

    def chunks() -> Iterator[tuple[Tensor, Tensor]]:
        return ((logits, batch.labels) for logits, batch in _logits(exits, tune))

    if tune.num_samples * exits.stacked * len(exits.widths) * exits.num_classes > _KEPT_CELLS:
        return floor_temperatures(fit_temperatures(chunks))
    kept = list(chunks())  # 4 to 9 passes over the same numbers
    return floor_temperatures(fit_temperatures(lambda: kept))


def compute_outcomes(
    exits: ExitSet, source: BatchSource, temperatures: Tensor, *, probabilities: bool = False
) -> Outcomes:
    """Let every exit answer every sample.

    Args:
        exits: The exits.
        source: The samples.
        temperatures: `W x L`.
        probabilities: Keep those of all classes, `W x N x L x K` numbers, for policies that read them.

    Returns:
        The outcomes, in the order of the source.
    """
    parts = []
    last = source.own_heads[-1]
    for logits, batch in _logits(exits, source):
        labels, full = batch.labels, batch.own_logits[last].argmax(-1)
        answers = log_probabilities(scale_logits(logits, temperatures)).exp()
        confidence, predictions = answers.max(-1)
        scores = torch.stack([conformal_scores(answer, labels) for answer in answers])
        full_answers = log_probabilities(batch.own_logits[last].float() / _full_temperature(exits, temperatures)).exp()
        gaps = brier_scores(answers, labels) - brier_scores(full_answers[None, :, None], labels)
        kept = (answers.contiguous(),) if probabilities else ()  # a row a sample: one exit is read at a time
        numbers = (confidence, scores, evidence(log_probabilities(logits)), gaps, top_two_margin(answers))
        parts.append((labels, full, predictions, *numbers, *kept))
    columns = zip(*parts, strict=True)
    # Labels and the full network's answers have no axis of cost weights before the samples.
    labels, full, *joined = (torch.cat(column, dim=0 if column[0].ndim == 1 else 1) for column in columns)
    predictions, confidence, scores, statistics, gaps, margin, *answered = joined
    return Outcomes(
        num_classes=source.num_classes,
        labels=labels,
        sizes=source.sizes(),
        full=full,
        predictions=predictions,
        confidence=confidence,
        margin=margin,
        conformal_scores=scores,
        evidence=statistics,
        probabilities=answered[0] if answered else None,
        brier_gaps=gaps,
    )


def brier_scores(probabilities: Tensor, labels: Tensor) -> Tensor:
    r"""Return Brier scores.

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


def _full_temperature(exits: ExitSet, temperatures: Tensor) -> Tensor:
    """Return the temperature of the network's last head by itself, also if it is averaged with others."""
    averaging = exits.averaging
    averaged = bool(averaging.stages) and bool(averaging.shares[-1] != 0)
    return averaging.temperatures[-1] if averaged else temperatures[0, -1]


@torch.no_grad()
def _logits(exits: ExitSet, source: BatchSource) -> Iterator[tuple[Tensor, Batch]]:
    rows = max(1, min(1000, _CELLS // (exits.stacked * len(exits.widths) * exits.num_classes)))
    for batch in source.in_order(batch_size=rows):
        yield all_logits(exits, batch.features, batch.own_logits), batch


def simulate(points: Sequence[OperatingPoint], outcomes: Outcomes, *, seed: int = 0) -> Tensor:
    """Simulate where samples leave at operating points, without running the network.

    Args:
        points: P operating points.
        outcomes: Outcomes of N samples.
        seed: Seed of sampling policies.

    Returns:
        `P x N` exits, 0-based.
    """
    exits = torch.empty(len(points), len(outcomes.labels), dtype=torch.long)
    alike: dict[tuple[str, tuple[int, ...], int], list[int]] = defaultdict(list)
    for index, point in enumerate(points):
        alike[point.policy, point.active, point.classifier].append(index)
    at_once = max(1, _POINT_CELLS // max(1, len(outcomes.labels)))
    for indices in alike.values():
        for start in range(0, len(indices), at_once):
            group = indices[start : start + at_once]
            exits[group] = _simulate_alike([points[index] for index in group], outcomes, seed)
    return exits


def exit_shares(exits: Tensor, outcomes: Outcomes, *, powers: int = 1) -> Tensor:
    """Return the share of the samples that leaves at each exit, and their sizes where samples differ in size.

    Args:
        exits: `P x N` exits the samples leave at.
        outcomes: Outcomes of the N samples.
        powers: C, number of powers of the size that costs depend on: 1, size, size squared.

    Returns:
        `P x C x L` sums of a power of the size over the samples that leave at an exit, divided by N.
    """
    weights = torch.stack([outcomes.sizes.double() ** power for power in range(powers)])
    shares = torch.zeros(len(exits), powers, outcomes.predictions.shape[-1], dtype=torch.float64)
    shares.scatter_add_(2, exits[:, None].expand(-1, powers, -1), weights.expand(len(exits), -1, -1))
    return shares / exits.shape[1]


def _simulate_alike(points: Sequence[OperatingPoint], outcomes: Outcomes, seed: int) -> Tensor:
    """Return exits `P x N` of points that share policy, active exits and classifiers."""
    first = points[0]
    rule = first.rule
    stacked = {name: torch.stack([point.parameters[name] for point in points]) for name in first.parameters}
    generator = torch.Generator().manual_seed(seed)
    shape = (len(points), len(outcomes.labels))
    exits_passed = torch.zeros(shape, dtype=torch.int16)  # a quarter of the memory traffic of int64
    undecided = torch.ones(shape, dtype=torch.bool)
    carry = rule.initial_carry(torch.zeros(shape))
    for exit in first.active[:-1]:
        noise = torch.rand(len(outcomes.labels), generator=generator) if "noise" in rule.reads else None
        observation = outcomes.observe(rule.reads, first.classifier, exit, noise)
        here = {name: value[:, exit] if name in rule.per_exit else value for name, value in stacked.items()}
        leave, carry = rule.step(observation, carry, {name: value[:, None] for name, value in here.items()})
        undecided &= ~leave
        exits_passed += undecided
    return torch.tensor(first.active)[exits_passed.long()]
