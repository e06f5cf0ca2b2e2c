"""Measurement of a latency table on this machine."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree

from offramp._progress import progress_bar
from offramp.backbone._backbone import Backbone
from offramp.backbone._hidden import Hidden
from offramp.errors import InputError
from offramp.exits import ExitSet
from offramp.policy._policy import DEFAULT_POLICIES
from offramp.pooling import Pooling
from offramp.runtime._backend import BACKENDS, Backend
from offramp.runtime._batch_timer import BatchTimer
from offramp.runtime._latency import ENGINE, LatencyTable, count_stage_weights, describe_exits
from offramp.runtime._processor import processor_name

__all__ = ["BATCH_SIZES", "measure_latency"]

BATCH_SIZES = (1, 8, 64, 256)
"""Batch sizes by default; times for others are interpolated."""

ROUNDS = 3
"""Most rounds: batches whose pieces do not add up to the full network's time are timed again."""


def measure_latency(
    backbone: Backbone,
    pooling: Pooling,
    exits: ExitSet,
    example: Hidden,
    *,
    backend: str | Backend = "eager",
    batch_sizes: Sequence[int] = BATCH_SIZES,
    sizes: Sequence[int] | None = None,
    repeats: int = 7,
    policies: Sequence[str] = DEFAULT_POLICIES,
    progress: bool = True,
) -> LatencyTable:
    """Time every stage and exit, the engine and the full network, at each batch size, in turns.

    The same backend runs the full network, stage by stage and with its own last head; of a cascade, its last member.
    Each time is the mean over the middle half of the passes. Exits need not be trained: their times do not depend on
    their weights. Where the full network's stages and head do not add up to its time, as on a busy machine, the batch
    is timed again, up to twice; the round that adds up best is kept, with its `sum_ratio`.

    Args:
        backbone: The frozen network, on the CPU.
        pooling: The features that exits see of a stage.
        exits: The exits.
        example: Inputs of at least one sample, from `backbone.prepare`; repeated to fill a batch.
        backend: A name in `offramp.runtime.BACKENDS`, or a backend made for this backbone, pooling and exits.
        batch_sizes: Batch sizes, ascending.
        sizes: Sizes of samples to time, where samples differ in size; by default a quarter, a half and all of the
            largest in the example, so give an example as long as any that matters.
        repeats: Number of turns; at least one per policy is taken.
        policies: Names of the policies to time.
        progress: Show a progress bar.

    Example:
        >>> from offramp.exits import LadderExits
        >>> from offramp.backbone import CifarResNet
        >>> from offramp.pooling import POOLINGS
        >>> backbone, exits = CifarResNet(8), LadderExits((16, 32, 64), (0, 1), 10, width=8)
        >>> images = torch.zeros(1, 3, 32, 32)
        >>> table = measure_latency(backbone, POOLINGS.get("mean"), exits, images, batch_sizes=(1,), repeats=1)
        >>> table.full_ms(1) > 0, len(table.stage)
        (True, 3)
    """
    if not _ascends(batch_sizes):
        raise InputError("batch_sizes", expected="ascending numbers of at least 1", got=tuple(batch_sizes))
    if repeats < 1 or not policies:
        raise InputError(
            expected="at least one repeat and one policy",
            got=f"{repeats} and {len(policies)}",
            hint="leave policies out for those that a fit offers",
        )
    _check_on_cpu(backbone)
    _check_example(backbone, example)
    examples = _resize_example(backbone, example, sizes)
    timed_backend = BACKENDS.get(backend)(backbone, pooling, exits, example) if isinstance(backend, str) else backend
    turns = 1 + max(repeats, len(policies))
    with torch.inference_mode():
        with backbone.explain_errors(example):
            timers = [
                BatchTimer(backbone, pooling, exits, timed_backend, batch, count, policies=policies)
                for batch in examples.values()
                for count in batch_sizes
            ]
        remaining, round_number = timers, 0
        while remaining and round_number < ROUNDS:
            _take_turns(remaining, turns, "measuring again" if round_number else "measuring", show=progress)
            remaining, round_number = [timer for timer in remaining if not timer.end_round()], round_number + 1
    setup: dict[str, Any] = {
        "backend": backend if isinstance(backend, str) else type(backend).__name__,
        "threads": torch.get_num_threads(),
        "batch_sizes": tuple(batch_sizes),
        "network": backbone.name,
        "stage_weights": count_stage_weights(backbone),
        "exits": describe_exits(exits),
        "widths": exits.widths,
        "machine": processor_name(),
        "torch": torch.__version__,
    }
    width = len(batch_sizes)
    tables = [
        LatencyTable(**setup, **_rows(timers[place * width : (place + 1) * width], policies), size=float(size))
        for place, size in enumerate(examples)
    ]
    return replace(tables[-1], others=tuple(tables[:-1]))  # the largest is used where sizes do not matter


