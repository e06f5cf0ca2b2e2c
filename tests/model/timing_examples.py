"""Latency tables with round numbers, for networks that nobody has to time."""

from typing import Any

from offramp.backbone._backbone import Backbone
from offramp.exits import ExitSet
from offramp.model._model import EarlyExitModel
from offramp.runtime import LatencyTable
from offramp.runtime._latency import count_stage_weights, describe_exits

FULL_MS = 10.0


def table_for(backbone: Backbone, exits: ExitSet, **changed: Any) -> LatencyTable:
    """A network of 10 ms whose stages take 1 ms, 2 ms, ..., its exits a tenth of a millisecond."""
    length = len(exits.widths)
    fields: dict[str, Any] = {
        "backend": "eager",
        "threads": 1,
        "batch_sizes": (1,),
        "stage": tuple((float(stage + 1),) for stage in range(length)),
        "answer": ((0.1,),) * length,
        "carry": ((0.04,),) * length,
        "select": ((0.5,),) * length,
        "engine": {"start": (0.2,), "pass": (0.05,), "finish": (0.03,)},
        "decide": {"threshold": (0.02,), "gates": (0.2,), "sampled_gates": (0.3,), "stopping": (0.15,)},
        "full": (FULL_MS,),
        "network": backbone.name,
        "stage_weights": count_stage_weights(backbone),
        "exits": describe_exits(exits),
        "widths": exits.widths,
        "machine": "an abacus",
        "torch": "2.0",
    }
    return LatencyTable(**(fields | changed))


def table_of(frontier: EarlyExitModel, **changed: Any) -> LatencyTable:
    return table_for(frontier.backbone, frontier.exits, **changed)
