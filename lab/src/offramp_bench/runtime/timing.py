"""Timing of several functions in turns, so that disturbances affect all of them alike."""

import gc
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

__all__ = ["ratio", "time_in_turns"]

Batch = TypeVar("Batch")


def time_in_turns(
    functions: Mapping[str, Callable[[Batch], Any]], batches: Sequence[Batch], repeats: int
) -> dict[str, npt.NDArray[np.float64]]:
    """Return the seconds of each function, repeats x batches; their order rotates from batch to batch.

    Args:
        functions: The functions to time.
        batches: The inputs of each call.
        repeats: Number of repeats, after one batch to warm up.
    """
    names = list(functions)
    times: dict[str, list[list[float]]] = {name: [] for name in names}
    gc.collect()
    gc.disable()
    try:
        for repeat in range(-1, repeats):
            seconds: dict[str, list[float]] = {name: [] for name in names}
            for place, batch in enumerate(batches[: 1 if repeat < 0 else None]):
                turn = (place + repeat) % len(names)
                for name in names[turn:] + names[:turn]:
                    start = time.perf_counter()
                    functions[name](batch)
                    seconds[name].append(time.perf_counter() - start)
            if repeat >= 0:
                for name in names:
                    times[name].append(seconds[name])
    finally:
        gc.enable()
    return {name: np.array(rows) for name, rows in times.items()}


def ratio(over: npt.NDArray[np.float64], under: npt.NDArray[np.float64]) -> dict[str, float]:
    """Return one time over another: the ratio of medians over the repeats, and its range over single repeats.

    Args:
        over: Seconds, repeats x batches.
        under: Seconds of the other, timed in turns with it.
    """
    single = over.sum(1) / under.sum(1)
    middle = np.median(over, axis=0).sum() / np.median(under, axis=0).sum()
    return {"median": float(middle), "least": float(single.min()), "most": float(single.max())}
