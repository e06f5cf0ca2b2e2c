"""Thresholds at which given shares of the tune samples leave."""

import torch
from torch import Tensor

__all__ = ["quota_thresholds"]

NEVER = 2.0
"""A threshold that no score reaches."""


def quota_thresholds(scores: Tensor, shares: Tensor) -> Tensor:
    r"""Thresholds that fill each early exit's quota with the best scores among those who have not left.

    Exit by exit, those who are left are sorted by their scores there; the threshold is the
    $\lfloor N q_l \rfloor$-th largest, or the smallest where fewer are left. Those of the same score leave or stay
    together, whichever is nearer to the quota. The last exit takes the rest.

    Args:
        scores: `N x E` scores at the early exits, up to 1.
        shares: `E` shares $q_l$ of all N samples that are to leave at each.

    Returns:
        `E` thresholds; 2, which nobody reaches, where nobody is to leave or nobody is left.

    Example:
        >>> scores = torch.tensor([[0.9, 0.9], [0.8, 0.3], [0.2, 0.6], [0.1, 0.7]])
        >>> quota_thresholds(scores, torch.tensor([0.5, 0.25]))
        tensor([0.8000, 0.7000])
    """
    thresholds = scores.new_full(shares.shape, NEVER)
    waiting = torch.ones(len(scores), dtype=torch.bool)
    # A thousandth of a sample more: 100 times .29 are 29, not 28.999999.
    for exit, quota in enumerate((len(scores) * shares.double() + 1e-3).long().tolist()):
        left = scores[waiting, exit].sort(descending=True).values
        if quota and len(left):
            threshold = left[min(quota, len(left)) - 1]
            surer, reaching = int((left > threshold).sum()), int((left >= threshold).sum())
            if reaching - quota > quota - surer:
                threshold = left[surer - 1] if surer else scores.new_tensor(NEVER)
            thresholds[exit] = threshold
            waiting &= scores[:, exit] < threshold
    return thresholds
