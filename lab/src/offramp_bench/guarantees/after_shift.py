"""Promises of agreement with the full network: made before a shift, and made again after it, without labels."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from offramp.model._guarantees import losses_at
from offramp.uncertainty._risk import LOSSES, last_passing, order_candidates, smooth_variances
from offramp_bench.guarantees.pools import Pool
from offramp_bench.guarantees.shifts import Shift

__all__ = ["BROKEN", "recalibration"]

PROMISED, CONFIDENCE = 0.02, 0.95
"""The most disagreement, and how surely."""

REDRAWS, SAMPLES = 1000, 2000
"""How often calibrated, on how many samples."""

BROKEN = 1 - CONFIDENCE + 2 * math.sqrt(CONFIDENCE * (1 - CONFIDENCE) / REDRAWS)
"""Share of the promises that may be broken: what is left of the confidence, and two standard errors."""

_LOSS = LOSSES["disagreement"]


def recalibration(known: Pool, shifts: Sequence[Shift]) -> list[dict[str, Any]]:
    """For each shift, what becomes of promises made on the pool, and of those made on shifted samples.

    A promise is broken where the disagreement at the chosen point, over all samples of the shift, exceeds it. Where
    nothing can be guaranteed the full network runs, and nothing is broken.

    Args:
        known: The pool.
        shifts: Its shifts.
    """
    tuned = losses_at(known.points, known.tune, labelled=False)["disagreement"]
    pooled = losses_at(known.points, known.pool, labelled=False)["disagreement"]
    costs = torch.tensor([point.tune_metrics["cost"] for point in known.points], dtype=torch.float64)
    variances = smooth_variances(_LOSS.to_unit(tuned).var(1, unbiased=False), tuned.shape[1])
    guarantee = {"max_loss": PROMISED, "confidence": CONFIDENCE}
    order = order_candidates(costs, tuned.double().mean(1), variances, _LOSS, samples=SAMPLES, **guarantee)

    def chosen(other: Tensor, share: float) -> Tensor:
        """Return the points guaranteed on sets drawn with a share of other samples; none where no guarantee passes."""
        generator, both, places = torch.Generator().manual_seed(0), torch.cat([pooled, other], dim=1), []
        for _ in range(REDRAWS):
            rows = torch.randint(pooled.shape[1], (SAMPLES,), generator=generator)
            others = torch.rand(SAMPLES, generator=generator) < share
            rows[others] = pooled.shape[1] + torch.randint(other.shape[1], (int(others.sum()),), generator=generator)
            drawn = both[order][:, rows]
            step = last_passing(drawn, _LOSS, bound="ltt", variances=variances[order], **guarantee)
            places += [] if step is None else [int(order[step])]
        return torch.tensor(places, dtype=torch.long)

    before, found = chosen(pooled[:, :1], 0.0), []
    for shift in shifts:
        other = losses_at(known.points, shift.seen, labelled=False)["disagreement"]
        truth = (1 - shift.share) * pooled.double().mean(1) + shift.share * other.double().mean(1)
        row: dict[str, Any] = {"shift": shift.name, "tune_metrics": PROMISED, "samples": SAMPLES}
        for when, places in (("before", before), ("after", chosen(other, shift.share))):
            row[when] = {
                "promises": len(places) / REDRAWS,
                "broken": float((truth[places] > PROMISED).sum()) / REDRAWS,
                "disagreement": float(truth[places].mean()) if len(places) else None,
                "cost on tune": float(costs[places].mean()) if len(places) else None,
            }
        found.append(row)
    return found
