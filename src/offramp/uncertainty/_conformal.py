r"""Prediction sets: sets of classes that hold the true one with a guaranteed frequency.

Split conformal prediction with the score $1 - \hat p_y$. The guarantee needs thresholds from a split that neither the
backbone, the heads, the temperatures nor the choice of exits has seen. It holds on average over calibration splits, not
for each sample; for each exit or class only where a variant says so. docs/reference/prediction-sets.md separates what
is guaranteed from what is not.
"""

from fractions import Fraction
from typing import Literal, get_args

import torch
from torch import Tensor

from offramp._registry import unknown_name
from offramp.errors import InputError

__all__ = [
    "ConformalVariant",
    "class_thresholds",
    "conformal_scores",
    "conformal_thresholds",
    "pool_exits",
    "prediction_set",
]

ConformalVariant = Literal["general", "pooled"]

# A softmax may round to a little over 1, and its score to a little under 0; logits passed by mistake go further.
_ROUNDING = 1e-5


def conformal_scores(probabilities: Tensor, labels: Tensor) -> Tensor:
    r"""Return the nonconformity of each true class, $s = 1 - \hat p_y$: section 3 of [Regol2024].

    The expression and dtype are those of `prediction_set`, so that a sample is always in the set of a threshold taken
    from its own score.

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


def prediction_set(probabilities: Tensor, thresholds: Tensor) -> Tensor:
    r"""Return the classes of each prediction set, $\{k : 1 - \hat p_k \le \tau\}$.

    Eq. 10 of [Regol2024], which writes $<$; with $\le$ the sample that a threshold came from is inside, as coverage
    requires. Keep thresholds in the dtype of their scores: rounded down, they lose that sample.

    Args:
        probabilities: `N x K`, of the exit where each sample left.
        thresholds: `N` thresholds of the same exits, `conformal_thresholds(...)[exits]`; or `N x K`, where each class
            has its own, `class_thresholds(...)[exits]`.

    Returns:
        `N x K` booleans. A set may be empty.

    Raises:
        InputError: If there is not one threshold per sample, or per sample and class.

    Example:
        >>> prediction_set(torch.tensor([[0.7, 0.2, 0.1]]), torch.tensor([0.85]))
        tensor([[ True,  True, False]])
    """
    if probabilities.ndim != 2 or thresholds.shape not in (probabilities.shape[:1], probabilities.shape):
        raise InputError(
            expected="probabilities 'N x K' and thresholds 'N' or 'N x K'",
            got=f"{tuple(probabilities.shape)} and {tuple(thresholds.shape)}",
            hint="index the thresholds by each sample's exit",
        )
    return _scores_of_classes(probabilities) <= (thresholds[:, None] if thresholds.ndim == 1 else thresholds)


def conformal_thresholds(
    variant: ConformalVariant, scores_at_exits: Tensor, exits: Tensor, *, miscoverage: float, minimum: int = 20
) -> Tensor:
    r"""Return the threshold of each exit.

    * `general`: one threshold for all exits, from each sample's score where it left. Guarantees coverage over all
      samples together; a single exit may fall short.
    * `pooled`: each exit's threshold from the samples that left there; exits with fewer than `minimum` samples share
      one. Guarantees coverage overall, at each exit with its own threshold, and at the others together.

    A threshold is the $r$-th smallest of n scores, $r = \lceil (n+1)(1-\alpha) \rceil$, without interpolation. Coverage
    is then at least $1-\alpha$ and, if no scores tie, at most $1-\alpha+1/(n+1)$, on average over splits. [Regol2024]
    takes the plain $1-\alpha$ percentile, which falls short by up to $1/(n+1)$. Where the rank exceeds n, the threshold
    is 1, the largest score there is: the set is all classes.

    `general` is one of the four variants in the paper's appendix "Conformal intervals"; the other three, without
    overall coverage, are in `lab/src/offramp_bench/conformal_variants.py`. Sets are nested in the miscoverage, but not
    from one operating point to another.

    Args:
        variant: `general` or `pooled`.
        scores_at_exits: `N x L` scores of the true class at every exit, from `conformal_scores`.
        exits: `N` exits where the samples left, 0-based, by a rule that was fixed beforehand.
        miscoverage: alpha, in (0, 1), read as the decimal it prints as: 0.29 of 100 is exactly 29.
        minimum: Fewest samples for a threshold of an exit's own; `pooled` only. 20 is the paper's, and enough for a
            miscoverage of 0.05. Below that, 1/alpha - 1 are needed, or rare exits answer with all classes.

    Returns:
        `L` thresholds, in the dtype of `scores_at_exits` (float32 for half precision).

    Raises:
        InputError: If there are no samples, shapes differ, or a value is out of range. An unused exit is no error.
        UnknownNameError: If there is no such variant.

    Example:
        >>> scores = torch.tensor([[0.1, 0.0], [0.3, 0.2], [0.9, 0.6], [0.8, 0.4]])
        >>> exits = torch.tensor([0, 0, 1, 1])
        >>> conformal_thresholds("general", scores, exits, miscoverage=0.4)
        tensor([0.4000, 0.4000])
        >>> conformal_thresholds("pooled", scores, exits, miscoverage=0.4, minimum=1)
        tensor([0.3000, 0.6000])
    """
    one_group = torch.zeros(len(exits), dtype=torch.long, device=exits.device)
    return _group_thresholds(variant, scores_at_exits, exits, one_group, 1, miscoverage, minimum)[0]


def class_thresholds(
    variant: ConformalVariant,
    scores_at_exits: Tensor,
    exits: Tensor,
    labels: Tensor,
    *,
    num_classes: int,
    miscoverage: float,
    minimum: int = 20,
) -> Tensor:
    r"""Return the threshold of each class at each exit: the variant applied within each class (Mondrian [Vovk2012]).

    Class k is in the set if $1 - \hat p_k \le \tau_{e,k}$. The guarantees of the variant then hold for each class: with
    `pooled`, at an exit where the class has at least `minimum` samples, and at the other exits together. A class with
    fewer than 1/alpha - 1 samples is in every set, so use it with some dozens of calibration samples per class.

    Args:
        variant: As for `conformal_thresholds`.
        scores_at_exits: `N x L` scores of the true class at every exit, from `conformal_scores`.
        exits: `N` exits where the samples left, 0-based.
        labels: `N` true classes.
        num_classes: K.
        miscoverage: alpha, in (0, 1).
        minimum: Fewest samples of a class at an exit for a threshold of their own; `pooled` only.

    Returns:
        `L x K` thresholds, in the dtype of `scores_at_exits` (float32 for half precision).

    Raises:
        InputError: If there are no samples, shapes differ, or a value is out of range. A class without samples is no
            error.
        UnknownNameError: If there is no such variant.

    Example:
        >>> scores = torch.tensor([[0.1, 0.0], [0.3, 0.2], [0.9, 0.6], [0.8, 0.4]])
        >>> exits, labels = torch.tensor([0, 0, 1, 1]), torch.tensor([1, 0, 0, 1])
        >>> class_thresholds("general", scores, exits, labels, num_classes=3, miscoverage=0.4)
        tensor([[0.6000, 0.4000, 1.0000],
                [0.6000, 0.4000, 1.0000]])
    """
    _check_labels(labels, num_samples=len(exits), num_classes=num_classes)
    by_class = _group_thresholds(variant, scores_at_exits, exits, labels.long(), num_classes, miscoverage, minimum)
    return by_class.T.contiguous()


def pool_exits(counts: Tensor, minimum: int) -> Tensor:
    r"""Choose the exits that each exit shares a threshold with.

    Exits with fewer than `minimum` samples share one threshold. If they have fewer than `minimum` even together, the
    least used of the other exits joins them, and so on.

    The sample to be predicted counts too, which makes the guarantee exact. Take it together with the n calibration
    samples, and pool exits by the counts of all n + 1: this rule does not depend on which of them is to be predicted.
    Given the n + 1 samples without their order, the pools are fixed, and each of a pool's m + 1 samples is equally
    likely to be the one to be predicted; so its score is among their $\lceil (m+1)(1-\alpha) \rceil$ smallest with
    probability at least $1-\alpha$, in every pool and hence overall. Only the exit of the sample to be predicted is
    needed, which is known when its set is made: for each exit, one is added to that exit's count. (Hence an exit with
    exactly `minimum` samples has its own threshold, and still lends its samples to the rare exits.)

    Args:
        counts: `G x L` calibration samples of each group that left at each exit.
        minimum: Fewest samples for a threshold of an exit's own. With 0 every exit has its own.

    Returns:
        `G x L x L` booleans: for each exit (second axis), the exits whose samples its threshold comes from.

    Example:
        >>> pool_exits(torch.tensor([[15, 300, 8, 40]]), 20)[0].int()
        tensor([[1, 0, 1, 0],
                [0, 1, 0, 0],
                [1, 0, 1, 0],
                [0, 0, 0, 1]], dtype=torch.int32)
    """
    own = torch.eye(counts.shape[1], dtype=torch.bool, device=counts.device)
    with_new = counts[:, None] + own.long()  # G x L x L: the counts with one more sample at each exit
    fewest = max(minimum, 0) + 1  # calibration samples and the one to be predicted
    ascending, order = with_new.sort(dim=-1, stable=True)
    before = ascending.cumsum(-1) - ascending
    # Rare exits come first; then others, as long as the pool is not empty and too small.
    taken = (ascending < fewest) | ((before > 0) & (before < fewest))
    pool = torch.zeros_like(taken).scatter(-1, order, taken)
    outside = ~pool.diagonal(dim1=-2, dim2=-1)
    return torch.where(outside[..., None], own, pool)


def _group_thresholds(
    variant: ConformalVariant,
    scores_at_exits: Tensor,
    exits: Tensor,
    groups: Tensor,
    num_groups: int,
    miscoverage: float,
    minimum: int,
) -> Tensor:
    """Return `G x L` thresholds, each group's from its own samples."""
    _check_exits(scores_at_exits, exits)
    _check_scores(scores_at_exits, miscoverage)
    scores_at_exits = scores_at_exits.to(torch.promote_types(scores_at_exits.dtype, torch.float32))
    if variant not in get_args(ConformalVariant):
        raise unknown_name("conformal variant", variant, get_args(ConformalVariant))
    num_exits, exits = scores_at_exits.shape[1], exits.long()
    # Sorted once: subsets stay in order.
    scores, order = scores_at_exits.gather(1, exits[:, None]).squeeze(1).sort()
    groups, exits = groups[order], exits[order]
    if variant == "general":
        general = _order_statistics(scores, groups, num_groups, miscoverage)
        return general[:, None].repeat(1, num_exits)
    cells = groups * num_exits + exits
    own = _order_statistics(scores, cells, num_groups * num_exits, miscoverage).view(num_groups, num_exits)
    counts = cells.bincount(minlength=num_groups * num_exits).view(num_groups, num_exits)
    pools = pool_exits(counts, minimum)
    shared = pools.sum(-1) > 1
    # Every sample once for each exit whose threshold it contributes to.
    rows, at = (pools.transpose(1, 2)[groups, exits] & shared[groups]).nonzero(as_tuple=True)
    together = _order_statistics(scores[rows], groups[rows] * num_exits + at, num_groups * num_exits, miscoverage)
    return torch.where(shared, together.view(num_groups, num_exits), own)


