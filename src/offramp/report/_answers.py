"""The answers at one operating point, by exit, by confidence and by class."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from offramp.model._outcomes import Outcomes, simulate
from offramp.policy import OperatingPoint
from offramp.uncertainty._intervals import paired_interval, wilson_interval

__all__ = [
    "Answers",
    "ClassChange",
    "Coverage",
    "ExitUse",
    "ReliabilityBin",
    "Sample",
    "answers_at",
    "changes_by_class",
    "coverages",
    "exit_uses",
    "leavers",
    "reliability",
]

Interval = tuple[float, float]

BINS = 15
"""Number of bins, as in `calibration_error`."""


@dataclass(frozen=True)
class ExitUse:
    """The samples that leave at one exit, and the accuracy on them."""

    exit: int
    """Its number, 0-based."""
    network: str
    """The network that its stage belongs to; a cascade has several."""
    samples: int
    """Number of samples that leave here."""
    share: float
    """Their share of all samples."""
    accuracy: float | None
    """Accuracy of the answers here; None if no sample leaves here."""
    accuracy_interval: Interval | None
    """95 %, Wilson's."""
    everyone: float
    """Accuracy of this exit if all samples left here."""
    full: float | None
    """The full network's accuracy on the samples that leave here."""


@dataclass(frozen=True)
class ReliabilityBin:
    """Answers of about the same confidence."""

    confidence: float
    """Their mean confidence."""
    accuracy: float
    """Share of right answers."""
    samples: int
    """Number of answers."""


@dataclass(frozen=True)
class ClassChange:
    """The change of accuracy of one class."""

    label: int
    """The class, 0 to K-1."""
    name: str
    """Its name."""
    samples: int
    """Number of samples of the class."""
    accuracy: float | None
    """Accuracy on them; None for a class without samples."""
    change: float | None
    """Accuracy minus the full network's on the same samples."""
    change_interval: Interval | None
    """95 %, Bonett and Price's, of the paired difference."""


@dataclass(frozen=True)
class Coverage:
    """The coverage of prediction sets at one miscoverage."""

    miscoverage: float
    """Allowed share of samples whose set misses the true class."""
    coverage: float
    """Share of the samples whose set contains the true class."""
    coverage_interval: Interval
    """95 %, Wilson's."""


@dataclass(frozen=True)
class Sample:
    """One sample and its answer."""

    row: int
    """Its row in the source."""
    label: int
    """Its true class."""
    predicted: int
    """Its predicted class."""
    exit: int
    """The exit where it left."""
    confidence: float
    """Probability of the predicted class."""


@dataclass(frozen=True)
class Answers:
    """The answers of N samples at one operating point."""

    labels: Tensor
    """`N` true classes."""
    exits: Tensor
    """`N` exits they left at."""
    predictions: Tensor
    """`N` predicted classes."""
    confidence: Tensor
    """`N` probabilities of the predicted classes, at most 1."""
    scores: Tensor
    """`N` conformal scores of the true classes."""
    full_correct: Tensor
    """`N` booleans, True where the full network is right."""

    @property
    def correct(self) -> Tensor:
        """`N` booleans, True where the answer is right."""
        return self.predictions == self.labels


def answers_at(point: OperatingPoint, outcomes: Outcomes, *, seed: int) -> Answers:
    """Return the answers at one point; the seed is for policies that sample."""
    exits = simulate([point], outcomes, seed=seed)[0]
    index = point.classifier, torch.arange(len(exits)), exits
    confidence = outcomes.confidence[index].clamp_max(1)  # a softmax may round to a little over 1
    return Answers(
        outcomes.labels,
        exits,
        outcomes.predictions[index],
        confidence,
        outcomes.conformal_scores[index],
        outcomes.full_correct,
    )


