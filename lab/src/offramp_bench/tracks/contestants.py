"""The contestants: ways to train exits, policies on them, and their tracks."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from offramp.methods._settings import ExitKind
from offramp_bench.paper.tasks import LITE0
from offramp_bench.tracks.samples import Look

__all__ = [
    "AGREEMENT",
    "CASCADE",
    "CONTESTANTS",
    "DEFAULTS",
    "ONE_EXIT",
    "OPEN",
    "OTHER_NETWORKS",
    "SHIPPED",
    "TRAININGS",
    "VOTES",
    "Contestant",
    "Kind",
    "Track",
    "Training",
    "cells_of",
    "contestants_of",
]

Track = Literal["policy", "exits", "open"]
Kind = Literal["default", "paper", "rival", "ablation", "variant"]


@dataclass(frozen=True)
class Training:
    """A way to train exits, with every policy that is tried on them."""

    name: str
    method: str
    """Name of a registered method."""
    own_policies: tuple[str, ...]
    """Registered policies; the first is the method's own, by which its settings are tuned."""
    looks: tuple[Look, ...] = ("means",)
    settings: dict[str, Any] = field(default_factory=dict)
    """Fields of `JointSettings` that define the method; the rest is tuned."""
    joint: bool = False
    """Train in two phases, warm-up and alternation; otherwise in one."""
    tuned_as: str | None = None
    """Training whose tuned settings it inherits; its own if None."""
    footing: Look | None = None
    """Look on which the policies of the policy track are compared on these exits, if on any."""

    @property
    def exits(self) -> ExitKind | Literal["cascaded"]:
        """Kind of the exits."""
        kind: ExitKind = self.settings.get("exits", "linear")
        return "cascaded" if self.method == "ztw" else kind

    @property
    def is_tuned(self) -> bool:
        """False if it runs with settings of its own, or trains nothing."""
        return self.method not in ("default", VOTES)

    def policies(self, look: Look) -> tuple[str, ...]:
        """Return the policies that are tried on these exits."""
        return POLICIES if look == self.footing else self.own_policies


@dataclass(frozen=True)
class Contestant:
    """A training, a look and a policy, under the name that people know them by."""

    name: str
    track: Track
    training: str
    look: Look
    policy: str
    kind: Kind


POLICIES = (
    "threshold", "stopping", "entropy", "margin", "exit_thresholds", "patience", "beem", "pcee", "eenet", "gates"
)  # fmt: skip
"""Policies that need nothing but trained exits; the gates are trained on them."""

NAMES = {
    "threshold": "threshold",
    "stopping": "optimal stopping",
    "entropy": "entropy",
    "margin": "margin",
    "exit_thresholds": "geometric thresholds (MSDNet)",
    "patience": "patience (PABEE)",
    "beem": "BEEM",
    "pcee": "PCEE",
    "eenet": "EENet",
    "gates": "learned gates",
}
"""Policies as people know them."""

BOTH: tuple[Look, ...] = ("means", "grid")

_ABLATIONS: dict[str, dict[str, Any]] = {
    "rescaled loss": {"classifier_loss": "rescaled"},
    "plain loss": {"classifier_loss": "plain"},
    "full gradient": {"classifier_loss": "full"},
    "ExitIfMin": {"gate_target": "exit_if_min"},
    "no imbalance weights": {"imbalance": False},
    "fixed classifiers": {"classifier_loss": "fixed"},
}
"""Settings that each ablation of the paper's method changes."""

ONE_EXIT = "one_exit"
"""No policy: every sample leaves at the same exit."""

VOTES = "agreement"
"""No training and no policy of ours: networks vote."""

SHIPPED = "offramp.fit"
"""The shipped settings, nothing tuned from outside; points are chosen on tune as for every contestant."""

CASCADE = "offramp.fit, ResNet-20 in front"
"""The shipped settings on a cascade."""

AGREEMENT = "agreement of ResNets"
"""Agreement-based cascading: smaller networks vote, and the network answers where they disagree."""

OTHER_NETWORKS: dict[str, dict[str, str]] = {
    CASCADE: {"cifar10": "cifar10-cascade"},
    AGREEMENT: {"cifar10": "cifar10"},
    **{f"ResNet-{layers}": {"cifar10": f"cifar10-resnet{layers}"} for layers in (20, 32, 44)},
    **{f"{side} pixels, not tuned to it": {name: f"{name}-{side}px" for name in LITE0} for side in (48, 32)},
}
"""Trainings that only some tasks have, by name, and the task of the network that they use instead."""

