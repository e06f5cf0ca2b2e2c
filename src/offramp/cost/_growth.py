"""Growth of a cost with the size of the sample, from measurements at a few sizes."""

from collections.abc import Sequence
from itertools import combinations

import torch
from torch import Tensor

__all__ = ["POWERS", "fit_growth"]

POWERS = 3
"""Number of coefficients: of 1, size and size squared (attention is quadratic in the length of a text)."""


def fit_growth(sizes: Sequence[float], values: Tensor) -> Tensor:
    """Fit `a + b * size + c * size^2` by non-negative least squares.

    With two sizes c is 0, with one size b too. The non-negative fit equals the plain fit on the powers it does not set
    to 0, so all subsets of powers are tried.

    Args:
        sizes: S different sizes, above 0.
        values: `S x ...` values measured at them, not negative.

    Returns:
        `3 x ...` coefficients of 1, size and size squared.

    Example:
        >>> fit_growth([1, 2, 4], torch.tensor([[3.0], [5.0], [9.0]])).flatten()  # 1 + 2 size
        tensor([1., 2., 0.])
        >>> fit_growth([1, 2], torch.tensor([[3.0], [1.0]])).flatten()  # falling: the mean
        tensor([2., 0., 0.])
    """
    targets = values.double().reshape(len(sizes), -1)
    largest = max(sizes)
    shares = torch.tensor(sizes, dtype=torch.float64) / largest  # scaled to 1: squares of lengths are large
    columns = torch.stack([shares**power for power in range(POWERS)], dim=1)
    best = targets.new_zeros(POWERS, targets.shape[1])
    smallest_error = targets.square().sum(0)
    powers = range(min(len(sizes), POWERS))
    for count in range(1, len(powers) + 1):
        for subset in combinations(powers, count):
            solution = torch.linalg.lstsq(columns[:, subset], targets).solution
            error = (columns[:, subset] @ solution - targets).square().sum(0)
            # Of equally good fits the one with fewer powers stays, whatever the rounding.
            better = (solution >= 0).all(0) & (error < smallest_error - 1e-12 * targets.square().sum(0))
            tried = torch.zeros_like(best)
            tried[list(subset)] = solution
            best = torch.where(better, tried, best)
            smallest_error = torch.where(better, error, smallest_error)
    scale = torch.tensor([largest**power for power in range(POWERS)], dtype=torch.float64)
    return (best / scale[:, None]).view(POWERS, *values.shape[1:]).to(values.dtype)
