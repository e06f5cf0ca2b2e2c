"""Nesting of prediction sets: of a more expensive point within those of a cheaper one, and the price of forcing it."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from offramp.model._outcomes import simulate
from offramp.policy import OperatingPoint
from offramp.uncertainty import conformal_thresholds, prediction_set
from offramp_bench.guarantees.pools import Pool

__all__ = ["least_so_far", "nesting"]

ALPHA = 0.05


def nesting(pool: Pool, points: Sequence[OperatingPoint]) -> dict[str, Any]:
    r"""Measure sets at points of ascending cost, from one split of a pool, as they are and made nested.

    Nested: the score of class k at exit e is $\max_{j \le e} (1 - \hat p^j_k)$ over active exits, and the threshold is
    the largest that any of the points needs. Sets then shrink from exit to exit, and from point to point if no sample
    leaves earlier at a more expensive point. Each point's own threshold is enough for it, so the largest covers too.

    Args:
        pool: The pool.
        points: Points of one set of classifiers and exits, in ascending order of cost.
    """
    outcomes = pool.pool
    assert outcomes.probabilities is not None
    order = torch.randperm(len(outcomes.labels), generator=torch.Generator().manual_seed(0))
    calibrating, test = order.chunk(2)
    left = simulate(points, outcomes)
    plain, nested, thresholds = [], [], []
    for point, exits in zip(points, left, strict=True):
        probabilities = outcomes.probabilities[point.classifier]
        by_exit = conformal_thresholds(
            "pooled", outcomes.conformal_scores[point.classifier][calibrating], exits[calibrating], miscoverage=ALPHA
        )
        plain.append(prediction_set(probabilities[test, exits[test]], by_exit[exits[test]]))
        least = least_so_far(probabilities, exits, point.active)
        scores = _of_true(1 - least[calibrating], outcomes.labels[calibrating])[:, None]
        one_exit = torch.zeros(len(scores), dtype=torch.long)
        thresholds.append(conformal_thresholds("general", scores, one_exit, miscoverage=ALPHA)[0])
        nested.append(least[test])
    common = torch.stack(thresholds).max().expand(len(test))
    nested_sets = [prediction_set(least, common) for least in nested]
    labels = outcomes.labels[test]
    return {
        "miscoverage": ALPHA,
        "leave no earlier at the dearer point": [
            float((dear >= cheap).double().mean()) for cheap, dear in pairwise(left)
        ],
        "as they are": _sizes_and_coverage(plain, labels),
        "made nested": _sizes_and_coverage(nested_sets, labels),
    }


def least_so_far(probabilities: Tensor, exits: Tensor, active: Sequence[int]) -> Tensor:
    """Return the `N x K` smallest probability of each class at the active exits, up to where samples leave.

    Args:
        probabilities: `N x L x K`, at every exit.
        exits: `N` exits where samples leave.
        active: The active exits.
    """
    reached = torch.tensor(active) <= exits[:, None]
    return probabilities[:, list(active)].masked_fill(~reached[..., None], 1.0).amin(1)


def _of_true(values: Tensor, labels: Tensor) -> Tensor:
    return values.gather(1, labels[:, None]).squeeze(1)


def _sizes_and_coverage(sets: Sequence[Tensor], labels: Tensor) -> dict[str, Any]:
    """Return sizes and coverage at each point, and the share of sets with a class that the cheaper point's lacks."""
    return {
        "mean set size": [float(rows.sum(1).double().mean()) for rows in sets],
        "coverage": [float(_of_true(rows, labels).double().mean()) for rows in sets],
        "not within the cheaper point's": [
            float((dear & ~cheap).any(1).double().mean()) for cheap, dear in pairwise(sets)
        ],
    }
