"""Who is compared with whom."""

from collections.abc import Iterator, Mapping

from offramp_bench.page.results import Contestant, PaperResults, Task

__all__ = [
    "DEFAULT",
    "MAIN",
    "PAPER",
    "best_rival",
    "by_contestant",
    "cheapest",
    "is_ahead",
    "is_behind",
    "is_dearer",
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
    """Smaller networks that could be taken instead; of a cascade, those of its last network.

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


def cheapest(task: Task, key: str) -> Contestant | None:
    """Who reaches an accuracy at the least cost, besides offramp and its parts; None if nobody does.

    Args:
        task: The task.
        key: "cost_at_full" or "cost_at_half".
    """
    reached = [one for one in of_kind(task, "paper", "rival") if getattr(one, key) is not None]
    return min(reached, key=lambda one: float(getattr(one, key)), default=None)


def is_dearer(task: Task, key: str) -> bool:
    """Whether somebody else reaches an accuracy at less cost than offramp, or offramp does not reach it.

    Args:
        task: The task.
        key: "cost_at_full" or "cost_at_half".
    """
    best = cheapest(task, key)
    ours = getattr(task.contestants[DEFAULT], key) if DEFAULT in task.contestants else None
    return best is not None and (ours is None or getattr(best, key) < ours)


def by_contestant(tasks: Mapping[str, Task], *kinds: str) -> Iterator[str]:
    """Names of contestants of some kinds that any task has, in the order they are met.

    Args:
        tasks: The tasks.
        kinds: Names of kinds.
    """
    yield from dict.fromkeys(one.name for task in tasks.values() for one in of_kind(task, *kinds))
