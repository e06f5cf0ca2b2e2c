r"""Sets of classes that hold the true one as often as promised.

Split conformal prediction with the score $1 - \hat p_y$. The promise needs thresholds from a split that neither the
trunk, the heads, the temperatures nor the choice of exits has seen. It holds on average over calibration splits, not
for each class or each sample.
"""

import math
from fractions import Fraction
from typing import Literal, get_args

import torch
from torch import Tensor

from offramp.errors import InputError
from offramp.registry import unknown_name

__all__ = [
    "ConformalVariant",
    "conformal_scores",
    "conformal_threshold",
    "conformal_thresholds",
    "coverage",
    "mean_set_size",
    "prediction_set",
]

ConformalVariant = Literal["general", "per_exit", "strict", "gated"]

# A softmax may round to a little over 1, and its score to a little under 0; logits passed by mistake go further.
_ROUNDING = 1e-5


def conformal_scores(probabilities: Tensor, labels: Tensor) -> Tensor:
    r"""How badly each true class was predicted, $s = 1 - \hat p_y$.

    Section 3 of [Regol2024]. The same expression in the same dtype as in `prediction_set`, so that a sample is always
    in the set of a threshold taken from its own score.

    Args:
        probabilities: `N x ... x K`, at one exit (`N x K`) or at all (`N x L x K`).
        labels: `N` true classes.

    Returns:
        `N x ...` scores in [0, 1], in the dtype of `probabilities` (float32 for half precision).

    Raises:
        InputError: If labels are not classes.

    Example:
        >>> conformal_scores(torch.tensor([[0.75, 0.25], [0.5, 0.5]]), torch.tensor([1, 0]))
        tensor([0.7500, 0.5000])
    """
    scores = _scores_of_classes(probabilities)
    _check_labels(labels, num_samples=len(scores), num_classes=scores.shape[-1])
    index = labels.long().view(-1, *[1] * (scores.ndim - 1)).expand(*scores.shape[:-1], 1)
    return scores.gather(-1, index).squeeze(-1)


def conformal_threshold(scores: Tensor, *, miscoverage: float) -> Tensor:
    r"""Threshold that the score of one more sample exceeds with probability at most `miscoverage`.

    The $r$-th smallest of n scores, $r = \lceil (n+1)(1-\alpha) \rceil$: their quantile at level $r/n$, without
    interpolation. Coverage is then at least $1-\alpha$ and, if no scores tie, at most $1-\alpha+1/(n+1)$, on
    average over splits. [Regol2024] takes the plain $1-\alpha$ percentile, which falls short by up to $1/(n+1)$;
    `numpy.quantile(..., method="higher")` at the level above takes the next larger score, which is safe but not tight.

    Where that rank exceeds n (n too small for so high a coverage) no finite sample supports a threshold. It is then 1,
    the largest score there is: the set is all classes.

    Args:
        scores: `N` scores in [0, 1], from `conformal_scores`.
        miscoverage: alpha, in (0, 1), read as the decimal it prints as: 0.29 of 100 is exactly 29.

    Returns:
        The threshold tau, a scalar in the dtype of `scores` (float32 for half precision).

    Raises:
        InputError: If there are no scores, they are not in [0, 1], or `miscoverage` is out of range.

    Example:
        >>> scores = torch.tensor([0.1, 0.4, 0.2, 0.3])
        >>> conformal_threshold(scores, miscoverage=0.4)
        tensor(0.3000)
        >>> conformal_threshold(scores, miscoverage=0.1)
        tensor(1.)
    """
    if scores.ndim != 1 or len(scores) == 0:
        raise InputError(
            f"expected scores 'N' of at least one sample, got {tuple(scores.shape)}; check the calibrate split"
        )
    _check_scores(scores)
    if not 0 < miscoverage < 1:
        raise InputError(f"expected miscoverage between 0 and 1, got {miscoverage}; 95 % coverage is 0.05")
    scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
    # ceil((n+1)(1-alpha)), in rationals: a float product may land on the wrong side of an integer.
    rank = len(scores) + 1 - math.floor((len(scores) + 1) * Fraction(str(float(miscoverage))))
    return scores.kthvalue(rank).values if rank <= len(scores) else scores.new_tensor(1.0)


