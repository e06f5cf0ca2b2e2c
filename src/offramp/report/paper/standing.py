"""Who is compared with whom."""

from collections.abc import Iterator, Mapping

from offramp.report.paper.results import Contestant, PaperResults, Task

__all__ = [
    "DEFAULT",
    "MAIN",
    "PAPER",
    "best_rival",
    "by_contestant",
    "is_ahead",
    "is_behind",
    "of_kind",
    "rivals",
    "static",
]

DEFAULT, PAPER = "offramp", "JEI-DNN"

MAIN = (DEFAULT, PAPER, "threshold")
"""Emphasised everywhere."""


def of_kind(task: Task, *kinds: str) -> list[Contestant]:
    """The contestants of some kinds.

    Args:
        task: The task.
        kinds: Names of kinds.
    """
    return [one for one in task.contestants.values() if one.kind in kinds]


def rivals(task: Task) -> list[Contestant]:
    """Rivals besides the main ones, the best area first.

    Args:
        task: The task.
    """
    return sorted(of_kind(task, "rival"), key=lambda one: -one.area)


def best_rival(task: Task) -> Contestant | None:
    """The rival with the largest area; None if there is none.

    Args:
        task: The task.
    """
    return next(iter(rivals(task)), None)


def static(results: PaperResults, task: Task) -> list[Contestant]:
    """Smaller networks that could be taken instead; of a chain, those of its last network.

    Args:
        results: All results.
        task: The task.
    """
    alone = results.tasks.get(task.alone or "")
    return of_kind(task, "static") or ([] if alone is None else of_kind(alone, "static"))


def is_ahead(one: Contestant) -> bool:
    """Whether offramp is below this contestant with 95 %.

    Args:
        one: The contestant.

    Example:
        >>> is_ahead(Contestant("a", "rival", 0.9, -0.02, (-0.03, -0.01), ()))
        True
    """
    return one.interval[1] < 0


def is_behind(one: Contestant) -> bool:
    """Whether offramp is above this contestant with 95 %.

    Args:
        one: The contestant.
    """
    return one.interval[0] > 0


def by_contestant(tasks: Mapping[str, Task], *kinds: str) -> Iterator[str]:
    """Names of contestants of some kinds that any task has, in the order they are met.

    Args:
        tasks: The tasks.
        kinds: Names of kinds.
    """
    yield from dict.fromkeys(one.name for task in tasks.values() for one in of_kind(task, *kinds))
