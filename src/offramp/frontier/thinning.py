"""From many points to few: the best of every step of cost."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from offramp.cost import Costs
from offramp.frontier.outcomes import Outcomes
from offramp.frontier.simulate import exit_shares, simulate
from offramp.policy import OperatingPoint

__all__ = ["COST_STEP", "area", "thin"]

COST_STEP = 0.005
"""Points are kept about this far apart in relative cost."""

AT_ONCE = 256
"""Points simulated together."""


def thin(points: Sequence[OperatingPoint], seen: Outcomes, costs: Costs) -> list[OperatingPoint]:
    """Keep the most accurate point of every step of cost and the cheapest of all, and write down what was measured.

    Args:
        points: Candidates of one policy.
        seen: Outcomes on the tune split.
        costs: What the policy costs.

    Returns:
        Points in ascending order of cost, each with its tune `cost` and `accuracy` in `promised`, and who leaves where.
    """
    best: dict[int, OperatingPoint] = {}
    cheapest: OperatingPoint | None = None
    rows = torch.arange(len(seen.labels))
    table = costs.of(seen.sizes)
    for point, left in _simulated(points, seen):
        cost = float(table.relative_cost(left, point.active))
        accuracy = float(seen.correct[point.classifier, rows, left].double().mean())
        measured = replace(point, promised={"cost": cost, "accuracy": accuracy})
        if cheapest is None or cost < cheapest.promised["cost"]:
            cheapest = measured
        step = int(cost / COST_STEP)
        if step not in best or _rank(measured) > _rank(best[step]):
            best[step] = measured
    kept = [best[step] for step in sorted(best)]
    if cheapest is not None and cheapest.promised["cost"] < kept[0].promised["cost"]:
        kept = [cheapest, *kept]  # whoever has the least to spend can have it, though a little more buys much
    leaving = exit_shares(simulate(kept, seen), seen, powers=len(costs.tables))
    return [replace(point, leaving=shares) for point, shares in zip(kept, leaving, strict=True)]


def _simulated(points: Sequence[OperatingPoint], seen: Outcomes) -> Iterator[tuple[OperatingPoint, Tensor]]:
    """Each point with the exits of all samples, some points at a time: there may be thousands."""
    for start in range(0, len(points), AT_ONCE):
        some = points[start : start + AT_ONCE]
        yield from zip(some, simulate(some, seen), strict=True)


def area(points: Sequence[OperatingPoint]) -> float:
    """Mean accuracy over relative costs from 0.1 to 1, each taking the best point it can pay for.

    Args:
        points: Points with their tune figures in `promised`.

    Returns:
        The mean; costs that pay for no point count 0.
    """
    total = 0.0
    budgets = [0.1 + 0.01 * step for step in range(91)]
    for budget in budgets:
        total += max((p.promised["accuracy"] for p in points if p.promised["cost"] <= budget), default=0.0)
    return total / len(budgets)


def _rank(point: OperatingPoint) -> tuple[float, float]:
    return point.promised["accuracy"], -point.promised["cost"]
