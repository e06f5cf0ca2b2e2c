"""What each exit brings, and leaving out those that bring nothing."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from torch import Tensor

from offramp.cost import Costs
from offramp.frontier.outcomes import Outcomes
from offramp.frontier.thinning import area, thin
from offramp.policy import threshold_candidates

__all__ = ["LEVELS", "Contribution", "paying_exits"]

LEVELS = 128
"""Thresholds tried for each set of exits: less than a point of cost apart on average, fine enough to rank sets."""


@dataclass(frozen=True)
class Contribution:
    """What one exit, or one network of a cascade, brings."""

    name: str
    """The exit's number (0-based), or the network's name."""
    gain: float
    """Mean accuracy over all budgets with it, minus without it, on the tune split."""
    kept: bool
    """Whether it is in force."""


def paying_exits(
    seen: Outcomes, temperatures: Tensor, classifier: int, costs: Costs, *, needed: Collection[int]
) -> tuple[tuple[int, ...], list[Contribution]]:
    """Leave out the exits that bring nothing under a global threshold.

    Args:
        seen: Outcomes on the tune split.
        temperatures: `W x L`.
        classifier: Which set of classifiers.
        costs: Of thresholds.
        needed: Exits that must stay, whatever they bring.

    Returns:
        The exits in force, the final one among them, and what each early exit brings.
    """

    def worth(active: Sequence[int]) -> float:
        points = threshold_candidates(
            seen.confidence[classifier], temperatures[classifier], classifier, active=tuple(active), levels=LEVELS
        )
        return area(thin(points, seen, costs))

    active = list(range(seen.predictions.shape[-1]))
    whole = worth(active)
    gains = {exit: whole - worth([other for other in active if other != exit]) for exit in active[:-1]}
    for exit in sorted(gains, key=lambda exit: gains[exit]):
        if gains[exit] > 0 or exit in needed:
            continue
        fewer = [other for other in active if other != exit]
        reached = worth(fewer)
        if reached >= whole:
            active, whole = fewer, reached
    return tuple(active), [Contribution(str(exit), gain, exit in active) for exit, gain in gains.items()]
