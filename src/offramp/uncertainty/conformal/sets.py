r"""How badly a class conforms, and the sets of those that do."""

import torch
from torch import Tensor

from offramp.errors import InputError

__all__ = ["check_labels", "conformal_scores", "prediction_set"]


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
    check_labels(labels, num_samples=len(scores), num_classes=scores.shape[-1])
    index = labels.long().view(-1, *[1] * (scores.ndim - 1)).expand(*scores.shape[:-1], 1)
    return scores.gather(-1, index).squeeze(-1)


def prediction_set(probabilities: Tensor, thresholds: Tensor) -> Tensor:
    r"""Classes that conform, $\{k : 1 - \hat p_k \le \tau\}$.

    Eq. 10 of [Regol2024], which writes $<$; with $\le$ the sample a threshold was taken from is inside, as the promise
    of coverage needs. Keep thresholds in the dtype of the scores they came from: rounded down, they lose that sample.

    Args:
        probabilities: `N x K`, of the exit where each sample left.
        thresholds: `N` thresholds, of the same exits: `conformal_thresholds(...)[exits]`; or `N x K`, where classes
            have their own: `class_thresholds(...)[exits]`.

    Returns:
        `N x K` booleans. A set may be empty.

    Raises:
        InputError: If there is not one threshold for each sample, or for each of its classes.

    Example:
        >>> prediction_set(torch.tensor([[0.7, 0.2, 0.1]]), torch.tensor([0.85]))
        tensor([[ True,  True, False]])
    """
    if probabilities.ndim != 2 or thresholds.shape not in (probabilities.shape[:1], probabilities.shape):
        raise InputError(
            f"expected probabilities 'N x K' and thresholds 'N' or 'N x K', got {tuple(probabilities.shape)} and "
            f"{tuple(thresholds.shape)}; index the thresholds by each sample's exit"
        )
    return _scores_of_classes(probabilities) <= (thresholds[:, None] if thresholds.ndim == 1 else thresholds)


def check_labels(labels: Tensor, *, num_samples: int, num_classes: int) -> None:
    """Refuse what are not the classes of so many samples.

    Args:
        labels: `N` classes, to be in 0..K-1.
        num_samples: N.
        num_classes: K.

    Raises:
        InputError: If they are others, or not as many.

    Example:
        >>> check_labels(torch.tensor([0, 1]), num_samples=2, num_classes=2)
    """
    if labels.shape != (num_samples,) or labels.is_floating_point():
        raise InputError(
            f"expected {num_samples} integer labels, got {labels.dtype} {tuple(labels.shape)}; pass one class a sample"
        )
    if num_samples and (labels.min() < 0 or labels.max() >= num_classes):
        raise InputError(
            f"expected labels in 0..{num_classes - 1}, got {labels.min().item()}..{labels.max().item()}; number the "
            "classes as the probabilities do"
        )


def _scores_of_classes(probabilities: Tensor) -> Tensor:
    return 1 - probabilities.to(torch.promote_types(probabilities.dtype, torch.float32))