def _ascends(values: Sequence[int]) -> bool:
    return bool(values) and list(values) == sorted(set(values)) and values[0] >= 1


def _take_turns(timers: Sequence[BatchTimer], turns: int, description: str, *, show: bool) -> None:
    """Time every batch once per turn; the first turn is a warm-up."""
    with progress_bar(description, turns, unit="turns", show=show) as advance:
        for turn in range(turns):
            for timer in timers:
                timer.take_turn(turn)
                if turn == 0:
                    timer.reset()
            advance(1)


def _check_on_cpu(backbone: Backbone) -> None:
    devices = sorted({weight.device.type for weight in (*backbone.parameters(), *backbone.buffers())} - {"cpu"})
    if devices:
        raise InputError(
            expected="a network on the CPU",
            got=f"'{backbone.name}' on {', '.join(devices)}",
            hint="call backbone.cpu(): other devices still compute when a call returns, and cannot be timed",
        )


def _check_example(backbone: Backbone, example: Hidden) -> None:
    """Refuse raw inputs and empty batches."""
    leaves = pytree.tree_leaves(example)
    raw = [leaf for leaf in leaves if isinstance(leaf, np.ndarray | str)]
    if raw or not any(isinstance(leaf, torch.Tensor) for leaf in leaves):
        raise InputError(
            "example",
            expected=f"tensors, as '{backbone.name}' takes them",
            got=type(raw[0] if raw else example).__name__,
            hint="give backbone.prepare(backbone.preprocessing(inputs))",
        )
    if backbone.batch_size(example, 0) < 1:
        raise InputError("example", expected="at least one sample", got="none", hint="give one like those to come")


def _resize_example(backbone: Backbone, example: Hidden, sizes: Sequence[int] | None) -> dict[float, Hidden]:
    """Return the example at every size to be timed, ascending."""
    if not backbone.varies_in_size:
        if sizes is not None:
            raise InputError("sizes", expected=f"none, as samples of '{backbone.name}' have one size", got=sizes)
        return {1.0: example}
    if sizes is None:
        largest = int(backbone.sizes(example).max())
        sizes = sorted({max(1, largest // part) for part in (4, 2, 1)})
    if not _ascends(sizes):
        raise InputError("sizes", expected="ascending numbers of at least 1", got=tuple(sizes))
    return {float(size): backbone.with_size(example, size) for size in sizes}


def _rows(timers: Sequence[BatchTimer], policies: Sequence[str]) -> dict[str, Any]:
    """Collect the times of the timers, one per batch size, as fields of a table."""
    times = [timer.times for timer in timers]

    def row(name: str) -> tuple[float, ...]:
        return tuple(time[name] for time in times)

    stages = range(len([name for name in times[0] if name.startswith("stage.")]))
    return {
        **{name: tuple(row(f"{name}.{stage}") for stage in stages) for name in ("stage", "answer", "carry", "select")},
        "engine": {name: row(name) for name in ENGINE},
        "decide": {name: row(f"decide.{name}") for name in policies},
        "full": row("full"),
        "sum_ratio": row("sum_ratio"),
    }
