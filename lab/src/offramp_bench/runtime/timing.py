"""Timing several works in turns, so that what disturbs one disturbs the others too."""

import gc
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

__all__ = ["in_turns", "ratio"]

Batch = TypeVar("Batch")


def in_turns(
    works: Mapping[str, Callable[[Batch], Any]], batches: Sequence[Batch], repeats: int
) -> dict[str, npt.NDArray[np.float64]]:
    """Seconds of each work, repeats x batches; the order of the works turns from batch to batch.

    Args:
        works: What to time.
        batches: What each is given, one after the other.
        repeats: How often; once more before that, to warm up.
    """
    names = list(works)
    times: dict[str, list[list[float]]] = {name: [] for name in names}
    gc.collect()
    gc.disable()
    try:
        for repeat in range(-1, repeats):
            found: dict[str, list[float]] = {name: [] for name in names}
            for place, batch in enumerate(batches[: 1 if repeat < 0 else None]):
                turn = (place + repeat) % len(names)
                for name in names[turn:] + names[:turn]:
                    start = time.perf_counter()
                    works[name](batch)
                    found[name].append(time.perf_counter() - start)
            if repeat >= 0:
                for name in names:
                    times[name].append(found[name])
    finally:
        gc.enable()
    return {name: np.array(found) for name, found in times.items()}


def ratio(over: npt.NDArray[np.float64], under: npt.NDArray[np.float64]) -> dict[str, float]:
    """One time over another: of medians over the repeats, batch by batch, and its range over single repeats.

    Args:
        over: Seconds, repeats x batches.
        under: The same, timed in turns with it.
    """
    single = over.sum(1) / under.sum(1)
    middle = np.median(over, axis=0).sum() / np.median(under, axis=0).sum()
    return {"median": float(middle), "least": float(single.min()), "most": float(single.max())}
