"""Time that a change of budget between two batches takes."""

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

BUDGETS = (0.4, 0.6)
"""Budgets that batches are switched between."""

PAIRS, FIRST_USES = 300, 100
"""Number of timed pairs of calls, and of settings that are used for the first time."""


class _Idle:
    """A backend that computes nothing and where no sample leaves early: all the work of a batch but the network's."""

    def __init__(self, num_classes: int) -> None:
        self._num_classes = num_classes

    def stage(self, index: int, hidden: Hidden) -> Hidden:
        """Return the hidden state unchanged."""
        return hidden

    def exit(
        self, index: int, hidden: Hidden, state: Any, classifier: Tensor | None, *, answer: bool, carry: bool
    ) -> tuple[Tensor | None, Any]:
        """Return equal logits for all classes."""
        return torch.zeros(len(hidden), self._num_classes) if answer else None, state


def switching(model: EarlyExitModel, images: Any, *, batch_size: int) -> dict[str, Any]:
    """Measure the time of a change of budget between two batches, as a share of a batch.

    Pairs of calls that do the same work take turns: a batch after one at another budget, and after one at the same
    budget; by a model with a dial, and by a model of that point alone; the first and the second use of a setting. The
    backend computes nothing, because the network's own time varies by far more than the difference; shares are of the
    time with the real backend. Times are of the processor, because the machine also runs other work.

    Args:
        model: A model with a dial.
        images: Raw images, at least as many as a batch has.
        batch_size: Samples per batch.
    """
    batch, (other, budget) = images[:batch_size], BUDGETS
    batch_times = [_milliseconds(model, batch, budget) for _ in range(10)]
    idle = model.on(_Idle(model.backbone.num_classes))
    point = model.dial.points[int(model.dial.pick_rows(torch.tensor([budget]))[0])]
    alone = replace(idle, chosen=point, points={})
    times: dict[str, list[float]] = {"switched": [], "same": [], "alone": []}
    for repeat in range(PAIRS):
        for name in _rotate(list(times), repeat):
            idle.predict(batch, budget=other if name == "switched" else budget)
            ms = _milliseconds(alone, batch) if name == "alone" else _milliseconds(idle, batch, budget)
            times[name].append(ms)
    fresh = replace(idle)  # with an engine that has used no setting yet
    fresh.predict(batch)
    settings = torch.linspace(fresh.dial.cheapest, fresh.dial.most_expensive, FIRST_USES, dtype=torch.float64).tolist()
    first, second = zip(
        *([_milliseconds(fresh, batch, setting) for _ in range(2)] for setting in settings), strict=True
    )
    batch_ms = float(np.median(batch_times))
    return {
        "batch ms": batch_ms,
        "a switch": _difference(times["switched"], times["same"], batch_ms),
        "a dial, against one point alone": _difference(times["same"], times["alone"], batch_ms),
        "the first use of a setting": _difference(first, second, batch_ms),
    }


def _rotate(names: list[str], turn: int) -> list[str]:
    return names[turn % len(names) :] + names[: turn % len(names)]


def _milliseconds(model: EarlyExitModel, batch: Any, budget: float | None = None) -> float:
    start = time.process_time()
    model.predict(batch, budget=budget)
    return 1000 * (time.process_time() - start)


def _difference(longer: Sequence[float], shorter: Sequence[float], batch_ms: float) -> dict[str, float]:
    """Return median and quartiles of the difference in a pair, in milliseconds and as shares of a batch."""
    low, median, high = np.quantile(np.array(longer) - np.array(shorter), [0.25, 0.5, 0.75]).tolist()
    quartiles = {"median": median, "lower quartile": low, "upper quartile": high}
    shares = {f"{name}, share of a batch": ms / batch_ms for name, ms in quartiles.items()}
    return {**{f"{name} ms": ms for name, ms in quartiles.items()}, **shares, "pairs": len(longer)}
