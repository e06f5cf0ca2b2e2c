"""Guarantees of a largest loss, over many calibration sets drawn from a pool of real outcomes."""

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
from offramp_bench.guarantees.pools import POOLS, Pool, load_pool

__all__ = ["Candidates", "measure_candidates", "risk", "tally"]

DRAWS = 1000
SIZES = (1000, 3000)
DROPS = (0.005, 0.01, 0.02)
RISKS = (0.05, 0.1)
BOUNDS: tuple[RiskBound, ...] = get_args(RiskBound)

LEAST = 0.7
"""Least saving at the largest drop and size, as a share of the saving without a guarantee."""


@dataclass(frozen=True)
class Candidates:
    """A policy's points under one loss, with their figures on tune and on the pool."""

    loss: RiskLoss
    costs: Tensor
    """`P` costs on tune."""
    means: Tensor
    """`P` mean losses on tune."""
    variances: Tensor
    """`P` variances of losses on tune, scaled to [0, 1]."""
    pool: Tensor
    """`P x M` losses of the pool's samples."""
    saved: Tensor
    """`P` shares of the cost that the pool's samples save."""


def measure_candidates(pool: Pool, loss: str) -> Candidates:
    """Return the threshold's points under one loss.

    Args:
        pool: The pool.
        loss: Name of the loss.
    """
    points, risk_loss = pool.points, LOSSES[loss]
    tune_losses = losses_at(points, pool.tune)[loss]
    variances = smooth_variances(risk_loss.to_unit(tune_losses).var(1, unbiased=False), tune_losses.shape[1])
    costs = torch.tensor([point.tune_metrics["cost"] for point in points], dtype=torch.float64)
    losses = losses_at(points, pool.pool)[loss]
    return Candidates(risk_loss, costs, tune_losses.double().mean(1), variances, losses, 1 - _spent(pool, points))


def tally(
    candidates: Candidates, *, size: int, draws: int = DRAWS, drops: tuple[float, ...] = DROPS, seed: int = 0
) -> list[dict[str, Any]]:
    """Count broken guarantees and measure savings, over calibration sets drawn with replacement.

    A guarantee is broken if the pool's mean loss at the chosen point exceeds it. Where nothing can be guaranteed, the
    full network runs and nothing is saved.

    Args:
        candidates: The points.
        size: Samples of a calibration set.
        draws: Number of calibration sets.
        drops: Largest losses that are guaranteed.
        seed: Seed of the draws.

    Returns:
        One row per drop, risk and bound.
    """
    cells = {(drop, risk, bound): _Cell() for drop in drops for risk in RISKS for bound in BOUNDS}
    unguaranteed: dict[float, list[float]] = {drop: [] for drop in drops}
    risks, generator = candidates.pool.double().mean(1), torch.Generator().manual_seed(seed)
    orders = {drop: {risk: _order(candidates, drop, risk, size) for risk in RISKS} for drop in drops}
    for _ in range(draws):
        drawn = candidates.pool[:, torch.randint(candidates.pool.shape[1], (size,), generator=generator)]
        measured = drawn.double().mean(1)
        for drop in drops:
            within = candidates.saved[measured <= drop]
            unguaranteed[drop].append(float(within.max()) if len(within) else 0.0)
        for (drop, risk, bound), cell in cells.items():
            order = orders[drop][risk]
            variances = candidates.variances[order]
            step = last_passing(
                drawn[order], candidates.loss, max_loss=drop, confidence=1 - risk, bound=bound, variances=variances
            )
            place = None if step is None else int(order[step])
            cell.saved.append(0.0 if place is None else float(candidates.saved[place]))
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
            "saved with no guarantee": float(np.mean(unguaranteed[drop])),
            "ratio": float(np.mean(cell.saved) / np.mean(unguaranteed[drop])) if np.mean(unguaranteed[drop]) else 1.0,
        }
        for (drop, risk, bound), cell in cells.items()
    ]


def risk() -> tuple[dict[str, Any], list[Bar]]:
    """Measure both pools, with every loss."""
    figures, bars = {}, []
    for name in POOLS:
        pool, rows = load_pool(name), []
        for loss in LOSSES:
            candidates = measure_candidates(pool, loss)
            for size in SIZES:
                say(f"{name}, {loss}, {size} samples")
                rows += [{"loss": loss, **row} for row in tally(candidates, size=size)]
        bars += [Bar(f"{name}, {words}", figure, limit) for words, figure, limit in _bar_figures(rows)]
        full = {"pool": len(pool.ids), "points": len(pool.points), "full accuracy": _full_accuracy(pool)}
        figures[name] = {**full, "draws": DRAWS, "rows": rows, "without labels": _side_by_side(rows)}
    return figures, bars


class _Cell:
    """Results of one guarantee in all draws."""

    def __init__(self) -> None:
        self.saved: list[float] = []
        self.broken: list[bool] = []
        self.none = 0


def _order(candidates: Candidates, drop: float, risk: float, size: int) -> Tensor:
    costs, means, variances = candidates.costs, candidates.means, candidates.variances
    return order_candidates(costs, means, variances, candidates.loss, max_loss=drop, samples=size, confidence=1 - risk)


def _spent(pool: Pool, points: list[OperatingPoint]) -> Tensor:
    table = pool.costs.of(pool.pool.sizes)
    exits = simulate(points, pool.pool)
    spent = [float(table.relative_cost(left, point.active)) for left, point in zip(exits, points, strict=True)]
    return torch.tensor(spent, dtype=torch.float64)


def _full_accuracy(pool: Pool) -> float:
    return float(pool.pool.full_correct.double().mean())


def _bar_figures(rows: list[dict[str, Any]]) -> Iterator[tuple[str, float, float]]:
    """Yield name, figure and limit of the bars for each loss and bound: broken guarantees, and saving given up."""
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
    """Return the savings with and without labels at the same guaranteed loss of accuracy."""
    kept = [row for row in rows if row["bound"] == "ltt" and row["loss"] in ("accuracy", "disagreement")]
    cells = dict.fromkeys((row["samples"], row["max_drop"], row["risk"]) for row in kept)
    results = []
    for samples, drop, risk in cells:
        saved = {
            row["loss"]: row["saved"]
            for row in kept
            if (row["samples"], row["max_drop"], row["risk"]) == (samples, drop, risk)
        }
        results.append(
            {
                "samples": samples,
                "max_drop": drop,
                "risk": risk,
                "saved with labels": saved["accuracy"],
                "saved without": saved["disagreement"],
                "labels saved": samples,
            }
        )
    return results