def exit_uses(answers: Answers, correct: Tensor, active: Sequence[int], networks: Sequence[str]) -> tuple[ExitUse, ...]:
    """Decompose the answers by exit: Figure 3 of [Regol2024], with the full network on the same samples.

    Args:
        answers: The answers.
        correct: `N x L` booleans, True where an exit is right on a sample.
        active: The active exits.
        networks: `L` names, of the network that each exit belongs to.
    """
    uses = []
    for exit in active:
        here = answers.exits == exit
        count, hits = int(here.sum()), int(answers.correct[here].sum())
        uses.append(
            ExitUse(
                exit=exit,
                network=networks[exit],
                samples=count,
                share=count / len(here),
                accuracy=hits / count if count else None,
                accuracy_interval=wilson_interval(hits, count) if count else None,
                everyone=float(correct[:, exit].double().mean()),
                full=float(answers.full_correct[here].double().mean()) if count else None,
            )
        )
    return tuple(uses)


def reliability(answers: Answers) -> tuple[ReliabilityBin, ...]:
    """Compute confidence and accuracy in the equal-mass bins of `offramp.uncertainty.calibration_error`.

    The gaps between the two, weighted by the bins' samples, sum to that error: ties in confidence are shared out in the
    same way. Empty bins are left out.
    """
    confidence, order = answers.confidence.double().sort()
    group = confidence.diff(prepend=confidence[:1]).ne(0).cumsum(0)
    accuracy = (group.bincount(answers.correct.double()[order]) / group.bincount())[group]
    edges = (torch.arange(BINS + 1) * len(order) // BINS).tolist()
    return tuple(
        ReliabilityBin(float(confidence[start:stop].mean()), float(accuracy[start:stop].mean()), stop - start)
        for start, stop in pairwise(edges)
        if stop > start
    )


def changes_by_class(answers: Answers, names: Sequence[str]) -> tuple[ClassChange, ...]:
    """Compute the change of each class, largest loss first, classes without samples last."""

    def per_class(mask: Tensor) -> list[int]:
        return answers.labels[mask].bincount(minlength=len(names)).tolist()

    every = torch.ones_like(answers.full_correct)
    counts = zip(
        per_class(every),
        per_class(answers.correct),
        per_class(answers.correct & ~answers.full_correct),
        per_class(~answers.correct & answers.full_correct),
        strict=True,
    )
    changes = [
        ClassChange(
            label=label,
            name=names[label],
            samples=count,
            accuracy=hits / count if count else None,
            change=(gained - lost) / count if count else None,
            change_interval=paired_interval(gained, lost, count) if count else None,
        )
        for label, (count, hits, gained, lost) in enumerate(counts)
    ]
    # Of equal changes, the class with more samples comes first.
    return tuple(sorted(changes, key=lambda row: (row.change is None, row.change or 0.0, -row.samples)))


def coverages(answers: Answers, thresholds: Mapping[float, Tensor]) -> tuple[Coverage, ...]:
    """Compute the coverage of prediction sets at each miscoverage, from its `L` or `L x K` thresholds."""
    rows = []
    for miscoverage in sorted(thresholds):
        limits = thresholds[miscoverage]
        own = limits[answers.exits] if limits.ndim == 1 else limits[answers.exits, answers.labels]
        covered = int((answers.scores <= own).sum())
        interval = wilson_interval(covered, len(answers.exits))
        rows.append(Coverage(miscoverage, covered / len(answers.exits), interval))
    return tuple(rows)


def leavers(answers: Answers, *, count: int = 24) -> tuple[tuple[Sample, ...], tuple[Sample, ...]]:
    """Return samples that leave first and samples that leave last, in the order of rows at each exit.

    No sample is in both groups; if all leave at one exit, the second group is empty.
    """
    order = answers.exits.sort(stable=True).indices
    first = order[:count].tolist()
    late = (-answers.exits).sort(stable=True).indices.tolist()
    several = bool((answers.exits != answers.exits[0]).any())
    last = [row for row in late if row not in set(first)][:count] if several else []

    def samples(rows: list[int]) -> tuple[Sample, ...]:
        columns = (
            column[rows].tolist() for column in (answers.labels, answers.predictions, answers.exits, answers.confidence)
        )
        return tuple(Sample(*values) for values in zip(rows, *columns, strict=True))

    return samples(first), samples(last)
