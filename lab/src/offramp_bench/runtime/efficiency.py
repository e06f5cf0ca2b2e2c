"""How much of the time that could be saved is saved.

Efficiency: the time of the stages alone that the samples need, over the time of the engine. Stage times are those of
the full network at the same batch size, scaled to add up to the whole network's own time.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from offramp.backbone import Cascade
from offramp.backbone._backbone import Backbone
from offramp.backbone._hidden import Hidden
from offramp.runtime import Backend
from offramp.runtime._eager import with_weights_as
from offramp.runtime._engine import Engine
from offramp_bench.runtime.networks import COSTS, Measured
from offramp_bench.runtime.timing import in_turns, ratio

__all__ = ["efficiency", "full_network"]


def full_network(backbone: Backbone, dtype: torch.dtype | None = None) -> Callable[[Hidden], Any]:
    """The network as it is without exits: of a cascade, its networks one after the other.

    Args:
        backbone: The network.
        dtype: As for `EagerBackend`.
    """
    members = list(backbone.members) if isinstance(backbone, Cascade) else [backbone]
    if dtype is None:
        return torch.inference_mode()(lambda hidden: [member(hidden) for member in members])
    stages = [with_weights_as(member.stages, dtype) for member in members]

    @torch.inference_mode()
    def run(inputs: Hidden) -> Any:
        answers = []
        for member, narrow in zip(members, stages, strict=True):
            with torch.autocast("cpu", dtype, cache_enabled=False):
                hidden = inputs
                for stage in narrow:
                    hidden = stage(hidden)
                answers.append(member.own_logits(hidden, member.num_exits - 1).float())
        return answers

    return run


def efficiency(
    measured: Measured,
    backend: Backend,
    full: Callable[[Hidden], Any],
    batch_size: int,
    *,
    count: int,
    repeats: int,
) -> dict[str, Any]:
    """The engine's share of the ideal at each point, and what those who reach the end pay for the exits they passed.

    Args:
        measured: The network.
        backend: What computes its stages and exits.
        full: The full network on the same backend.
        batch_size: Samples at a time.
        count: Samples in all.
        repeats: How often everything is timed.
    """
    backbone = measured.backbone
    batches = [measured.inputs(start, start + batch_size) for start in range(0, count, batch_size)]
    nobody = replace(measured.points[0], parameters={"threshold": torch.tensor(2.0)})
    points = {f"at {cost}": point for cost, point in zip(COSTS, measured.points, strict=True)} | {"nobody": nobody}
    engines = {
        name: Engine(backbone, measured.pooling, measured.exits, [point], backend=backend)
        for name, point in points.items()
    }
    stage_times: list[list[float]] = []

    @torch.inference_mode()
    def staged(hidden: Hidden) -> None:
        found = []
        for index in range(backbone.num_exits):
            start = time.perf_counter()
            hidden = backend.stage(index, hidden)
            found.append(time.perf_counter() - start)
        stage_times.append(found)

    works = {"full": full, "stages": staged, **{name: engine.run for name, engine in engines.items()}}
    times = in_turns(works, batches, repeats)
    stages = np.array(stage_times[1:]).reshape(repeats, len(batches), backbone.num_exits)  # the first was to warm up
    full_times = times["full"]
    scale = np.median(full_times, 0).sum() / np.median(stages, 0).sum()
    # What users had before: of a cascade, its last network.
    last = slice(backbone.stages_of_members[-1].start if isinstance(backbone, Cascade) else 0, None)
    rows: dict[str, Any] = {}
    for name, engine in engines.items():
        reached = np.array(
            [_reached(engine, batch, batch_size, backbone.num_exits) for batch in batches]
        )  # batch x stage
        ideal = (stages * reached).sum(2) * scale
        counted = full_times * (reached @ measured.shares.numpy())
        if name == "nobody":
            rows["passing all exits"] = {kind: found - 1 for kind, found in ratio(times[name], ideal).items()}
            continue
        rows[name] = {
            "efficiency": ratio(ideal, times[name]),
            "against Mul-Adds": ratio(counted, times[name]),
            "speedup": ratio(stages[:, :, last].sum(2) * scale, times[name]),
            "reached": reached.mean(0).tolist(),
        }
    return rows


def _reached(engine: Engine, batch: Hidden, batch_size: int, num_exits: int) -> Sequence[float]:
    """Share of a batch that runs each stage."""
    _, exits = engine.run(batch)
    return [float((exits >= stage).double().mean()) for stage in range(num_exits)]
