"""What the benchmark of the paper measured."""

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = [
    "VERDICTS",
    "WITHHELD",
    "Bar",
    "Contestant",
    "CurvePoint",
    "Decomposition",
    "ExitFigures",
    "Gap",
    "Measure",
    "Observation",
    "PaperResults",
    "Task",
]

WITHHELD = "not yet tested fairly"
"""The verdict while contestants did not get the same training."""

VERDICTS = ("holds", "mixed", "not shown", "does not hold", WITHHELD, "not tested")
"""What became of a claim; not shown is one with no difference beyond noise either way."""


@dataclass(frozen=True)
class CurvePoint:
    """A point of a curve, a mean over seeds."""

    cost: float
    """Relative to the full network."""
    accuracy: float
    """Share that is right."""
    ece: float | None = None
    """Expected calibration error."""
    set_size: float | None = None
    """Classes in a prediction set of 95 %, on average."""
    coverage: float | None = None
    """Share of the sets that hold the true class."""
    early: float | None = None
    """Share that leaves in the first third of the exits."""


@dataclass(frozen=True)
class Contestant:
    """A way to fit exits and to leave by them, or a smaller network, on one task."""

    name: str
    """What people know it by."""
    kind: str
    """default, paper, rival, ablation, policy, exits or static."""
    area: float
    """Mean accuracy over costs on a logarithmic scale."""
    below_default: float
    """How far the area lies below offramp's."""
    interval: tuple[float, float]
    """95 % of that difference."""
    curve: tuple[CurvePoint, ...]
    """From cheap to dear."""
    cost_at_full: float | None = None
    """Least cost at the full network's accuracy; None if it is not reached."""
    cost_at_half: float | None = None
    """The same at half a point less."""
    cpu_seconds: float | None = None
    """What fitting took."""
    parameters: int | None = None
    """Of exits and gates."""


@dataclass(frozen=True)
class ExitFigures:
    """What happens at one exit under the paper's gates."""

    leave: int
    """How many leave."""
    accuracy: float | None
    """On those; None if there are none."""
    accuracy_of_all: float
    """The exit on all samples."""
    accuracy_at_end: float | None
    """The full network on those who leave here."""
    ece: float | None
    """On those; None if they are few."""


@dataclass(frozen=True)
class Decomposition:
    """The paper's gates at one cost weight, exit by exit."""

    cost_weight: float
    """How dear compute was in training."""
    cost: float
    """What it then costs."""
    accuracy: float
    """Of all."""
    exits: tuple[ExitFigures, ...]
    """From first to last."""
    requested: tuple[float, ...]
    """Coverages asked for."""
    covered: Mapping[str, tuple[float, ...]]
    """What each conformal variant covers."""


@dataclass(frozen=True)
class Task:
    """A dataset and a frozen network."""

    name: str
    """Of both."""
    kind: str
    """image, text or graph."""
    alone: str | None
    """Of a cascade: the task of its last network alone."""
    samples: int
    """Test samples."""
    full_accuracy: float
    """Of the network without exits."""
    axis_from: float
    """Cost that areas begin at."""
    contestants: Mapping[str, Contestant]
    """Who was measured, by name."""
    decomposition: tuple[Decomposition, ...]
    """Of the paper's gates; empty where they were not fitted."""
    priced_losses: Mapping[str, tuple[float, ...]]
    """By epoch of joint training, a mean over cost weights: of the weighted loss and of the full gradient."""
    about: str = ""
    """Dataset and network in words, and what to mind."""


@dataclass(frozen=True)
class Bar:
    """A figure and the most it may be."""

    name: str
    """What is measured."""
    figure: float | None
    """None if it is not a number."""
    at_most: float
    """The bar."""
    held: bool
    """Whether the figure is no more."""


@dataclass(frozen=True)
class Gap:
    """By how much a claim is met on a task; negative where the contrary is."""

    figure: float
    """How much."""
    noise: float
    """Up to which it says nothing."""


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
    """What they say."""


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
    """What it rests on."""
    why: str
    """How the verdict came about."""


@dataclass(frozen=True)
class PaperResults:
    """Everything in the file."""

    tasks: Mapping[str, Task]
    """By name."""
    bars: tuple[Bar, ...]
    """What must hold."""
    observations: Mapping[str, Observation]
    """By name."""
    missing: tuple[str, ...] = ()
    """Tasks of the benchmark that have not been measured with all seeds."""
