"""Times of whole runs, as a model runs: fused and single graphs included."""

import gc
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from offramp.errors import InputError

__all__ = ["RunTime", "fastest", "make_run", "parse_run", "time_in_turns"]


@dataclass(frozen=True)
class RunTime:
    """Milliseconds per sample of whole runs on one backend, in batches of one size.

    Example:
        >>> RunTime("eager", 8, 3, ms=2.0, least_ms=1.9, most_ms=2.2, full_ms=5.0).speedup
        2.5
    """

    backend: str
    """Name in `runtime.BACKENDS`."""
    batch_size: int
    """Samples per batch."""
    exits: int
    """Number of active exits, the final one included."""
    ms: float
    """Median over the repeats."""
    least_ms: float
    """Smallest of the repeats."""
    most_ms: float
    """Largest of the repeats."""
    full_ms: float
    """Median of the full network on the same backend, timed in turns with it; of a cascade, its last member."""
    note: str = ""
    """The reason why this run is not recommended; empty if it may be."""

    @property
    def speedup(self) -> float:
        """Time of the full network over the time of the run."""
        return self.full_ms / self.ms


def fastest(runs: Sequence[RunTime], *, batch_size: int | None = None) -> RunTime | None:
    """Return the run with the least time per sample among those that may be recommended.

    Args:
        runs: Measured runs.
        batch_size: Only runs in batches of this size; by default of any.

    Returns:
        The run; None if there is none.
    """
    candidates = [run for run in runs if not run.note and batch_size in (None, run.batch_size)]
    return min(candidates, key=lambda run: run.ms, default=None)


def time_in_turns(
    works: Mapping[str, Callable[[int], object]], batches: int, *, repeats: int, advance: Callable[[], object]
) -> dict[str, list[float]]:
    """Time works on the same batches in turns, so that what disturbs one disturbs the others too.

    Args:
        works: Functions of the index of a batch.
        batches: Number of batches.
        repeats: Number of passes over all batches; before them, each work runs its first batch as a warm-up.
        advance: Called after every batch.

    Returns:
        Milliseconds of each work, one sum over the batches per repeat.
    """
    names = list(works)
    times = {name: [0.0] * repeats for name in names}
    for work in works.values():
        work(0)
    gc.collect()
    gc.disable()
    try:
        for repeat in range(repeats):
            for batch in range(batches):
                first = (batch + repeat) % len(names)
                for name in names[first:] + names[:first]:
                    start = time.perf_counter()
                    works[name](batch)
                    times[name][repeat] += 1000 * (time.perf_counter() - start)
                advance()
    finally:
        gc.enable()
    return times


def make_run(
    backend: str, batch_size: int, exits: int, times: Sequence[float], full: Sequence[float], samples: int, note: str
) -> RunTime:
    """Summarise the times of a run and of the full network, one per repeat, over so many samples."""
    own = [ms / samples for ms in times]
    return RunTime(backend, batch_size, exits, median(own), min(own), max(own), median(full) / samples, note)


def parse_run(content: Mapping[str, Any]) -> RunTime:
    """Make a run of JSON content, or refuse it."""
    run = RunTime(**content)
    counts = all(type(count) is int and count >= 1 for count in (run.batch_size, run.exits))
    times = (run.least_ms, run.ms, run.most_ms, run.full_ms)
    positive = all(type(ms) in (int, float) and 0 < ms < float("inf") for ms in times)
    texts = all(isinstance(text, str) and len(text) <= 1000 for text in (run.backend, run.note))
    if not (counts and positive and texts):
        raise InputError("field 'runs'", expected="counts of at least 1, milliseconds above 0, and texts")
    return run
