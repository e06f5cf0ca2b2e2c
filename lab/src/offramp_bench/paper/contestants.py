"""Who is compared: ways to fit exits, and rules for leaving on them."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from offramp.methods._settings import JointSettings
from offramp_bench.paper.tasks import Look, Task

__all__ = ["CONTESTANTS", "EXITS", "Contestant", "Exits", "is_tried"]


@dataclass(frozen=True)
class Exits:
    """A way to fit exits."""

    name: str
    method: str
    """Name of a registered method."""
    look: Look
    """What they see of a stage."""
    settings: Callable[[Task], JointSettings]
    rules: tuple[str, ...]
    """Names of registered candidates: how samples leave."""


@dataclass(frozen=True)
class Contestant:
    """Exits and a rule, under the name that people know them by."""

    name: str
    exits: str
    rule: str
    kind: Literal["default", "paper", "rival", "ablation", "policy", "exits"]
    """A rival method, an ablation of the paper's, another policy on the default's exits, or other exits for it."""


def _paper(**changes: object) -> Callable[[Task], JointSettings]:
    return lambda task: replace(task.paper, **changes)  # type: ignore[arg-type]


def _default(**changes: object) -> Callable[[Task], JointSettings]:
    return lambda task: replace(task.default, **changes)  # type: ignore[arg-type]


def _wide(times: float) -> Callable[[Task], JointSettings]:
    return lambda task: replace(task.default, ladder_width=int(times * task.default.state_width(task.num_classes)))


def _fixed(task: Task) -> JointSettings:
    """The paper's gates on classifiers that have learned as long as its own do, and stay."""
    whole = task.paper.warmup_epochs + task.paper.epochs
    return replace(task.paper, classifier_loss="fixed", warmup_epochs=whole, epochs=task.paper.epochs)


OWN = ("threshold", "entropy", "margin", "geometric", "patience", "stopping", "eenet", "gates")
"""Rules that need nothing but exits that answer."""

DEFAULT_POLICIES = ("stopping", "threshold", "gates")
"""Rules that a frontier of `offramp.fit` offers."""

DEFAULT_RULE = DEFAULT_POLICIES[0]
"""The one that it prefers."""

ON_CASCADES = ("ladder", "ends")
"""All that is tried on a cascade of networks."""

ABLATED = ("cifar10", "cifar100", "cifar100lt", "clinc150", "superpixels")
"""Tasks on which parts of the default are left out or changed, one at a time."""

EXITS: dict[str, Exits] = {
    exits.name: exits
    for exits in (
        Exits("ladder", "joint", "default", _default(), OWN),
        Exits("linear", "classifiers", "paper", _paper(), tuple(rule for rule in OWN if rule != "gates")),
        Exits("fixed", "joint", "paper", _fixed, ("gates",)),
        Exits("weighted", "joint", "paper", _paper(), ("gates", "threshold")),
        Exits("rescaled", "joint", "paper", _paper(classifier_loss="rescaled"), ("gates",)),
        Exits("plain", "joint", "paper", _paper(classifier_loss="plain"), ("gates",)),
        Exits("full", "joint", "paper", _paper(classifier_loss="full"), ("gates",)),
        Exits("exit if min", "joint", "paper", _paper(gate_target="exit_if_min"), ("gates",)),
        Exits("no imbalance", "joint", "paper", _paper(imbalance=False), ("gates",)),
        Exits("boosted", "boosted", "paper", _paper(), ("geometric",)),
        Exits("l2w", "l2w_den", "paper", _paper(), ("geometric",)),
        Exits("diff branch", "diff_branch", "paper", _paper(), ("branch_gates",)),
        Exits("pteenet", "pteenet", "paper", _paper(), ("branch_gates",)),
        Exits("ztw", "ztw", "paper", _paper(), ("threshold",)),
        Exits(
            "linear, default's look", "joint", "default", _default(exits="linear", weight_decay=0.0), DEFAULT_POLICIES
        ),
        Exits(
            "cumulative, default's look",
            "joint",
            "default",
            _default(exits="cumulative", weight_decay=0.0),
            DEFAULT_POLICIES,
        ),
        Exits("ladder, paper's look", "joint", "paper", _default(), DEFAULT_POLICIES),
        Exits("ladder, means alone", "joint", "means", _default(), DEFAULT_POLICIES[:2]),
        Exits("ladder, one view", "joint", "one view", _default(), DEFAULT_POLICIES[:2]),
        Exits("ladder, half as wide", "joint", "default", _wide(0.5), DEFAULT_POLICIES[:2]),
        Exits("ladder, twice as wide", "joint", "default", _wide(2), DEFAULT_POLICIES[:2]),
        Exits("ladder, half as long", "joint", "default", _default(warmup_epochs=4), DEFAULT_POLICIES[:2]),
        Exits("ladder, weighted", "joint", "default", _default(classifier_loss="weighted"), DEFAULT_POLICIES),
        Exits("ladder, distilled", "classifiers", "default", _default(distillation=0.5), DEFAULT_POLICIES[:2]),
        Exits("ends", "classifiers", "paper", _paper(warmup_epochs=1, epochs=0), ("ends",)),
    )
}

