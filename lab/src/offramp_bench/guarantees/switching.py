"""What it costs to ask the next batch for another budget."""

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from offramp.backbone._hidden import Hidden
from offramp.model._model import EarlyExitModel

__all__ = ["switching"]

SWITCHED = (0.4, 0.6)
"""Budgets that batches are switched between."""

PAIRS, FIRST_USES = 300, 100
"""Pairs of calls that are timed, and settings that are used for the first time."""


class _Idle:
    """A backend that computes nothing, and nobody leaves: what remains of a batch is all but the network itself."""

    def __init__(self, num_classes: int) -> None:
        self._num_classes = num_classes

    def stage(self, index: int, hidden: Hidden) -> Hidden:
        """The hidden state as it is."""
        return hidden

    def exit(
        self, index: int, hidden: Hidden, state: Any, classifier: Tensor | None, *, answer: bool, carry: bool
    ) -> tuple[Tensor | None, Any]:
        """All classes alike."""
        return torch.zeros(len(hidden), self._num_classes) if answer else None, state


def switching(network: EarlyExitModel, images: Any, *, batch_size: int) -> dict[str, Any]:
    """What a change of budget costs between two batches, as a share of a batch.

    Pairs of calls that do the same, in turns: a batch after one at another budget, and after one at the same; by a
    network that has a dial, and by one of that point alone; at a setting for the first time, and for the second. With a
    backend that computes nothing, as the difference is far below what the network's own time varies by; shares are of
    the time with the real one. Processor time: others are on the machine.

    Args:
        network: A network with a dial.
        images: Raw images, as many as a batch has or more.
        batch_size: How many come at a time.
    """
    batch, (other, budget) = images[:batch_size], SWITCHED
    took = [_milliseconds(network, batch, budget) for _ in range(10)]
    idle = network.on(_Idle(network.backbone.num_classes))
    point = network.dial.points[int(network.dial.pick_rows(torch.tensor([budget]))[0])]
    alone = replace(idle, chosen=point, points={})
    times: dict[str, list[float]] = {"switched": [], "same": [], "alone": []}
    for repeat in range(PAIRS):
        for name in _turned(list(times), repeat):
            idle.predict(batch, budget=other if name == "switched" else budget)
            ms = _milliseconds(alone, batch) if name == "alone" else _milliseconds(idle, batch, budget)
            times[name].append(ms)
    fresh = replace(idle)  # with an engine that knows nothing yet
    fresh.predict(batch)
    settings = torch.linspace(fresh.dial.cheapest, fresh.dial.most_expensive, FIRST_USES, dtype=torch.float64).tolist()
    first, second = zip(*([_milliseconds(fresh, batch, one) for _ in range(2)] for one in settings), strict=True)
    batch_ms = float(np.median(took))
    return {
        "batch ms": batch_ms,
        "a switch": _longer(times["switched"], times["same"], batch_ms),
        "a dial, against one point alone": _longer(times["same"], times["alone"], batch_ms),
        "the first use of a setting": _longer(first, second, batch_ms),
    }


def _turned(names: list[str], turn: int) -> list[str]:
    return names[turn % len(names) :] + names[: turn % len(names)]


def _milliseconds(network: EarlyExitModel, batch: Any, budget: float | None = None) -> float:
    start = time.process_time()
    network.predict(batch, budget=budget)
    return 1000 * (time.process_time() - start)


def _longer(longer: Sequence[float], shorter: Sequence[float], batch_ms: float) -> dict[str, float]:
    """How much longer one of a pair takes: the median over pairs and its quartiles, and their shares of a batch."""
    low, median, high = np.quantile(np.array(longer) - np.array(shorter), [0.25, 0.5, 0.75]).tolist()
    quartiles = {"median": median, "lower quartile": low, "upper quartile": high}
    shares = {f"{name}, share of a batch": ms / batch_ms for name, ms in quartiles.items()}
    return {**{f"{name} ms": ms for name, ms in quartiles.items()}, **shares, "pairs": len(longer)}