def _order_statistics(scores: Tensor, groups: Tensor, num_groups: int, miscoverage: float) -> Tensor:
    """Return the ceil((n+1)(1-alpha))-th of each group's n ascending scores; 1 where that rank exceeds n."""
    groups, order = groups.sort(stable=True)
    counts = groups.bincount(minlength=num_groups)
    # In integers: a float product may land on the wrong side of one.
    allowed = Fraction(str(float(miscoverage)))
    sizes = counts.tolist()
    left_out = {size: (size + 1) * allowed.numerator // allowed.denominator for size in set(sizes)}
    last = counts.cumsum(0)
    # The rank is n + 1 - left_out, and exceeds n where none may be left out.
    places = last - torch.tensor([left_out[size] for size in sizes], device=scores.device)
    supported = places < last
    thresholds = scores.new_ones(num_groups)
    thresholds[supported] = scores[order[places[supported]]]
    return thresholds


def _scores_of_classes(probabilities: Tensor) -> Tensor:
    return 1 - probabilities.to(torch.promote_types(probabilities.dtype, torch.float32))


def _check_labels(labels: Tensor, *, num_samples: int, num_classes: int) -> None:
    """Refuse labels that are not `num_samples` integers in 0..K-1."""
    if labels.shape != (num_samples,) or labels.is_floating_point():
        raise InputError(
            expected=f"{num_samples} integer labels",
            got=f"{labels.dtype} {tuple(labels.shape)}",
            hint="pass one class per sample",
        )
    if num_samples and (labels.min() < 0 or labels.max() >= num_classes):
        raise InputError(
            expected=f"labels in 0 to {num_classes - 1}",
            got=f"{labels.min().item()} to {labels.max().item()}",
            hint="number the classes as the probabilities do",
        )


def _check_scores(scores: Tensor, miscoverage: float) -> None:
    if not scores.is_floating_point() or not ((scores >= -_ROUNDING) & (scores <= 1)).all():
        raise InputError(
            expected="scores 1 - p in [0, 1]",
            got=f"{scores.dtype} in {scores.min().item():g} to {scores.max().item():g}",
            hint="pass probabilities to conformal_scores, not logits",
        )
    if not 0 < miscoverage < 1:
        raise InputError(expected="miscoverage between 0 and 1", got=miscoverage, hint="95 % coverage is 0.05")


def _check_exits(scores_at_exits: Tensor, exits: Tensor) -> None:
    if scores_at_exits.ndim != 2 or scores_at_exits.numel() == 0 or exits.shape != scores_at_exits.shape[:1]:
        raise InputError(
            expected="scores 'N x L' of at least one sample and exits 'N'",
            got=f"{tuple(scores_at_exits.shape)} and {tuple(exits.shape)}",
            hint="check the calibrate split",
        )
    last = scores_at_exits.shape[1] - 1
    if exits.is_floating_point() or exits.min() < 0 or exits.max() > last:
        raise InputError(
            expected=f"exits in 0 to {last}",
            got=f"{exits.dtype} in {exits.min().item()} to {exits.max().item()}",
            hint="count exits from 0, among the active ones",
        )
