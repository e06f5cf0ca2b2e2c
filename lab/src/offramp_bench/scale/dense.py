"""Speed of `run_dense`, which joins samples of many batches, against batch by batch: bfloat16, one thread, in turns."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from offramp.backbone._hidden import Hidden
from offramp.runtime._dense import run_dense
from offramp.runtime._eager import EagerBackend
from offramp.runtime._engine import Engine
from offramp_bench.bars import Bar, say
from offramp_bench.runtime.networks import COSTS, minilm_texts, resnet_cascade
from offramp_bench.runtime.timing import ratio, time_in_turns

__all__ = ["dense"]

BATCH_SIZE = 64


def dense(*, small: bool = False) -> tuple[dict[str, Any], list[Bar]]:
    """Measure the speed over batch by batch, at three costs.

    Args:
        small: Use fewer samples and repetitions.
    """
    figures: dict[str, Any] = {"batch size": BATCH_SIZE, "speed over batch by batch": {}}
    for load, count in ((resnet_cascade, 1024), (minilm_texts, 512)):
        measured = load()
        ends = range(0, count // 4 if small else count, BATCH_SIZE)
        batches = [measured.inputs(start, start + BATCH_SIZE) for start in ends]
        backend = EagerBackend(measured.backbone, measured.pooling, measured.exits, dtype=torch.bfloat16)
        speeds = {}
        for cost, point in zip(COSTS, measured.points, strict=True):
            engine = Engine(measured.backbone, measured.pooling, measured.exits, [point], backend=backend)
            works: dict[str, Callable[[Sequence[Hidden]], object]] = {
                "apart": partial(_apart, engine),
                "joined": partial(run_dense, engine),
            }
            times = time_in_turns(works, [batches], 2 if small else 7)
            speeds[str(cost)] = ratio(times["apart"], times["joined"])
            say(f"{measured.name} at {cost}: {speeds[str(cost)]}")
        figures["speed over batch by batch"][measured.name] = {"samples": len(batches) * BATCH_SIZE, **speeds}
    return figures, []


def _apart(engine: Engine, batches: Sequence[Hidden]) -> None:
    for batch in batches:
        engine.run(batch)
