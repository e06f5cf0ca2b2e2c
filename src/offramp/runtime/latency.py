"""What stages and exits take on this machine, in milliseconds."""

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from offramp.errors import InputError
from offramp.exits import ExitBank
from offramp.runtime.backend import Backend
from offramp.runtime.eager import EagerBackend
from offramp.trunk import Hidden, Pooling, Trunk

__all__ = ["BATCH_SIZES", "LatencyTable", "measure_latency"]

BATCH_SIZES = (1, 8, 64, 256)
"""Measured unless told otherwise; sizes in between are read off straight lines."""

Rows = tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class LatencyTable:
    """Milliseconds a batch, for each stage (rows) at each batch size (columns).

    Example:
        >>> table = LatencyTable("eager", 1, (1, 3), ((1.0, 2.0),), ((0.1, 0.3),), ((0.0, 0.0),), ((0.01, 0.02),))
        >>> table.at("stage", 0, 2)
        1.5
    """

    backend: str
    """What computed."""
    threads: int
    """With how many threads."""
    batch_sizes: tuple[int, ...]
    """Ascending."""
    stage: Rows
    """Running a stage."""
    answer: Rows
    """Pooling, answering and deciding at an exit."""
    carry: Rows
    """Passing an exit that is not in force: what its state takes, 0 where there is none."""
    select: Rows
    """Taking half of the samples out after a stage."""

    def at(self, what: str, index: int, batch_size: float) -> float:
        """Milliseconds of one entry at any batch size: straight lines between those measured, and beyond.

        Args:
            what: "stage", "answer", "carry" or "select".
            index: The stage.
            batch_size: How many samples.
        """
        row, sizes = getattr(self, what)[index], self.batch_sizes
        if batch_size <= sizes[-1] or len(sizes) == 1:
            return float(np.interp(batch_size, sizes, row))
        slope = (row[-1] - row[-2]) / (sizes[-1] - sizes[-2])
        return float(row[-1] + slope * (batch_size - sizes[-1]))

    def bare(self, batch_size: float) -> float:
        """Milliseconds of the bare network: its stages; its own head is in the last answer."""
        return sum(self.at("stage", index, batch_size) for index in range(len(self.stage)))

    def to_json(self) -> dict[str, Any]:
        """The table as JSON holds it."""
        return asdict(self)


def measure_latency(
    trunk: Trunk,
    pooling: Pooling,
    bank: ExitBank,
    example: Hidden,
    *,
    backend: Backend | None = None,
    batch_sizes: Sequence[int] = BATCH_SIZES,
    repeats: int = 7,
) -> LatencyTable:
    """Time every stage and exit, batch size by batch size, in turns; medians.

    Args:
        trunk: The frozen network.
        pooling: What exits see of a stage.
        bank: The trained exits.
        example: Inputs of at least one sample, as `trunk.prepare` gives them; repeated to fill a batch.
        backend: What computes; torch by itself if left out.
        batch_sizes: Ascending.
        repeats: How often everything is timed.
    """
    if list(batch_sizes) != sorted(set(batch_sizes)) or not batch_sizes or batch_sizes[0] < 1 or repeats < 1:
        raise InputError(f"expected ascending batch sizes and at least one repeat, got {tuple(batch_sizes)}, {repeats}")
    engine = EagerBackend(trunk, pooling, bank) if backend is None else backend
    length = trunk.batch_size(example, 0)
    batches = [trunk.select(example, torch.arange(size) % length, 0) for size in batch_sizes]
    shape = (repeats + 1, len(trunk.stages), len(batch_sizes))
    times = {name: np.zeros(shape) for name in ("stage", "answer", "carry", "select")}
    with torch.inference_mode():
        for turn in range(repeats + 1):  # the first is to warm up
            for column, (size, hidden) in enumerate(zip(batch_sizes, batches, strict=True)):
                _time_once(
                    trunk, engine, bank, size, hidden, {name: rows[turn, :, column] for name, rows in times.items()}
                )
    rows = {name: np.median(found[1:], axis=0) for name, found in times.items()}
    return LatencyTable(
        backend=type(engine).__name__,
        threads=torch.get_num_threads(),
        batch_sizes=tuple(batch_sizes),
        **{name: tuple(map(tuple, found.tolist())) for name, found in rows.items()},
    )


def _time_once(
    trunk: Trunk, backend: Backend, bank: ExitBank, size: int, hidden: Hidden, times: dict[str, Any]
) -> None:
    """One pass of a batch, all exits in force; milliseconds go into `times`, a row a stage."""
    state = bank.initial_state(size), ()
    half = torch.arange(0, size, 2)
    classifier = None if bank.stacked == 1 else torch.zeros(size, dtype=torch.long)
    for index in range(trunk.num_exits):
        times["stage"][index], hidden = _timed(backend.stage, index, hidden)
        times["carry"][index], _ = _timed(backend.exit, index, hidden, state, classifier, answer=False, carry=True)
        times["answer"][index], state = _timed(_answered, backend, index, hidden, state, classifier)
        times["select"][index], _ = _timed(trunk.select, hidden, half, index + 1)


def _answered(backend: Backend, index: int, hidden: Hidden, state: Any, classifier: Tensor | None) -> Any:
    """An answer at an exit and what follows it: probabilities, confidence, and who reaches a threshold."""
    logits, state = backend.exit(index, hidden, state, classifier, answer=True, carry=True)
    assert logits is not None
    (torch.softmax(logits, dim=1).amax(1) >= 0.5).nonzero()
    return state


def _timed(work: Callable[..., Any], *arguments: Any, **options: Any) -> tuple[float, Any]:
    start = time.perf_counter()
    done = work(*arguments, **options)
    return 1000 * (time.perf_counter() - start), done
