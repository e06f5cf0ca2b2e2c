"""Measurements that the page shows."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from offramp_bench.paper.verdicts import Claim, Gap, Measure
from offramp_bench.tracks.intervals import Lead

__all__ = [
    "TITLES",
    "TRACKS",
    "Claim",
    "Contestant",
    "Footing",
    "Gap",
    "Lead",
    "Measure",
    "Results",
    "Task",
]

TRACKS = {
    "policy": "All contestants use the same trained exits; only the rule by which samples leave differs.",
    "exits": "All contestants use the same features, and exits of at most 2 % of the network's Mul-Adds; only their "
    "training differs.",
    "open": "The rivals are networks without exits: the network cut short, EfficientNet on smaller images than it was "
    "tuned to, and on CIFAR-10 trained smaller networks and their agreement. A cut network keeps every cut, also those "
    "that another beats on the tune split, so that its accuracies are too low where its line falls.",
}
"""Subject of each track."""

TITLES = {
    "cifar10": "CIFAR-10, ResNet-56",
    "cifar100": "CIFAR-100, EfficientNet-Lite0",
    "cifar100lt": "CIFAR-100-LT, EfficientNet-Lite0",
    "svhn": "SVHN, EfficientNet-Lite0",
    "cifar10-t2t": "CIFAR-10, T2T-ViT",
    "clinc150": "CLINC150, MiniLM",
    "banking77": "Banking77, MiniLM",
    "superpixels": "Superpixels, graph network",
    "nci1": "NCI1, graph network",
    "agnews": "AG News (final test), MiniLM",
    "sst2": "SST-2 (final test), MiniLM",
}
"""The nine tasks of the comparison and the two of the final test: dataset and network."""


@dataclass(frozen=True)
class Contestant:
    """Trained exits and a policy on them, measured on one task."""

    name: str
    track: str
    training: str
    """Name of the training of its exits; contestants with the same training share their exits."""
    policy: str
    """Registered name of the policy."""
    kind: str
    """"paper", "rival", "ablation", or "variant" for a variant of the default."""
    figures: Mapping[str, float]
    """The yardstick's figures, means over seeds; a figure that one contestant does not reach is left out for all."""
    curve: tuple[tuple[float, float], ...]
    """Relative costs and accuracies, means over seeds, in ascending order of cost."""
    parameters: int
    share_of_exits: float
    """Mul-Adds of all exits as a share of the network's."""
    cpu_seconds: float
    """CPU seconds of one fit."""
    settings: Mapping[str, Any]
    """The settings that tuning chose."""

    @property
    def label(self) -> str:
        """Name without the part that all contestants on its footing share."""
        if self.track == "open":
            return self.name
        name = self.name.split(": ", 1)[-1] if self.track == "policy" else self.name
        return name.removesuffix(", grid")


@dataclass(frozen=True)
class Footing:
    """Contestants that differ in one thing only, and the default among them."""

    track: str
    title: str
    """Name of the exits or features that they share."""
    default: Contestant
    contestants: tuple[Contestant, ...]
    """The default included, the best mean accuracy first."""
    leads: Mapping[str, Mapping[str, Lead]]
    """The default's lead over each other contestant, by name and figure."""


@dataclass(frozen=True)
class Task:
    """A dataset and a frozen network."""

    name: str
    about: str
    seeds: int
    samples: int
    """Number of test samples."""
    full_accuracy: float
    start: float
    """Relative cost where the mean accuracy begins."""
    footings: tuple[Footing, ...]

    @property
    def title(self) -> str:
        """Dataset and network."""
        return TITLES.get(self.name, self.name)


@dataclass(frozen=True)
class Results:
    """All measurements on the page."""

    tasks: tuple[Task, ...]
    claims: tuple[Claim, ...] | None
    """Claims of the paper; None if they are not judged yet."""

    @property
    def missing(self) -> tuple[str, ...]:
        """Titles of the tasks that are not measured yet."""
        names = {task.name for task in self.tasks}
        return tuple(title for name, title in TITLES.items() if name not in names)

    def footings(self, track: str) -> dict[str, list[tuple[Task, Footing]]]:
        """Return the footings of a track on every task, by what contestants share."""
        footings_by_title: dict[str, list[tuple[Task, Footing]]] = {}
        for task in self.tasks:
            for footing in task.footings:
                if footing.track == track:
                    footings_by_title.setdefault(footing.title, []).append((task, footing))
        return footings_by_title
