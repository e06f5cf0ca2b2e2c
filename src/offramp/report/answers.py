"""The answers given at one operating point, and what they say exit by exit, bin by bin, class by class."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from offramp.frontier import Outcomes, simulate
from offramp.policy import OperatingPoint
from offramp.uncertainty import paired_interval, wilson_interval

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
    "leavers",
    "reliability",
    "uses_of_exits",
]

Interval = tuple[float, float]

BINS = 15
"""As many as `calibration_error` has."""


@dataclass(frozen=True)
class ExitUse:
    """Who leaves at one exit, and whether they should have."""

    exit: int
    """Its number, 0-based."""
    network: str
    """The network it follows a stage of: of a cascade, one of several."""
    samples: int
    """How many leave here."""
    share: float
    """Of all samples."""
    accuracy: float | None
    """Of the answers given here; None where nobody leaves."""
    accuracy_interval: Interval | None
    """95 %, Wilson's."""
    everyone: float
    """Accuracy of this exit if all samples left here."""
    full: float | None
    """The full network's accuracy on those who leave here: what they gave up, or gained."""


@dataclass(frozen=True)
class ReliabilityBin:
    """Answers of about the same confidence."""

    confidence: float
    """Their mean confidence."""
    accuracy: float
    """How many of them are right."""
    samples: int
    """How many they are."""


@dataclass(frozen=True)
class ClassChange:
    """What one class pays for the saving."""

    label: int
    """The class, 0 to K-1."""
    name: str
    """Its name."""
    samples: int
    """How many samples are of it."""
    accuracy: float | None
    """On them; None for a class without samples."""
    change: float | None
    """Accuracy minus the full network's on the same samples."""
    change_interval: Interval | None
    """95 %, Bonett and Price's, of the paired difference."""


@dataclass(frozen=True)
class Coverage:
    """Whether prediction sets keep their promise."""

    miscoverage: float
    """Share of the samples that may be left out."""
    coverage: float
    """Share of the samples whose set holds the true class."""
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
    """The class answered."""
    exit: int
    """Where it left."""
    confidence: float
    """Probability given to the answer."""


@dataclass(frozen=True)
class Answers:
    """What N samples were answered at one operating point."""

    labels: Tensor
    """`N` true classes."""
    exits: Tensor
    """`N` exits they left at."""
    predictions: Tensor
    """`N` classes answered."""
    confidence: Tensor
    """`N` probabilities given to them, at most 1."""
    scores: Tensor
    """`N` conformal scores of the true classes."""
    full_correct: Tensor
    """`N` whether the full network is right."""

    @property
    def correct(self) -> Tensor:
        """`N` whether the answer is right."""
        return self.predictions == self.labels


def answers_at(point: OperatingPoint, seen: Outcomes, *, seed: int) -> Answers:
    """What outcomes say at one point; `seed` is of the draws that sampling policies take."""
    exits = simulate([point], seen, seed=seed)[0]
    place = point.classifier, torch.arange(len(exits)), exits
    confidence = seen.confidence[place].clamp_max(1)  # a softmax may round to a little over 1
    return Answers(
        seen.labels, exits, seen.predictions[place], confidence, seen.conformal_scores[place], seen.full_correct
    )


def uses_of_exits(
    given: Answers, correct: Tensor, active: Sequence[int], networks: Sequence[str]
) -> tuple[ExitUse, ...]:
    """The decomposition by exits: Figure 3 of [Regol2024], with the full network on the same samples beside it.

    Args:
        given: The answers given.
        correct: `N x L` whether each exit is right on each sample.
        active: The exits in force.
        networks: `L` names, of the network each exit belongs to.
    """
    uses = []
    for exit in active:
        here = given.exits == exit
        count, hits = int(here.sum()), int(given.correct[here].sum())
        uses.append(
            ExitUse(
                exit=exit,
                network=networks[exit],
                samples=count,
                share=count / len(here),
                accuracy=hits / count if count else None,
                accuracy_interval=wilson_interval(hits, count) if count else None,
                everyone=float(correct[:, exit].double().mean()),
                full=float(given.full_correct[here].double().mean()) if count else None,
            )
        )
    return tuple(uses)


def reliability(given: Answers) -> tuple[ReliabilityBin, ...]:
    """Confidence and accuracy in equal-mass bins, those of `offramp.uncertainty.calibration_error`.

    The gaps between the two, weighted by the bins' samples, sum to that error: ties in confidence are shared out in the
    same way. Bins that fewer samples than bins leave empty are left out.
    """
    confidence, order = given.confidence.double().sort()
    group = confidence.diff(prepend=confidence[:1]).ne(0).cumsum(0)
    accuracy = (group.bincount(given.correct.double()[order]) / group.bincount())[group]
    edges = (torch.arange(BINS + 1) * len(order) // BINS).tolist()
    return tuple(
        ReliabilityBin(float(confidence[start:stop].mean()), float(accuracy[start:stop].mean()), stop - start)
        for start, stop in pairwise(edges)
        if stop > start
    )


def changes_by_class(given: Answers, names: Sequence[str]) -> tuple[ClassChange, ...]:
    """What each class gains or loses, those that lose most first, classes without samples at the end."""

    def per_class(which: Tensor) -> list[int]:
        return given.labels[which].bincount(minlength=len(names)).tolist()

    every = torch.ones_like(given.full_correct)
    counted = zip(
        per_class(every),
        per_class(given.correct),
        per_class(given.correct & ~given.full_correct),
        per_class(~given.correct & given.full_correct),
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
        for label, (count, hits, gained, lost) in enumerate(counted)
    ]
    # Of equal changes, the one that more samples vouch for comes first.
    return tuple(sorted(changes, key=lambda one: (one.change is None, one.change or 0.0, -one.samples)))


def coverages(given: Answers, thresholds: Mapping[float, Tensor]) -> tuple[Coverage, ...]:
    """Coverage of the prediction sets at each miscoverage, from `L` thresholds each, or `L x K`."""
    found = []
    for miscoverage in sorted(thresholds):
        limits = thresholds[miscoverage]
        own = limits[given.exits] if limits.ndim == 1 else limits[given.exits, given.labels]
        covered = int((given.scores <= own).sum())
        interval = wilson_interval(covered, len(given.exits))
        found.append(Coverage(miscoverage, covered / len(given.exits), interval))
    return tuple(found)


def leavers(given: Answers, *, count: int = 24) -> tuple[tuple[Sample, ...], tuple[Sample, ...]]:
    """Samples that leave first and samples that leave last, in the order of rows at each exit: nothing is hand-picked.

    No sample is among both, and where all leave at one exit nobody is last.
    """
    order = given.exits.sort(stable=True).indices
    first = order[:count].tolist()
    late = (-given.exits).sort(stable=True).indices.tolist()
    several = bool((given.exits != given.exits[0]).any())
    last = [row for row in late if row not in set(first)][:count] if several else []

    def samples(rows: list[int]) -> tuple[Sample, ...]:
        columns = (column[rows].tolist() for column in (given.labels, given.predictions, given.exits, given.confidence))
        return tuple(Sample(*values) for values in zip(rows, *columns, strict=True))

    return samples(first), samples(last)
