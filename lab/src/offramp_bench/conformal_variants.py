"""Conformal thresholds of the paper's appendix that the library does not offer, as they do not claim overall coverage.

* `per_exit` (the paper's "IMs"): each exit's threshold from all samples' scores there, wherever they left. Ignores that
  the samples leaving at an exit are a selection, so it claims nothing, neither for an exit nor overall (only for the
  case that all samples leave there).
* `strict`: each exit's threshold from the samples that left there. Claims coverage for every exit that any calibration
  sample left at. At other exits the threshold is 0, as in the paper, so sets are empty unless a class has probability
  1; samples that leave there lack coverage overall. With fewer than 1/alpha - 1 samples the set is all classes.
* `gated` (the paper's choice): as `strict`, but `general` at exits with fewer than `minimum` samples. Claims coverage
  for each of the other exits, none where samples are few, and so only $(1-\\alpha)(1-q)$ overall, with q the share of
  samples leaving at such exits.
"""

from typing import Literal, cast, get_args

import torch
from torch import Tensor

from offramp.uncertainty._conformal import ConformalVariant, class_thresholds

__all__ = ["PaperVariant", "variant_class_thresholds", "variant_thresholds"]

PaperVariant = Literal["general", "per_exit", "strict", "gated", "pooled"]
"""Variants of the paper and of the library."""


def variant_thresholds(
    variant: PaperVariant, scores_at_exits: Tensor, exits: Tensor, *, miscoverage: float, minimum: int = 20
) -> Tensor:
    """Return thresholds `L` of each exit; `offramp.uncertainty.conformal_thresholds` returns those of its variants.

    Args:
        variant: The variant.
        scores_at_exits: `N x L` scores of the true class at every exit.
        exits: `N` exits where the samples left.
        miscoverage: alpha.
        minimum: Fewest samples for a threshold of an exit's own; `gated` and `pooled` only.
    """
    one_class = torch.zeros(len(exits), dtype=torch.long)
    return variant_class_thresholds(
        variant, scores_at_exits, exits, one_class, num_classes=1, miscoverage=miscoverage, minimum=minimum
    ).squeeze(1)


def variant_class_thresholds(
    variant: PaperVariant,
    scores_at_exits: Tensor,
    exits: Tensor,
    labels: Tensor,
    *,
    num_classes: int,
    miscoverage: float,
    minimum: int = 20,
) -> Tensor:
    """Return thresholds `L x K` of each class at each exit, by the variant within the samples of each class.

    Args:
        variant: The variant.
        scores_at_exits: `N x L` scores of the true class at every exit.
        exits: `N` exits where the samples left.
        labels: `N` true classes.
        num_classes: K.
        miscoverage: alpha.
        minimum: Fewest samples of a class at an exit for a threshold of their own; `gated` and `pooled` only.
    """

    def from_rows(rows: Tensor, left: Tensor) -> Tensor:
        return class_thresholds(
            "general", scores_at_exits[rows], left, labels[rows], num_classes=num_classes, miscoverage=miscoverage
        )

    if variant in get_args(ConformalVariant):
        return class_thresholds(
            cast(ConformalVariant, variant),
            scores_at_exits,
            exits,
            labels,
            num_classes=num_classes,
            miscoverage=miscoverage,
            minimum=minimum,
        )
    all_rows, num_exits = torch.arange(len(exits)), scores_at_exits.shape[1]
    if variant == "per_exit":
        return torch.stack([from_rows(all_rows, torch.full_like(exits, exit))[exit] for exit in range(num_exits)])
    # Where no sample of a class left there are no scores: the threshold is 0 for strict, the general one for gated.
    general = from_rows(all_rows, exits)
    fallback, fewest = (torch.zeros_like(general), 1) if variant == "strict" else (general, max(1, minimum))
    thresholds = fallback.clone()
    for exit in range(num_exits):
        here = (exits == exit).nonzero().squeeze(1)
        if len(here):
            enough = labels[here].bincount(minlength=num_classes) >= fewest
            thresholds[exit] = torch.where(enough, from_rows(here, exits[here])[exit], fallback[exit])
    return thresholds
