"""Promises of a loss at most, over calibration sets drawn again and again from a pool of real outcomes."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np
import torch
from torch import Tensor

from offramp.model._guarantees import losses_at
from offramp.model._outcomes import simulate
from offramp.policy import OperatingPoint
from offramp.uncertainty._risk import LOSSES, RiskBound, RiskLoss, last_passing, order_candidates, smooth_variances
from offramp_bench.bars import Bar, say
from offramp_bench.guarantees.pools import POOLS, Pool, pool

__all__ = ["Candidates", "candidates", "risk", "tally"]

DRAWS = 1000
SIZES = (1000, 3000)
DROPS = (0.005, 0.01, 0.02)
RISKS = (0.05, 0.1)
BOUNDS: tuple[RiskBound, ...] = get_args(RiskBound)

LEAST = 0.7
"""Of what is saved with no guarantee, at the largest drop and size."""


@dataclass(frozen=True)
class Candidates:
    """A policy's points by one loss: what tune says of them, and what the pool does."""

    loss: RiskLoss
    costs: Tensor
    """`P` costs on tune."""
    means: Tensor
    """`P` mean losses on tune."""
    variances: Tensor
    """`P` of them, on [0, 1]."""
    pool: Tensor
    """`P x M` losses of the pool's samples."""
    saved: Tensor
    """`P` shares of the cost that the pool's samples save."""


def candidates(found: Pool, loss: str) -> Candidates:
    """The threshold's points by one loss.

    Args:
        found: The pool.
        loss: The loss's name.
    """
    points, one = found.points, LOSSES[loss]
    tuned = losses_at(points, found.tune)[loss]
    variances = smooth_variances(one.to_unit(tuned).var(1, unbiased=False), tuned.shape[1])
    costs = torch.tensor([point.tune_metrics["cost"] for point in points], dtype=torch.float64)
    losses = losses_at(points, found.pool)[loss]
    return Candidates(one, costs, tuned.double().mean(1), variances, losses, 1 - _spent(found, points))


def tally(
    of: Candidates, *, size: int, draws: int = DRAWS, drops: tuple[float, ...] = DROPS, seed: int = 0
) -> list[dict[str, Any]]:
    """What promises come to, over calibration sets drawn with replacement.

    A promise is broken where the pool's mean loss at the chosen point exceeds it. Where nothing can be guaranteed, the
    full network runs and nothing is saved.

    Args:
        of: The points.
        size: Samples of a calibration set.
        draws: How many sets.
        drops: Promises.
        seed: Of the draws.

    Returns:
        A row for each drop, risk and bound.
    """
    cells = {(drop, risk, bound): _Cell() for drop in drops for risk in RISKS for bound in BOUNDS}
    free: dict[float, list[float]] = {drop: [] for drop in drops}
    risks, generator = of.pool.double().mean(1), torch.Generator().manual_seed(seed)
    about = {drop: {risk: _order(of, drop, risk, size) for risk in RISKS} for drop in drops}
    for _ in range(draws):
        drawn = of.pool[:, torch.randint(of.pool.shape[1], (size,), generator=generator)]
        measured = drawn.double().mean(1)
        for drop in drops:
            within = of.saved[measured <= drop]
            free[drop].append(float(within.max()) if len(within) else 0.0)
        for (drop, risk, bound), cell in cells.items():
            order = about[drop][risk]
            variances = of.variances[order]
            step = last_passing(
                drawn[order], of.loss, max_loss=drop, confidence=1 - risk, bound=bound, variances=variances
            )
            place = None if step is None else int(order[step])
            cell.saved.append(0.0 if place is None else float(of.saved[place]))
            cell.broken.append(place is not None and float(risks[place]) > drop)
            cell.none += place is None
    return [
        {
            "samples": size,
            "max_drop": drop,
            "risk": risk,
            "bound": bound,
            "broken": float(np.mean(cell.broken)),
            "nothing promised": cell.none / draws,
            "saved": float(np.mean(cell.saved)),
            "saved with no guarantee": float(np.mean(free[drop])),
            "ratio": float(np.mean(cell.saved) / np.mean(free[drop])) if np.mean(free[drop]) else 1.0,
        }
        for (drop, risk, bound), cell in cells.items()
    ]


def risk() -> tuple[dict[str, Any], list[Bar]]:
    """Both pools, every loss."""
    figures, bars = {}, []
    for name in POOLS:
        found, rows = pool(name), []
        for loss in LOSSES:
            of = candidates(found, loss)
            for size in SIZES:
                say(f"{name}, {loss}, {size} samples")
                rows += [{"loss": loss, **row} for row in tally(of, size=size)]
        bars += [Bar(f"{name}, {words}", figure, limit) for words, figure, limit in _must(rows)]
        full = {"pool": len(found.ids), "points": len(found.points), "full accuracy": _full(found)}
        figures[name] = {**full, "draws": DRAWS, "rows": rows, "without labels": _side_by_side(rows)}
    return figures, bars


class _Cell:
    """What came of one promise in all draws."""

    def __init__(self) -> None:
        self.saved: list[float] = []
        self.broken: list[bool] = []
        self.none = 0


def _order(of: Candidates, drop: float, risk: float, size: int) -> Tensor:
    return order_candidates(of.costs, of.means, of.variances, of.loss, max_loss=drop, samples=size, confidence=1 - risk)


def _spent(found: Pool, points: list[OperatingPoint]) -> Tensor:
    table = found.costs.of(found.pool.sizes)
    exits = simulate(points, found.pool)
    spent = [float(table.relative_cost(left, point.active)) for left, point in zip(exits, points, strict=True)]
    return torch.tensor(spent, dtype=torch.float64)


def _full(found: Pool) -> float:
    return float(found.pool.full_correct.double().mean())


def _must(rows: list[dict[str, Any]]) -> Iterator[tuple[str, float, float]]:
    """The worst of each loss and bound: broken promises less what is allowed, and the saving that a guarantee costs."""
    for loss in LOSSES:
        for bound in BOUNDS:
            own = [row for row in rows if (row["loss"], row["bound"]) == (loss, bound)]
            for risk in RISKS:
                worst = max(row["broken"] for row in own if row["risk"] == risk)
                allowed = risk + 2 * (risk * (1 - risk) / DRAWS) ** 0.5
                yield f"{loss} by {bound}, risk {risk}: broken promises in the worst cell", worst, allowed
            last = [row["ratio"] for row in own if row["samples"] == SIZES[-1] and row["max_drop"] == DROPS[-1]]
            yield f"{loss} by {bound}: saving given up for 2 points from 3,000 samples", 1 - min(last), 1 - LEAST


def _side_by_side(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What the labelled and the label-free route save at the same promise: at most so much accuracy lost."""
    kept = [row for row in rows if row["bound"] == "ltt" and row["loss"] in ("accuracy", "disagreement")]
    cells = dict.fromkeys((row["samples"], row["max_drop"], row["risk"]) for row in kept)
    found = []
    for samples, drop, risk in cells:
        saved = {
            row["loss"]: row["saved"]
            for row in kept
            if (row["samples"], row["max_drop"], row["risk"]) == (samples, drop, risk)
        }
        found.append(
            {
                "samples": samples,
                "max_drop": drop,
                "risk": risk,
                "saved with labels": saved["accuracy"],
                "saved without": saved["disagreement"],
                "labels saved": samples,
            }
        )
    return found