OPEN = (SHIPPED, "cut network", *OTHER_NETWORKS)
"""Trainings of the open track. A cut network keeps its first stages and gets a trained head, the same for all samples;
another network may also be used whole, with its own head."""

TRAININGS: dict[str, Training] = {
    training.name: training
    for training in (
        Training("linear", "paper", ("threshold",), BOTH, {"classifier_loss": "fixed"}, footing="means"),
        Training(
            "ladder",
            "paper",
            ("threshold", "stopping"),
            BOTH,
            {"exits": "ladder", "classifier_loss": "fixed", "distillation": 0.5},
            footing="grid",
        ),
        Training("ladder without distillation", "classifiers", ("threshold",), BOTH, {"exits": "ladder"}),
        Training("distilled", "classifiers", ("threshold",), BOTH, {"distillation": 0.5}),
        Training("cumulative", "classifiers", ("threshold",), BOTH, {"exits": "cumulative"}),
        Training("JEI-DNN", "paper", ("gates", "threshold"), BOTH, joint=True),
        Training("BoostedNet", "boosted", ("exit_thresholds", "threshold"), BOTH),
        Training("L2W-DEN", "l2w_den", ("exit_thresholds", "threshold")),
        Training("DiffBranch", "diff_branch", ("branch_gates",), joint=True),
        Training("PTEENet", "pteenet", ("branch_gates",), joint=True),
        Training("ZTW", "ztw", ("threshold",), BOTH),
        Training("CalexNet", "calexnet", ("class_precision", "threshold"), BOTH),
        *(
            Training(f"JEI-DNN, {name}", "paper", ("gates",), ("means",), settings, joint=True, tuned_as="JEI-DNN")
            for name, settings in _ABLATIONS.items()
        ),
        Training(SHIPPED, "default", ("threshold",), ("grid",)),
        Training("cut network", "classifiers", (ONE_EXIT,), BOTH, tuned_as="linear"),
        Training(CASCADE, "default", ("threshold",), ("grid",)),
        Training(AGREEMENT, VOTES, (VOTES,)),
        *(
            Training(name, "classifiers", (ONE_EXIT,), BOTH, tuned_as="linear")
            for name in OTHER_NETWORKS
            if name not in (CASCADE, AGREEMENT)
        ),
    )
}
"""Ways to train exits, by name."""


def _contestants() -> Iterator[Contestant]:
    for training in TRAININGS.values():
        kind: Kind = "rival"
        if training.method == "default":
            kind = "default"
        elif training.name.startswith("JEI-DNN,"):
            kind = "ablation"
        elif "ladder" in training.name:
            kind = "variant"
        elif training.name == "JEI-DNN":
            kind = "paper"
        for look in training.looks:
            suffix = "" if look == "means" else ", grid"
            for policy in training.own_policies:
                rule = "" if policy == training.own_policies[0] else f", {NAMES[policy]}"
                if training.name in OPEN:
                    name = training.name if len(training.looks) == 1 else f"{training.name}{suffix}"
                    yield Contestant(name, "open", training.name, look, policy, kind)
                    continue
                yield Contestant(f"{training.name}{rule}{suffix}", "exits", training.name, look, policy, kind)
        if training.footing is not None:
            for policy in POLICIES:
                name = f"{training.name} exits: {NAMES[policy]}"
                yield Contestant(name, "policy", training.name, training.footing, policy, kind)


CONTESTANTS: dict[str, Contestant] = {contestant.name: contestant for contestant in _contestants()}
"""All contestants, by name."""

DEFAULTS = {
    "linear exits: threshold": "policy track, on the paper's exits",
    "ladder exits: threshold": "policy track, on the default's exits",
    "ladder": "exits track, the paper's features",
    "ladder, grid": "exits track, the default's features",
    SHIPPED: "open track, the default as it is shipped",
    CASCADE: "open track, the default on a cascade",
}
"""The default on each footing: the contestant that the others there are compared with."""


def contestants_of(task: str) -> dict[str, Contestant]:
    """Return the contestants of a task, by name."""
    return {name: contestant for name, contestant in CONTESTANTS.items() if is_tried(contestant.training, task)}


def is_tried(training: str, task: str) -> bool:
    """Return whether the networks of a training exist for a task."""
    return training not in OTHER_NETWORKS or task in OTHER_NETWORKS[training]


def cells_of(task: str, trainings: Sequence[str] = tuple(TRAININGS)) -> list[tuple[Training, Look]]:
    """Return every training and look that is fitted on a task.

    Args:
        task: Name of the task.
        trainings: Names of trainings.
    """
    names = [name for name in trainings if is_tried(name, task)]
    return [(TRAININGS[name], look) for name in names for look in TRAININGS[name].looks]
