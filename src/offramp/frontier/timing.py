"""Operating points at other prices: the same decisions, in milliseconds."""

import reprlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from offramp.backbone import Backbone, Cascade
from offramp.cost import Costs
from offramp.errors import InputError
from offramp.policy import OperatingPoint
from offramp.runtime import LatencyTable
from offramp.runtime.latency import stage_weights

__all__ = ["check_measured", "mean_full", "of_part", "repriced", "told_of"]


def check_measured(table: LatencyTable, backbone: Backbone, exits: int | None = None) -> None:
    """Refuse a table of another network.

    Args:
        table: What was measured.
        backbone: The network it should have been.
        exits: How many exits a network it was thinned to, if it was.
    """
    if not isinstance(table, LatencyTable):
        raise InputError(
            f"expected a LatencyTable, got {type(table).__name__} {reprlib.repr(table)}; read a file of one with "
            "offramp.runtime.LatencyTable.load(path)"
        )
    if (table.network, len(table.stage)) != (backbone.name, backbone.num_exits):
        count = "N" if exits is None else str(exits)
        how = (
            ""
            if table.network != backbone.name
            else (
                f": a table measured with --exits {count} needs fit --exits {count}, and the other way round (in "
                f"Python: offramp.cost.thinned(backbone, example, exits={count}))"
            )
        )
        raise InputError(
            f"expected a latency table of '{backbone.name}' with {backbone.num_exits} stages, got one of "
            f"'{table.network}' with {len(table.stage)}; measure the network that runs{how}"
        )
    if table.stage_weights != stage_weights(backbone):
        raise InputError(
            f"expected a latency table of this '{backbone.name}', got one of another of that name, with other stages: "
            f"{reprlib.repr(table.stage_weights)} weights and not {reprlib.repr(stage_weights(backbone))}; measure the "
            "network that runs"
        )


def told_of(table: LatencyTable) -> dict[str, Any]:
    """What times are those of, for a frontier's provenance."""
    return {"backend": table.backend, "machine": table.machine, "threads": table.threads, "torch": table.torch}


def of_part(table: LatencyTable, part: Backbone, backbone: Backbone) -> LatencyTable:
    """The table of what remains of a backbone: of a cascade, fewer of its networks.

    Args:
        table: Of the backbone.
        part: What remains.
        backbone: What it remains of.
    """
    if part is backbone or not isinstance(backbone, Cascade):
        return table
    left = part.members if isinstance(part, Cascade) else (part,)
    places = zip(backbone.members, backbone.stages_of_members, strict=True)
    kept = [stage for member, stages in places if any(member is one for one in left) for stage in stages]
    return table.taking(kept, part.name)


def repriced(points: Sequence[OperatingPoint], costs: Costs) -> list[OperatingPoint]:
    """Price points in another unit.

    Args:
        points: Points that know who leaves where.
        costs: What the policy costs in that unit.

    Returns:
        The points in ascending order of cost, the share of the full network's cost in `promised`.
    """
    priced = []
    for point in points:
        leaving = _known(point, costs)
        spent = sum(
            float(shares @ table.cumulative_costs(point.active).to(shares.dtype))
            for shares, table in zip(leaving, costs.tables, strict=False)
        )
        cost = spent / mean_full(point, costs)
        priced.append(replace(point, promised={**point.promised, "cost": cost}))
    return sorted(priced, key=lambda point: point.promised["cost"])


def mean_full(point: OperatingPoint, costs: Costs) -> float:
    """What the full network costs a sample of the tune split.

    Args:
        point: Any point that knows who leaves where, and with that how large samples are.
        costs: In any unit.
    """
    sizes = _known(point, costs).sum(1)
    full = torch.stack([table.full for table in costs.tables]).to(sizes.dtype)
    return float(sizes[: len(full)] @ full)


def _known(point: OperatingPoint, costs: Costs) -> Tensor:
    """Who leaves where at a point, if it knows as much as costs depend on."""
    if point.leaving is None or len(point.leaving) < len(costs.tables):
        raise InputError(
            "expected points that know which share of the tune split leaves at each exit, and its sizes where costs "
            "depend on them, got some from an older artifact or by hand; fit again"
        )
    return point.leaving
