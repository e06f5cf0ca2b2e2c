"""Timing a network's stages and exits on this machine."""

import platform
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree

from offramp.backbone import Backbone, Hidden, Pooling
from offramp.errors import InputError
from offramp.exits import ExitBank
from offramp.policy import OFFERED
from offramp.progress import progress_bar
from offramp.runtime.backend import Backend
from offramp.runtime.backends import BACKENDS
from offramp.runtime.latency import ENGINE, LatencyTable, kind_of, stage_weights
from offramp.runtime.passes import Job

__all__ = ["BATCH_SIZES", "machine", "measure_latency"]

BATCH_SIZES = (1, 8, 64, 256)
"""Measured unless told otherwise; sizes in between are read off straight lines."""

ROUNDS = 3
"""At most: batches whose pieces do not add up to the full network's time are timed again."""


def measure_latency(
    backbone: Backbone,
    pooling: Pooling,
    bank: ExitBank,
    example: Hidden,
    *,
    backend: str | Backend = "eager",
    batch_sizes: Sequence[int] = BATCH_SIZES,
    sizes: Sequence[int] | None = None,
    repeats: int = 7,
    policies: Sequence[str] = OFFERED,
    progress: bool = True,
) -> LatencyTable:
    """Time every stage and exit, the engine, and the full network, batch size by batch size, in turns.

    The full network is run by the same backend, stage by stage and to its own last head: of a cascade, its last
    network. What is kept are means over the middle half of the passes. Exits need not be trained: what they take does
    not depend on their weights. Where the full network's stages and head do not add up to its time, as on a busy
    machine, that batch is timed again, up to twice; the round in which they came nearest is kept, with how near:
    `adds_up`.

    Args:
        backbone: The frozen network, on the CPU.
        pooling: What exits see of a stage.
        bank: The exits.
        example: Inputs of at least one sample, as `backbone.prepare` gives them; repeated to fill a batch.
        backend: What computes: one of `offramp.runtime.BACKENDS`, or a backend made for this backbone, pooling and
            bank.
        batch_sizes: Ascending.
        sizes: Where samples differ in size, which to time; if left out, a quarter, a half and all of the largest of the
            example: give one as long as any that matters.
        repeats: How many turns; at least one a policy.
        policies: Whose decisions to time.
        progress: Whether to show a progress bar.

    Example:
        >>> from offramp.exits import LadderExits
        >>> from offramp.backbone import POOLINGS, CifarResNet
        >>> backbone, bank = CifarResNet(8), LadderExits((16, 32, 64), (0, 1), 10, width=8)
        >>> images = torch.zeros(1, 3, 32, 32)
        >>> table = measure_latency(backbone, POOLINGS.get("mean"), bank, images, batch_sizes=(1,), repeats=1)
        >>> table.full(1) > 0, len(table.stage)
        (True, 3)
    """
    if list(batch_sizes) != sorted(set(batch_sizes)) or not batch_sizes or batch_sizes[0] < 1 or repeats < 1:
        raise InputError(f"expected ascending batch sizes and at least one repeat, got {tuple(batch_sizes)}, {repeats}")
    if not policies:
        raise InputError("expected at least one policy to time, got none; leave policies out for those a fit offers")
    elsewhere = sorted({weight.device.type for weight in (*backbone.parameters(), *backbone.buffers())} - {"cpu"})
    if elsewhere:
        raise InputError(
            f"expected a network on the CPU, got '{backbone.name}' on {', '.join(elsewhere)}, which computes on when "
            "a call has returned; only the CPU can be timed: backbone.cpu()"
        )
    _check_example(backbone, example)
    examples = _sized(backbone, example, sizes)
    computing = BACKENDS.get(backend)(backbone, pooling, bank, example) if isinstance(backend, str) else backend
    turns = 1 + max(repeats, len(policies))
    with torch.inference_mode():
        with backbone.explaining(example):
            jobs = [
                Job(backbone, pooling, bank, computing, one, count, policies=policies)
                for one in examples.values()
                for count in batch_sizes
            ]
        left, round_number = jobs, 0
        while left and round_number < ROUNDS:
            _take_turns(left, turns, "measuring again" if round_number else "measuring", show=progress)
            left, round_number = [job for job in left if not job.settle()], round_number + 1
    described: dict[str, Any] = {
        "backend": backend if isinstance(backend, str) else type(backend).__name__,
        "threads": torch.get_num_threads(),
        "batch_sizes": tuple(batch_sizes),
        "network": backbone.name,
        "stage_weights": stage_weights(backbone),
        "exits": kind_of(bank),
        "widths": bank.widths,
        "machine": machine(),
        "torch": torch.__version__,
    }
    width = len(batch_sizes)
    tables = [
        LatencyTable(**described, **_columns(jobs[place * width : (place + 1) * width], policies), size=float(size))
        for place, size in enumerate(examples)
    ]
    return replace(tables[-1], others=tuple(tables[:-1]))  # the largest stands for all where sizes do not matter


def machine() -> str:
    """The processor's name, as far as the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(models, "") or platform.processor() or platform.machine()


def _take_turns(jobs: Sequence[Job], turns: int, description: str, *, show: bool) -> None:
    """Time every job once a turn."""
    with progress_bar(description, turns, unit="turns", show=show) as advance:
        for turn in range(turns):
            for job in jobs:
                job.take_turn(turn)
                if turn == 0:
                    job.forget()  # the first is to warm up
            advance(1)


def _check_example(backbone: Backbone, example: Hidden) -> None:
    """Refuse what no stage can take: raw inputs, or no sample."""
    leaves = pytree.tree_leaves(example)
    raw = [leaf for leaf in leaves if isinstance(leaf, np.ndarray | str)]
    if raw or not any(isinstance(leaf, torch.Tensor) for leaf in leaves):
        found = raw[0] if raw else example
        raise InputError(
            f"expected an example as '{backbone.name}' takes it, in tensors, got {type(found).__name__}; give "
            "backbone.prepare(backbone.preprocessing(inputs))"
        )
    if backbone.batch_size(example, 0) < 1:
        raise InputError("expected an example of at least one sample, got none; give one that is like those to come")


def _sized(backbone: Backbone, example: Hidden, sizes: Sequence[int] | None) -> dict[float, Hidden]:
    """The example at every size to be timed, ascending."""
    if not backbone.grows:
        if sizes is not None:
            raise InputError(f"expected no sizes, as samples of '{backbone.name}' do not differ in size, got {sizes}")
        return {1.0: example}
    if sizes is None:
        largest = int(backbone.sizes(example).max())
        sizes = sorted({max(1, largest // part) for part in (4, 2, 1)})
    if list(sizes) != sorted(set(sizes)) or not sizes or sizes[0] < 1:
        raise InputError(f"expected ascending sizes of at least 1, got {tuple(sizes)}")
    return {float(size): backbone.resized(example, size) for size in sizes}


def _columns(jobs: Sequence[Job], policies: Sequence[str]) -> dict[str, Any]:
    """What jobs found, one a batch size, as a table has it."""
    found = [job.found for job in jobs]

    def row(name: str) -> tuple[float, ...]:
        return tuple(one[name] for one in found)

    stages = range(len([name for name in found[0] if name.startswith("stage.")]))
    return {
        **{name: tuple(row(f"{name}.{stage}") for stage in stages) for name in ("stage", "answer", "carry", "select")},
        "engine": {name: row(name) for name in ENGINE},
        "decide": {name: row(f"decide.{name}") for name in policies},
        "whole": row("whole"),
        "adds_up": row("adds_up"),
    }
