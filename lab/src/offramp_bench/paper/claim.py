"""A claim of the paper, the figures that it is judged by, and its verdict."""

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["VERDICTS", "WITHHELD", "Gap", "Measure", "Observation"]

WITHHELD = "not yet tested fairly"
"""The verdict while contestants did not get the same training."""

VERDICTS = ("holds", "mixed", "not shown", "does not hold", WITHHELD, "not tested")
"""What became of a claim; not shown is one with no difference beyond noise either way."""


@dataclass(frozen=True)
class Gap:
    """By how much a claim is met on a task; negative where the contrary is."""

    figure: float
    """The difference."""
    noise: float
    """Differences up to this size say nothing."""


@dataclass(frozen=True)
class Measure:
    """One figure of a claim, on every task that has it."""

    what: str
    """In words, the unit first."""
    by_task: Mapping[str, Gap]
    """The figures."""
    against: tuple[str, ...]
    """Tasks that speak against the claim."""
    verdict: str
    """One of the verdicts."""


@dataclass(frozen=True)
class Observation:
    """A claim of the paper, and what became of it."""

    name: str
    """A few words."""
    claim: str
    """The claim."""
    verdict: str
    """One of the verdicts."""
    figures: tuple[Measure, ...]
    """Figures that the verdict rests on."""
    why: str
    """Reason of the verdict."""
