"""Who is compared: ways to fit exits, and rules for leaving on them."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from benchmarks.paper.tasks import Look, Task
from offramp.methods import JointSettings

__all__ = ["CONTESTANTS", "EXITS", "ON_CHAINS", "PREFERRED", "Contestant", "Exits"]


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


def _fixed(task: Task) -> JointSettings:
    """The paper's gates on classifiers that have learned as long as its own do, and stay."""
    whole = task.paper.warmup_epochs + task.paper.epochs
    return replace(task.paper, classifier_loss="fixed", warmup_epochs=whole, epochs=task.paper.epochs)


OWN = ("threshold", "entropy", "margin", "geometric", "patience", "stopping", "eenet", "gates")
"""Rules that need nothing but exits that answer."""

PREFERRED = ("threshold", "gates")
"""Rules that the default takes the best of, by the tune split, as `offramp.fit` does."""

ON_CHAINS = ("ladder", "ends")
"""All that is tried on a chain of networks."""

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
        Exits("linear, default's look", "joint", "default", _default(exits="linear", weight_decay=0.0), PREFERRED),
        Exits(
            "cumulative, default's look", "joint", "default", _default(exits="cumulative", weight_decay=0.0), PREFERRED
        ),
        Exits("ladder, paper's look", "joint", "paper", _default(), PREFERRED),
        Exits("ends", "classifiers", "paper", _paper(warmup_epochs=1, epochs=0), ("ends",)),
    )
}

CONTESTANTS: dict[str, Contestant] = {
    contestant.name: contestant
    for contestant in (
        Contestant("offramp", "ladder", "preferred", "default"),
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
        *(Contestant(f"offramp's exits, {rule}", "ladder", rule, "policy") for rule in OWN),
        Contestant("linear exits, offramp's look", "linear, default's look", "preferred", "exits"),
        Contestant("cumulative exits, offramp's look", "cumulative, default's look", "preferred", "exits"),
        Contestant("ladder, paper's look", "ladder, paper's look", "preferred", "exits"),
        Contestant("chain of bare networks", "ends", "ends", "rival"),
    )
}