def conformal_thresholds(
    variant: ConformalVariant, scores_at_exits: Tensor, exits: Tensor, *, miscoverage: float, minimum: int = 20
) -> Tensor:
    r"""Threshold of each exit, by one of the four variants of [Regol2024], appendix "Conformal intervals".

    * `general`: one threshold for all, from each sample's score where it left. Claims coverage over all samples
      together; a single exit may fall short.
    * `per_exit` (the paper's "IMs"): each exit's threshold from all samples' scores there, wherever they left. Ignores
      that the samples leaving at an exit are a selection, so it claims nothing, neither for an exit nor overall (only
      what would hold if everybody left there).
    * `strict`: each exit's threshold from the samples that left there. Claims coverage for every exit, and so overall,
      except at an exit nobody left at: its threshold is 0, whose set is empty unless a class has probability 1. With
      fewer than 1/alpha - 1 samples the set is all classes.
    * `gated` (the paper's choice): as `strict`, but `general` at exits with fewer than `minimum` samples. Claims
      coverage for each of the other exits; where samples are few it leans on the general threshold, without a claim.

    Claims are averages over calibration splits, for exits chosen by a rule fixed beforehand.

    Args:
        variant: Which of the four.
        scores_at_exits: `N x L` scores of the true class at every exit, from `conformal_scores`.
        exits: `N` exits where the samples left, 0-based.
        miscoverage: alpha, in (0, 1).
        minimum: Fewest samples for a threshold of an exit's own; `gated` only. 20 is the paper's.

    Returns:
        `L` thresholds, in the dtype of `scores_at_exits` (float32 for half precision).

    Raises:
        InputError: If there are no samples, shapes differ, or a value is out of range. An exit nobody uses is no error.
        UnknownNameError: If there is no such variant.

    Example:
        >>> scores = torch.tensor([[0.1, 0.0], [0.3, 0.2], [0.9, 0.6], [0.8, 0.4]])
        >>> exits = torch.tensor([0, 0, 1, 1])
        >>> conformal_thresholds("general", scores, exits, miscoverage=0.4)
        tensor([0.4000, 0.4000])
        >>> conformal_thresholds("per_exit", scores, exits, miscoverage=0.4)
        tensor([0.8000, 0.4000])
        >>> conformal_thresholds("strict", scores, exits, miscoverage=0.4)
        tensor([0.3000, 0.6000])
    """
    _check_exits(scores_at_exits, exits)
    _check_scores(scores_at_exits)
    num_exits = scores_at_exits.shape[1]

    def threshold(scores: Tensor) -> Tensor:
        return conformal_threshold(scores, miscoverage=miscoverage)

    if variant == "per_exit":
        return torch.stack([threshold(scores) for scores in scores_at_exits.unbind(1)])
    general = threshold(scores_at_exits.gather(1, exits.long()[:, None]).squeeze(1))
    if variant == "general":
        return general.repeat(num_exits)
    if variant not in ("strict", "gated"):
        raise unknown_name("conformal variant", variant, get_args(ConformalVariant))
    fewest, fallback = (1, torch.zeros_like(general)) if variant == "strict" else (max(1, minimum), general)
    leaving = [scores_at_exits[exits == exit, exit] for exit in range(num_exits)]
    return torch.stack([threshold(scores) if len(scores) >= fewest else fallback for scores in leaving])


def prediction_set(probabilities: Tensor, thresholds: Tensor) -> Tensor:
    r"""Classes that conform, $\{k : 1 - \hat p_k \le \tau\}$.

    Eq. 10 of [Regol2024], which writes $<$; with $\le$ the sample a threshold was taken from is inside, as the promise
    of coverage needs. Keep thresholds in the dtype of the scores they came from: rounded down, they lose that sample.

    Args:
        probabilities: `N x K`, of the exit where each sample left.
        thresholds: `N` thresholds, of the same exits: `conformal_thresholds(...)[exits]`.

    Returns:
        `N x K` booleans. A set may be empty.

    Raises:
        InputError: If there is not one threshold for each sample.

    Example:
        >>> prediction_set(torch.tensor([[0.7, 0.2, 0.1]]), torch.tensor([0.85]))
        tensor([[ True,  True, False]])
    """
    if probabilities.ndim != 2 or thresholds.shape != probabilities.shape[:1]:
        raise InputError(
            f"expected probabilities 'N x K' and thresholds 'N', got {tuple(probabilities.shape)} and "
            f"{tuple(thresholds.shape)}; index the thresholds by each sample's exit"
        )
    return _scores_of_classes(probabilities) <= thresholds[:, None]


