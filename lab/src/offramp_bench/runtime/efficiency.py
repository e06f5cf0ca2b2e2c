"""Efficiency of the engine: the time of the stages that the samples need, over the time of the engine.

Stage times are those of the full network at the same batch size, scaled to sum to its own time.
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
from offramp_bench.runtime.networks import COSTS, TimedNetwork
from offramp_bench.runtime.timing import ratio, time_in_turns

__all__ = ["efficiency", "full_network"]


def full_network(backbone: Backbone, dtype: torch.dtype | None = None) -> Callable[[Hidden], Any]:
    """Return the full network; for a cascade, all its members one after the other.

    Args:
        backbone: The network.
        dtype: Precision, as for `EagerBackend`.
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
    network: TimedNetwork,
    backend: Backend,
    full: Callable[[Hidden], Any],
    batch_size: int,
    *,
    count: int,
    repeats: int,
) -> dict[str, Any]:
    """Measure the efficiency at each point, and the time that exits add for samples that leave at none of them.

    Args:
        network: The network.
        backend: The backend that computes its stages and exits.
        full: The full network on the same backend.
        batch_size: Number of samples per batch.
        count: Number of samples in all.
        repeats: Number of repeats of each timing.
    """
    backbone = network.backbone
    batches = [network.inputs(start, start + batch_size) for start in range(0, count, batch_size)]
    no_exit = replace(network.points[0], parameters={"threshold": torch.tensor(2.0)})
    points = {f"at {cost}": point for cost, point in zip(COSTS, network.points, strict=True)} | {"all stages": no_exit}
    engines = {
        name: Engine(backbone, network.pooling, network.exits, [point], backend=backend)
        for name, point in points.items()
    }
    stage_times: list[list[float]] = []

    @torch.inference_mode()
    def run_stages(hidden: Hidden) -> None:
        seconds = []
        for index in range(backbone.num_exits):
            start = time.perf_counter()
            hidden = backend.stage(index, hidden)
            seconds.append(time.perf_counter() - start)
        stage_times.append(seconds)

    runs = {"full": full, "stages": run_stages, **{name: engine.run for name, engine in engines.items()}}
    times = time_in_turns(runs, batches, repeats)
    stages = np.array(stage_times[1:]).reshape(repeats, len(batches), backbone.num_exits)  # the first was to warm up
    full_times = times["full"]
    scale = np.median(full_times, 0).sum() / np.median(stages, 0).sum()
    # Speedups are over the network without exits: for a cascade, its last member.
    last = slice(backbone.stages_of_members[-1].start if isinstance(backbone, Cascade) else 0, None)
    rows: dict[str, Any] = {}
    for name, engine in engines.items():
        reached = np.array(
            [_reached(engine, batch, batch_size, backbone.num_exits) for batch in batches]
        )  # batch x stage
        ideal = (stages * reached).sum(2) * scale
        by_mul_adds = full_times * (reached @ network.shares.numpy())
        if name == "all stages":
            rows["passing all exits"] = {kind: value - 1 for kind, value in ratio(times[name], ideal).items()}
            continue
        rows[name] = {
            "efficiency": ratio(ideal, times[name]),
            "against Mul-Adds": ratio(by_mul_adds, times[name]),
            "speedup": ratio(stages[:, :, last].sum(2) * scale, times[name]),
            "reached": reached.mean(0).tolist(),
        }
    return rows


def _reached(engine: Engine, batch: Hidden, batch_size: int, num_exits: int) -> Sequence[float]:
    """Return the share of a batch that runs each stage."""
    _, exits = engine.run(batch)
    return [float((exits >= stage).double().mean()) for stage in range(num_exits)]
