"""Operating points to choose among: every threshold, every cost weight with every offset, thinned on the tune split."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from offramp.cost import Costs
from offramp.frontier.outcomes import Outcomes
from offramp.frontier.simulate import exit_shares, simulate
from offramp.methods import FittedExits
from offramp.policy import OperatingPoint

__all__ = ["COST_STEP", "area", "gate_candidates", "thin", "threshold_candidates"]

COST_STEP = 0.005
"""Points are kept about this far apart in relative cost."""


def threshold_candidates(
    seen: Outcomes, temperatures: Tensor, classifier: int, *, active: tuple[int, ...] | None = None, levels: int = 512
) -> list[OperatingPoint]:
    """One global threshold, at levels spread over the confidences of the tune samples.

    Args:
        seen: Outcomes on the tune split.
        temperatures: `W x L`.
        classifier: Which set of classifiers.
        active: The exits in force; all if left out.
        levels: How many at most.

    Returns:
        Points from "everybody leaves at once" to "nobody leaves early".
    """
    active = tuple(range(seen.confidence.shape[-1])) if active is None else active
    found = seen.confidence[classifier][:, list(active[:-1])].flatten().sort().values
    places = torch.linspace(0, len(found) - 1, min(levels, len(found)), dtype=torch.float64).long()
    chosen = torch.unique(found[places])
    never = chosen.new_tensor([2.0])  # no confidence reaches it
    return [
        OperatingPoint("threshold", {"threshold": level}, active, temperatures[classifier], classifier)
        for level in torch.cat([chosen, never])
    ]


def gate_candidates(
    fitted: FittedExits, temperatures: Tensor, *, active: tuple[int, ...] | None = None
) -> list[OperatingPoint]:
    """The learned gates of every cost weight, with offsets from -8 to 8 that fill the frontier between them.

    Args:
        fitted: Exits and gates.
        temperatures: `W x L`, or `1 x L` where classifiers are shared.
        active: The exits in force; all if left out.

    Returns:
        Points for every cost weight and offset.
    """
    weight, bias = fitted.gates.weight.detach(), fitted.gates.bias.detach()
    active = tuple(range(weight.shape[1] + 1)) if active is None else active
    # The final exit has no gate; its row is there so that exits index the parameters directly.
    weight = torch.cat([weight, torch.zeros_like(weight[:, :1])], dim=1)
    bias = torch.cat([bias, torch.zeros_like(bias[:, :1])], dim=1)
    shared = fitted.bank.stacked == 1
    points = []
    for index in range(len(weight)):
        classifier = 0 if shared else index
        for offset in torch.linspace(-8, 8, 65):
            parameters = {"weight": weight[index], "bias": bias[index], "offset": offset}
            points.append(OperatingPoint("gates", parameters, active, temperatures[classifier], classifier))
    return points


def thin(points: Sequence[OperatingPoint], seen: Outcomes, costs: Costs) -> list[OperatingPoint]:
    """Keep the most accurate point of every step of cost, and write down what was measured of it.

    Args:
        points: Candidates of one policy.
        seen: Outcomes on the tune split.
        costs: What the policy costs.

    Returns:
        Points in ascending order of cost, each with its tune `cost` and `accuracy` in `promised`, and who leaves where.
    """
    best: dict[int, OperatingPoint] = {}
    rows = torch.arange(len(seen.labels))
    table = costs.of(seen.sizes)
    for point, left in zip(points, simulate(points, seen), strict=True):
        cost = float(table.relative_cost(left, point.active))
        accuracy = float(seen.correct[point.classifier, rows, left].double().mean())
        measured = replace(point, promised={"cost": cost, "accuracy": accuracy})
        step = int(cost / COST_STEP)
        if step not in best or _rank(measured) > _rank(best[step]):
            best[step] = measured
    kept = [best[step] for step in sorted(best)]
    leaving = exit_shares(simulate(kept, seen), seen, powers=len(costs.tables))
    return [replace(point, leaving=shares) for point, shares in zip(kept, leaving, strict=True)]


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
