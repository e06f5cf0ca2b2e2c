"""Guarantees of agreement with the full network, given before a shift and again after it, without labels."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from offramp.model._guarantees import losses_at
from offramp.uncertainty._risk import LOSSES, last_passing, order_candidates, smooth_variances
from offramp_bench.guarantees.pools import Pool
from offramp_bench.guarantees.shifts import Shift

__all__ = ["MAX_BROKEN", "recalibration"]

MAX_LOSS, CONFIDENCE = 0.02, 0.95
"""The largest disagreement that is guaranteed, and the confidence."""

REDRAWS, SAMPLES = 1000, 2000
"""Number of calibrations, and of samples in each."""

MAX_BROKEN = 1 - CONFIDENCE + 2 * math.sqrt(CONFIDENCE * (1 - CONFIDENCE) / REDRAWS)
"""Share of the guarantees that may be broken: 1 - confidence, and two standard errors."""

_LOSS = LOSSES["disagreement"]


def recalibration(pool: Pool, shifts: Sequence[Shift]) -> list[dict[str, Any]]:
    """Count broken guarantees under each shift: of those given on the pool, and of those given on shifted samples.

    A guarantee is broken if the disagreement at the chosen point, over all samples of the shift, exceeds it. Where
    nothing can be guaranteed the full network runs, and nothing is broken.

    Args:
        pool: The pool.
        shifts: Shifts of the pool.
    """
    tune_losses = losses_at(pool.points, pool.tune, labelled=False)["disagreement"]
    pool_losses = losses_at(pool.points, pool.pool, labelled=False)["disagreement"]
    costs = torch.tensor([point.tune_metrics["cost"] for point in pool.points], dtype=torch.float64)
    variances = smooth_variances(_LOSS.to_unit(tune_losses).var(1, unbiased=False), tune_losses.shape[1])
    guarantee = {"max_loss": MAX_LOSS, "confidence": CONFIDENCE}
    order = order_candidates(costs, tune_losses.double().mean(1), variances, _LOSS, samples=SAMPLES, **guarantee)

    def choose(other: Tensor, share: float) -> Tensor:
        """Return the points guaranteed on sets drawn with a share of other samples; none where no guarantee passes."""
        generator, both, places = torch.Generator().manual_seed(0), torch.cat([pool_losses, other], dim=1), []
        for _ in range(REDRAWS):
            rows = torch.randint(pool_losses.shape[1], (SAMPLES,), generator=generator)
            others = torch.rand(SAMPLES, generator=generator) < share
            rows[others] = pool_losses.shape[1] + torch.randint(
                other.shape[1], (int(others.sum()),), generator=generator
            )
            losses = both[order][:, rows]
            step = last_passing(losses, _LOSS, bound="ltt", variances=variances[order], **guarantee)
            places += [] if step is None else [int(order[step])]
        return torch.tensor(places, dtype=torch.long)

    before, results = choose(pool_losses[:, :1], 0.0), []
    for shift in shifts:
        other = losses_at(pool.points, shift.outcomes, labelled=False)["disagreement"]
        truth = (1 - shift.share) * pool_losses.double().mean(1) + shift.share * other.double().mean(1)
        row: dict[str, Any] = {"shift": shift.name, "tune_metrics": MAX_LOSS, "samples": SAMPLES}
        for when, places in (("before", before), ("after", choose(other, shift.share))):
            row[when] = {
                "promises": len(places) / REDRAWS,
                "broken": float((truth[places] > MAX_LOSS).sum()) / REDRAWS,
                "disagreement": float(truth[places].mean()) if len(places) else None,
                "cost on tune": float(costs[places].mean()) if len(places) else None,
            }
        results.append(row)
    return results
