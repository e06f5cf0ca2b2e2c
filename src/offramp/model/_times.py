"""Operating points priced in milliseconds: the same decisions at measured times."""

import reprlib
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from offramp.backbone import Cascade
from offramp.backbone._backbone import Backbone
from offramp.cost import Costs
from offramp.cost._unit import MILLISECONDS, CostUnit
from offramp.errors import InputError
from offramp.model._choose import Request
from offramp.policy import OperatingPoint
from offramp.runtime import LatencyTable
from offramp.runtime._latency import count_stage_weights

if TYPE_CHECKING:
    from offramp.model._model import EarlyExitModel

__all__ = ["check_measured", "latency_of_part", "latency_provenance", "reprice", "with_latency"]


def with_latency(model: "EarlyExitModel", table: LatencyTable, *, batch_size: int) -> "EarlyExitModel":
    """Price the points of a model by measured times; `EarlyExitModel.with_latency` describes the arguments."""
    check_measured(table, model.backbone)
    costs = {policy: table.costs(model.exits, policy=policy, batch_size=batch_size) for policy in model.points}
    return replace(
        model,
        costs=costs,
        points={policy: reprice(points, costs[policy]) for policy, points in model.points.items()},
        unit=CostUnit(MILLISECONDS, full_cost(next(iter(model.points.values()))[0], next(iter(costs.values())))),
        provenance={**model.provenance, "latency": latency_provenance(table)},
        request=Request(),
        chosen=None,
    )


def check_measured(table: LatencyTable, backbone: Backbone, exits: int | None = None) -> None:
    """Refuse a table of another network.

    Args:
        table: Measured times.
        backbone: The network they should be of.
        exits: Number of exits per network that the backbone was reduced to, if it was.
    """
    if not isinstance(table, LatencyTable):
        raise InputError(
            expected="a LatencyTable",
            got=f"{type(table).__name__} {reprlib.repr(table)}",
            hint="read a file of one with offramp.runtime.LatencyTable.load(path)",
        )
    if (table.network, len(table.stage)) != (backbone.name, backbone.num_exits):
        count = "N" if exits is None else str(exits)
        same_exits = (
            f": a table measured with --exits {count} needs fit --exits {count}, and the other way round (in Python: "
            f"offramp.cost.keep_exits(backbone, example, exits={count}))"
        )
        raise InputError(
            expected=f"a latency table of '{backbone.name}' with {backbone.num_exits} stages",
            got=f"one of '{table.network}' with {len(table.stage)}",
            hint=f"measure the network that runs{same_exits if table.network == backbone.name else ''}",
        )
    if table.stage_weights != count_stage_weights(backbone):
        raise InputError(
            expected=f"a latency table of this '{backbone.name}', whose stages have "
            f"{reprlib.repr(count_stage_weights(backbone))} weights",
            got=f"one of another network of that name, with {reprlib.repr(table.stage_weights)} weights",
            hint="measure this network: offramp inspect --measure --out FILE",
        )


def latency_provenance(table: LatencyTable) -> dict[str, Any]:
    """Return the machine and the software that times were measured on."""
    return {"backend": table.backend, "machine": table.machine, "threads": table.threads, "torch": table.torch}


def latency_of_part(table: LatencyTable, part: Backbone, backbone: Backbone) -> LatencyTable:
    """Return the times of some members of a cascade.

    Args:
        table: Times of the cascade.
        part: The members that remain.
        backbone: The cascade.
    """
    if part is backbone or not isinstance(backbone, Cascade):
        return table
    remaining = part.members if isinstance(part, Cascade) else (part,)
    places = zip(backbone.members, backbone.stages_of_members, strict=True)
    stages = [stage for member, span in places if any(member is other for other in remaining) for stage in span]
    return table.with_stages(stages, part.name)


def reprice(points: Sequence[OperatingPoint], costs: Costs) -> list[OperatingPoint]:
    """Price points in another unit.

    Args:
        points: Points with the shares of samples that leave at each exit.
        costs: Costs of the policy in that unit.

    Returns:
        The points in ascending order of cost.
    """
    priced = []
    for point in points:
        spent = sum(
            float(shares @ table.cumulative_costs(point.active).to(shares.dtype))
            for shares, table in zip(_leaving(point, costs), costs.tables, strict=False)
        )
        cost = spent / full_cost(point, costs)
        priced.append(replace(point, tune_metrics={**point.tune_metrics, "cost": cost}))
    return sorted(priced, key=lambda point: point.tune_metrics["cost"])


def full_cost(point: OperatingPoint, costs: Costs) -> float:
    """Return the mean cost of the full network on the tune split.

    Args:
        point: Any point that knows who leaves where, and with that how large samples are.
        costs: Costs in any unit.
    """
    sizes = _leaving(point, costs).sum(1)
    full = torch.stack([table.full for table in costs.tables]).to(sizes.dtype)
    return float(sizes[: len(full)] @ full)


def _leaving(point: OperatingPoint, costs: Costs) -> Tensor:
    """Return the share of tune samples that leaves at each exit, for every power of size that costs use."""
    if point.leaving is None or len(point.leaving) < len(costs.tables):
        raise InputError(
            expected="points with the share of the tune split that leaves at each exit, and its sizes where costs "
            "depend on them",
            got="points without",
            hint="fit again",
        )
    return point.leaving
