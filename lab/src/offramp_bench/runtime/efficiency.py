"""How much of the time that could be saved is saved.

Efficiency: the time of the bare stages that the samples need, over the time of the engine. Stage times are those of the
bare network at the same batch size, scaled to add up to the whole network's own time.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from offramp.runtime import Backend, Engine
from offramp.runtime.narrow import narrowed
from offramp.trunk import ChainTrunk, Hidden, Trunk
from offramp_bench.runtime.networks import COSTS, Measured
from offramp_bench.runtime.timing import in_turns, ratio

__all__ = ["bare_network", "efficiency"]


def bare_network(trunk: Trunk, dtype: torch.dtype | None = None) -> Callable[[Hidden], Any]:
    """The network as it is without exits: of a chain, its networks one after the other.

    Args:
        trunk: The network.
        dtype: As for `EagerBackend`.
    """
    links = list(trunk.links) if isinstance(trunk, ChainTrunk) else [trunk]
    if dtype is None:
        return torch.inference_mode()(lambda hidden: [link(hidden) for link in links])
    stages = [narrowed(link.stages, dtype) for link in links]

    @torch.inference_mode()
    def run(inputs: Hidden) -> Any:
        answers = []
        for link, narrow in zip(links, stages, strict=True):
            with torch.autocast("cpu", dtype, cache_enabled=False):
                hidden = inputs
                for stage in narrow:
                    hidden = stage(hidden)
                answers.append(link.own_logits(hidden, link.num_exits - 1).float())
        return answers

    return run


def efficiency(
    measured: Measured,
    backend: Backend,
    bare: Callable[[Hidden], Any],
    batch_size: int,
    *,
    count: int,
    repeats: int,
) -> dict[str, Any]:
    """The engine's share of the ideal at each point, and what those who reach the end pay for the exits they passed.

    Args:
        measured: The network.
        backend: What computes its stages and exits.
        bare: The bare network on the same backend.
        batch_size: Samples at a time.
        count: Samples in all.
        repeats: How often everything is timed.
    """
    trunk = measured.trunk
    batches = [measured.inputs(start, start + batch_size) for start in range(0, count, batch_size)]
    nobody = replace(measured.points[0], parameters={"threshold": torch.tensor(2.0)})
    points = {f"at {cost}": point for cost, point in zip(COSTS, measured.points, strict=True)} | {"nobody": nobody}
    engines = {
        name: Engine(trunk, measured.pooling, measured.bank, [point], backend=backend) for name, point in points.items()
    }
    stage_times: list[list[float]] = []

    @torch.inference_mode()
    def staged(hidden: Hidden) -> None:
        found = []
        for index in range(trunk.num_exits):
            start = time.perf_counter()
            hidden = backend.stage(index, hidden)
            found.append(time.perf_counter() - start)
        stage_times.append(found)

    works = {"bare": bare, "stages": staged, **{name: engine.run for name, engine in engines.items()}}
    times = in_turns(works, batches, repeats)
    stages = np.array(stage_times[1:]).reshape(repeats, len(batches), trunk.num_exits)  # the first was to warm up
    bare_times = times["bare"]
    scale = np.median(bare_times, 0).sum() / np.median(stages, 0).sum()
    # What users had before: of a chain, its last network.
    last = slice(trunk.stages_of_links[-1].start if isinstance(trunk, ChainTrunk) else 0, None)
    rows: dict[str, Any] = {}
    for name, engine in engines.items():
        reached = np.array([_reached(engine, batch, batch_size, trunk.num_exits) for batch in batches])  # batch x stage
        ideal = (stages * reached).sum(2) * scale
        counted = bare_times * (reached @ measured.shares.numpy())
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