def coverage(sets: Tensor, labels: Tensor) -> Tensor:
    r"""Share of the samples whose set holds the true class, $1 - \hat\alpha$ of Eq. 2 of [Regol2024].

    Args:
        sets: `N x K` booleans.
        labels: `N` true classes.

    Returns:
        The share, a scalar in [0, 1].

    Raises:
        InputError: If there are no samples, or labels are not classes.

    Example:
        >>> coverage(torch.tensor([[True, True], [True, False]]), torch.tensor([1, 1]))
        tensor(0.5000)
    """
    _check_sets(sets)
    _check_labels(labels, num_samples=len(sets), num_classes=sets.shape[1])
    return sets.gather(1, labels.long()[:, None]).sum() / len(sets)


def mean_set_size(sets: Tensor) -> Tensor:
    r"""Mean number of classes in a set, the inefficiency $\bar{|C|}$ of Eq. 2 of [Regol2024].

    The paper's tables give it at the smallest mean size whose *test* coverage exceeds the target. Here it is the size
    of the sets given; thresholds from the calibrate split alone make it the honest one.

    Args:
        sets: `N x K` booleans.

    Returns:
        The mean size, a scalar.

    Raises:
        InputError: If there are no samples.

    Example:
        >>> mean_set_size(torch.tensor([[True, True], [True, False]]))
        tensor(1.5000)
    """
    _check_sets(sets)
    return sets.sum() / len(sets)


def _scores_of_classes(probabilities: Tensor) -> Tensor:
    return 1 - probabilities.to(torch.promote_types(probabilities.dtype, torch.float32))


def _check_scores(scores: Tensor) -> None:
    if not scores.is_floating_point() or not ((scores >= -_ROUNDING) & (scores <= 1)).all():
        raise InputError(
            f"expected scores 1 - p in [0, 1], got {scores.dtype} in {scores.min().item():g}..{scores.max().item():g}; "
            "pass probabilities to conformal_scores, not logits"
        )


def _check_exits(scores_at_exits: Tensor, exits: Tensor) -> None:
    if scores_at_exits.ndim != 2 or scores_at_exits.numel() == 0 or exits.shape != scores_at_exits.shape[:1]:
        raise InputError(
            f"expected scores 'N x L' of at least one sample and exits 'N', got {tuple(scores_at_exits.shape)} and "
            f"{tuple(exits.shape)}; check the calibrate split"
        )
    last = scores_at_exits.shape[1] - 1
    if exits.is_floating_point() or exits.min() < 0 or exits.max() > last:
        raise InputError(
            f"expected exits in 0..{last}, got {exits.dtype} in {exits.min().item()}..{exits.max().item()}; count "
            "exits from 0, among the active ones"
        )


def _check_labels(labels: Tensor, *, num_samples: int, num_classes: int) -> None:
    if labels.shape != (num_samples,) or labels.is_floating_point():
        raise InputError(
            f"expected {num_samples} integer labels, got {labels.dtype} {tuple(labels.shape)}; pass one class a sample"
        )
    if num_samples and (labels.min() < 0 or labels.max() >= num_classes):
        raise InputError(
            f"expected labels in 0..{num_classes - 1}, got {labels.min().item()}..{labels.max().item()}; number the "
            "classes as the probabilities do"
        )


def _check_sets(sets: Tensor) -> None:
    if sets.ndim != 2 or sets.dtype != torch.bool or len(sets) == 0:
        raise InputError(
            f"expected boolean sets 'N x K' of at least one sample, got {sets.dtype} {tuple(sets.shape)}; pass what "
            "prediction_set returns"
        )
