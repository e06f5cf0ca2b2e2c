r"""Which exits share a threshold, so that each threshold has enough samples behind it."""

import torch
from torch import Tensor

__all__ = ["pooled"]


def pooled(counts: Tensor, minimum: int) -> Tensor:
    r"""Rare exits share a threshold among themselves, the others have their own.

    Rare are exits with fewer than `minimum` samples. Where they have fewer than that even together, the least used of
    the other exits joins them, and so on.

    The sample to be predicted counts too. Take it in with the n calibration samples, and let exits be rare, and pooled,
    by the counts of all n + 1: a rule that does not know which of them is to be predicted. Given the n + 1 samples in
    no order, the pools are fixed, and each of a pool's m + 1 samples is equally likely to be the one; so its score is
    among their $\lceil (m+1)(1-\alpha) \rceil$ smallest with probability $1-\alpha$ or more, in every pool and hence
    overall. Only the exit of the sample to be predicted is needed for this, and that is known when its set is made: for
    each exit it may leave at, one is added to that exit's count, and the pool found. (Hence an exit with just `minimum`
    samples has a threshold of its own and lends its samples to the rare ones all the same.)

    Args:
        counts: `G x L` calibration samples of each group that left at each exit.
        minimum: Fewest samples for a threshold of an exit's own. With 0 every exit has its own.

    Returns:
        `G x L x L` booleans: for each exit (second axis), the exits whose samples its threshold comes from.

    Example:
        >>> pooled(torch.tensor([[15, 300, 8, 40]]), 20)[0].int()
        tensor([[1, 0, 1, 0],
                [0, 1, 0, 0],
                [1, 0, 1, 0],
                [0, 0, 0, 1]], dtype=torch.int32)
    """
    own = torch.eye(counts.shape[1], dtype=torch.bool, device=counts.device)
    everybody = counts[:, None] + own.long()  # G x L x L: the counts with one more sample at each exit
    fewest = max(minimum, 0) + 1  # of calibration samples and the one to be predicted
    ascending, order = everybody.sort(dim=-1, stable=True)
    before = ascending.cumsum(-1) - ascending
    # Rare exits come first; then others, for as long as the pool has somebody in it, and too few.
    taken = (ascending < fewest) | ((before > 0) & (before < fewest))
    pool = torch.zeros_like(taken).scatter(-1, order, taken)
    lonely = ~pool.diagonal(dim1=-2, dim2=-1)
    return torch.where(lonely[..., None], own, pool)
