"""How a cost that was measured at a few sizes grows with the size."""

from collections.abc import Sequence
from itertools import combinations

import torch
from torch import Tensor

__all__ = ["POWERS", "growth"]

POWERS = 3
"""Coefficients of 1, size and size squared: attention spends the square of a text's length."""


def growth(sizes: Sequence[float], values: Tensor) -> Tensor:
    """Fit values by what a sample costs at least, a word and a pair of words: least squares, nothing below zero.

    The square is fitted from three sizes on, the slope from two on. The best fit without negative coefficients is the
    plain fit on the powers it does not set to zero, so all choices of powers are tried.

    Args:
        sizes: S different sizes, above 0.
        values: `S x ...` values measured at them, not negative.

    Returns:
        `3 x ...` coefficients of 1, size and size squared.

    Example:
        >>> growth([1, 2, 4], torch.tensor([[3.0], [5.0], [9.0]])).flatten()  # 1 + 2 size
        tensor([1., 2., 0.])
        >>> growth([1, 2], torch.tensor([[3.0], [1.0]])).flatten()  # falling: the mean
        tensor([2., 0., 0.])
    """
    wanted = values.double().reshape(len(sizes), -1)
    largest = max(sizes)
    shares = torch.tensor(sizes, dtype=torch.float64) / largest  # as numbers up to 1: squares of lengths are large
    columns = torch.stack([shares**power for power in range(POWERS)], dim=1)
    best = wanted.new_zeros(POWERS, wanted.shape[1])
    least = wanted.square().sum(0)
    powers = range(min(len(sizes), POWERS))
    for count in range(1, len(powers) + 1):
        for chosen in combinations(powers, count):
            solved = torch.linalg.lstsq(columns[:, chosen], wanted).solution
            missed = (columns[:, chosen] @ solved - wanted).square().sum(0)
            # Of fits that are as good the one with fewer powers stays, whatever rounding says.
            better = (solved >= 0).all(0) & (missed < least - 1e-12 * wanted.square().sum(0))
            tried = torch.zeros_like(best)
            tried[list(chosen)] = solved
            best = torch.where(better, tried, best)
            least = torch.where(better, missed, least)
    scale = torch.tensor([largest**power for power in range(POWERS)], dtype=torch.float64)
    return (best / scale[:, None]).view(POWERS, *values.shape[1:]).to(values.dtype)
