r"""Thresholds that the scores of the true classes rarely exceed: for all, for each exit, for each class."""

from fractions import Fraction
from typing import Literal, get_args

import torch
from torch import Tensor

from offramp.errors import InputError
from offramp.registry import unknown_name
from offramp.uncertainty.conformal.sets import check_labels
from offramp.uncertainty.conformal.sharing import pooled

__all__ = ["ConformalVariant", "class_thresholds", "conformal_thresholds"]

ConformalVariant = Literal["general", "pooled"]

# A softmax may round to a little over 1, and its score to a little under 0; logits passed by mistake go further.
_ROUNDING = 1e-5


def conformal_thresholds(
    variant: ConformalVariant, scores_at_exits: Tensor, exits: Tensor, *, miscoverage: float, minimum: int = 20
) -> Tensor:
    r"""Threshold of each exit, valid overall (`general`), or overall and at exits (`pooled`).

    * `general`: one threshold for all, from each sample's score where it left. Claims coverage over all samples
      together; a single exit may fall short.
    * `pooled`: each exit's threshold from the samples that left there; exits with fewer than `minimum` samples share a
      threshold of their own. Claims coverage overall, for each exit with a threshold of its own, and for the others
      together.

    A threshold is the $r$-th smallest of n scores, $r = \lceil (n+1)(1-\alpha) \rceil$: their quantile at level $r/n$,
    without interpolation. Coverage is then at least $1-\alpha$ and, if no scores tie, at most $1-\alpha+1/(n+1)$, on
    average over splits. [Regol2024] takes the plain $1-\alpha$ percentile, which falls short by up to $1/(n+1)$;
    `numpy.quantile(..., method="higher")` at the level above takes the next larger score, which is safe but not tight.
    Where that rank exceeds n (n too small for so high a coverage) no finite sample supports a threshold. It is then 1,
    the largest score there is: the set is all classes.

    `general` is one of the four variants in the paper's appendix "Conformal intervals"; the other three, which do not
    claim coverage overall, are in `lab/src/offramp_bench/conformal_variants.py`.

    Claims are averages over calibration splits, for exits chosen by a rule fixed beforehand. Sets are nested in the
    miscoverage; they are not nested from one operating point to another.

    Args:
        variant: Which of the two.
        scores_at_exits: `N x L` scores of the true class at every exit, from `conformal_scores`.
        exits: `N` exits where the samples left, 0-based.
        miscoverage: alpha, in (0, 1), read as the decimal it prints as: 0.29 of 100 is exactly 29.
        minimum: Fewest samples for a threshold of an exit's own; `pooled` only. 20 is the paper's, and
            enough for a miscoverage of .05; below that, 1/alpha - 1 are needed, or rare exits answer with all classes.

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
        >>> conformal_thresholds("pooled", scores, exits, miscoverage=0.4, minimum=1)
        tensor([0.3000, 0.6000])
    """
    alike = torch.zeros(len(exits), dtype=torch.long, device=exits.device)
    return _within_groups(variant, scores_at_exits, exits, alike, 1, miscoverage, minimum)[0]


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
    r"""Threshold of each class at each exit: the variant, within the samples of each class (Mondrian [Vovk2012]).

    Class k is in the set if $1 - \hat p_k \le \tau_{e,k}$, so a sample of class k is held to the scores of its own
    class. What the variant claims overall it then claims for each class. What it claims at an exit it claims for each
    class there: `pooled` where a class has at least `minimum` samples at the exit, and for the rest of the class
    together.

    A class with fewer than 1/alpha - 1 samples is in every set, so sets are of use only with some dozens of calibration
    samples per class.

    Args:
        variant: Which of the two, see `conformal_thresholds`.
        scores_at_exits: `N x L` scores of the true class at every exit, from `conformal_scores`.
        exits: `N` exits where the samples left, 0-based.
        labels: `N` true classes.
        num_classes: K.
        miscoverage: alpha, in (0, 1).
        minimum: Fewest samples of a class at an exit for a threshold of their own; `pooled` only.

    Returns:
        `L x K` thresholds, in the dtype of `scores_at_exits` (float32 for half precision).

    Raises:
        InputError: If there are no samples, shapes differ, or a value is out of range. A class never seen is no error.
        UnknownNameError: If there is no such variant.

    Example:
        >>> scores = torch.tensor([[0.1, 0.0], [0.3, 0.2], [0.9, 0.6], [0.8, 0.4]])
        >>> exits, labels = torch.tensor([0, 0, 1, 1]), torch.tensor([1, 0, 0, 1])
        >>> class_thresholds("general", scores, exits, labels, num_classes=3, miscoverage=0.4)
        tensor([[0.6000, 0.4000, 1.0000],
                [0.6000, 0.4000, 1.0000]])
    """
    check_labels(labels, num_samples=len(exits), num_classes=num_classes)
    found = _within_groups(variant, scores_at_exits, exits, labels.long(), num_classes, miscoverage, minimum)
    return found.T.contiguous()


def _within_groups(
    variant: ConformalVariant,
    scores_at_exits: Tensor,
    exits: Tensor,
    groups: Tensor,
    num_groups: int,
    miscoverage: float,
    minimum: int,
) -> Tensor:
    """The variant's thresholds `G x L`, each group's from its own samples."""
    _check_exits(scores_at_exits, exits)
    _check_scores(scores_at_exits, miscoverage)
    scores_at_exits = _full_precision(scores_at_exits)
    if variant not in get_args(ConformalVariant):
        raise unknown_name("conformal variant", variant, get_args(ConformalVariant))
    num_exits, exits = scores_at_exits.shape[1], exits.long()
    # Sorted once: what is picked from it stays in order.
    scores, order = scores_at_exits.gather(1, exits[:, None]).squeeze(1).sort()
    groups, exits = groups[order], exits[order]
    if variant == "general":
        general = _order_statistics(scores, groups, num_groups, miscoverage)
        return general[:, None].repeat(1, num_exits)
    cells = groups * num_exits + exits
    own = _order_statistics(scores, cells, num_groups * num_exits, miscoverage).view(num_groups, num_exits)
    counts = cells.bincount(minlength=num_groups * num_exits).view(num_groups, num_exits)
    sharing = pooled(counts, minimum)
    shared = sharing.sum(-1) > 1
    # Every sample once for each exit that it is shared with.
    rows, at = (sharing.transpose(1, 2)[groups, exits] & shared[groups]).nonzero(as_tuple=True)
    together = _order_statistics(scores[rows], groups[rows] * num_exits + at, num_groups * num_exits, miscoverage)
    return torch.where(shared, together.view(num_groups, num_exits), own)


def _order_statistics(scores: Tensor, groups: Tensor, num_groups: int, miscoverage: float) -> Tensor:
    """`G` thresholds: of each group's n ascending scores the ceil((n+1)(1-alpha))-th, 1 where that exceeds n."""
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


def _full_precision(scores: Tensor) -> Tensor:
    return scores.to(torch.promote_types(scores.dtype, torch.float32))


def _check_scores(scores: Tensor, miscoverage: float) -> None:
    if not scores.is_floating_point() or not ((scores >= -_ROUNDING) & (scores <= 1)).all():
        raise InputError(
            f"expected scores 1 - p in [0, 1], got {scores.dtype} in {scores.min().item():g}..{scores.max().item():g}; "
            "pass probabilities to conformal_scores, not logits"
        )
    if not 0 < miscoverage < 1:
        raise InputError(f"expected miscoverage between 0 and 1, got {miscoverage}; 95 % coverage is 0.05")


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
