"""Whether the sets of a dearer operating point lie within those of a cheaper one, and what it costs to make them."""

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


def nesting(given: Pool, points: Sequence[OperatingPoint]) -> dict[str, Any]:
    r"""Sets at points of ascending cost, from one split of a pool, as they come and made nested.

    Nested: the score of class k at exit e is $\max_{j \le e} (1 - \hat p^j_k)$ over exits in force, and the threshold
    the largest that any of the points needs. Sets then shrink from exit to exit; where every sample leaves no earlier
    at a dearer point, from point to point. Each point's own threshold would do, so the larger one covers too.

    Args:
        given: The pool.
        points: Points of one set of classifiers and exits, in ascending order of cost.
    """
    outcomes = given.pool
    assert outcomes.probabilities is not None
    order = torch.randperm(len(outcomes.labels), generator=torch.Generator().manual_seed(0))
    calibrating, tried = order.chunk(2)
    left = simulate(points, outcomes)
    plain, nested, thresholds = [], [], []
    for point, exits in zip(points, left, strict=True):
        probabilities = outcomes.probabilities[point.classifier]
        found = conformal_thresholds(
            "pooled", outcomes.conformal_scores[point.classifier][calibrating], exits[calibrating], miscoverage=ALPHA
        )
        plain.append(prediction_set(probabilities[tried, exits[tried]], found[exits[tried]]))
        least = least_so_far(probabilities, exits, point.active)
        scores = _of_true(1 - least[calibrating], outcomes.labels[calibrating])[:, None]
        together = torch.zeros(len(scores), dtype=torch.long)
        thresholds.append(conformal_thresholds("general", scores, together, miscoverage=ALPHA)[0])
        nested.append(least[tried])
    common = torch.stack(thresholds).max().expand(len(tried))
    made = [prediction_set(least, common) for least in nested]
    labels = outcomes.labels[tried]
    return {
        "miscoverage": ALPHA,
        "leave no earlier at the dearer point": [
            float((dear >= cheap).double().mean()) for cheap, dear in pairwise(left)
        ],
        "as they are": _told(plain, labels),
        "made nested": _told(made, labels),
    }


def least_so_far(probabilities: Tensor, exits: Tensor, active: Sequence[int]) -> Tensor:
    """`N x K` smallest probability of each class at the exits in force up to where samples leave.

    Args:
        probabilities: `N x L x K`, at every exit.
        exits: `N` exits where samples leave.
        active: The exits in force.
    """
    passed = torch.tensor(active) <= exits[:, None]
    return probabilities[:, list(active)].masked_fill(~passed[..., None], 1.0).amin(1)


def _of_true(values: Tensor, labels: Tensor) -> Tensor:
    return values.gather(1, labels[:, None]).squeeze(1)


def _told(sets: Sequence[Tensor], labels: Tensor) -> dict[str, Any]:
    """Sizes and coverage at each point, and how many sets have a class that the set of the next cheaper point lacks."""
    return {
        "mean set size": [float(one.sum(1).double().mean()) for one in sets],
        "coverage": [float(_of_true(one, labels).double().mean()) for one in sets],
        "not within the cheaper point's": [
            float((dear & ~cheap).any(1).double().mean()) for cheap, dear in pairwise(sets)
        ],
    }