PARTS = (
    "ladder, means alone",
    "ladder, one view",
    "ladder, half as wide",
    "ladder, twice as wide",
    "ladder, half as long",
    "ladder, weighted",
    "ladder, distilled",
)
"""The default with one part of it changed."""


def is_tried(task: Task, exits: str) -> bool:
    """Whether a way to fit exits is among those for a task.

    Args:
        task: The task.
        exits: Name of the way.
    """
    if task.alone is not None:
        return exits in ON_CASCADES
    if exits == "ladder, one view" and not task.augmented:
        return False  # there is but one
    return exits != "ends" and (exits not in PARTS or task.name in ABLATED)


CONTESTANTS: dict[str, Contestant] = {
    contestant.name: contestant
    for contestant in (
        Contestant("offramp", "ladder", DEFAULT_RULE, "default"),
        Contestant("JEI-DNN", "weighted", "gates", "paper"),
        Contestant("threshold", "linear", "threshold", "paper"),
        Contestant("entropy", "linear", "entropy", "rival"),
        Contestant("margin", "linear", "margin", "rival"),
        Contestant("geometric (MSDNet)", "linear", "geometric", "rival"),
        Contestant("BoostedNet", "boosted", "geometric", "rival"),
        Contestant("L2W-DEN", "l2w", "geometric", "rival"),
        Contestant("DiffBranch", "diff branch", "branch_gates", "rival"),
        Contestant("PTEENet", "pteenet", "branch_gates", "rival"),
        Contestant("EENet", "linear", "eenet", "rival"),
        Contestant("ZTW", "ztw", "threshold", "rival"),
        Contestant("patience (PABEE)", "linear", "patience", "rival"),
        Contestant("optimal stopping", "linear", "stopping", "rival"),
        Contestant("fixed classifiers", "fixed", "gates", "ablation"),
        Contestant("JEI-DNN's classifiers, threshold", "weighted", "threshold", "ablation"),
        Contestant("rescaled", "rescaled", "gates", "ablation"),
        Contestant("plain", "plain", "gates", "ablation"),
        Contestant("full", "full", "gates", "ablation"),
        Contestant("exit if min", "exit if min", "gates", "ablation"),
        Contestant("no imbalance weights", "no imbalance", "gates", "ablation"),
        *(Contestant(f"offramp's exits, {rule}", "ladder", rule, "policy") for rule in OWN if rule != DEFAULT_RULE),
        Contestant("linear exits, offramp's look", "linear, default's look", DEFAULT_RULE, "exits"),
        Contestant("cumulative exits, offramp's look", "cumulative, default's look", DEFAULT_RULE, "exits"),
        Contestant("ladder, paper's look", "ladder, paper's look", DEFAULT_RULE, "exits"),
        *(Contestant(name, name, DEFAULT_RULE, "exits") for name in PARTS),
        Contestant("cascade of full networks", "ends", "ends", "rival"),
    )
}
