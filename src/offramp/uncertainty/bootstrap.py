r"""How far a ratio of totals over the test set could have fallen elsewhere: percentile bootstrap over samples.

The intervals speak of the test samples alone. They say nothing about another training run, another seed or another
choice of operating point, which need runs of their own.
"""

import math

import torch
from torch import Tensor

from offramp.errors import InputError

__all__ = ["bootstrap_ratio_interval"]

# Entries of the weight matrix held at a time: 8 MB of weights and 8 MB of indices, whatever N and the draws.
_CHUNK = 2**20


def bootstrap_ratio_interval(
    numerator: Tensor, denominator: Tensor, *, confidence: float = 0.95, draws: int = 1000, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    r"""Percentile interval of a ratio of totals, resampling samples.

    $$R_s = \sum_i a_{is} \Big/ \sum_i b_{is}$$

    For relative cost: what was spent over what the full network would have spent. Both totals are taken over the same
    resampled samples, so a sample that is dear for both moves the ratio little. It is the ratio of the means, not the
    mean of the samples' ratios.

    Args:
        numerator: `N x S`, one row for each test sample.
        denominator: `N`, shared by all columns, or `N x S`; above 0.
        confidence: Share of the draws the interval holds.
        draws: Resampled test sets.
        generator: Source of the resampling.

    Returns:
        Lower and upper ends, `S` each, in the dtype of `numerator` (float32 for half precision, integers and booleans).

    Raises:
        InputError: If there are no rows, shapes differ, values are not finite, a denominator is not above 0, or an
            option is out of range.

    Example:
        >>> spent, full = torch.tensor([[1.0], [2.0], [4.0]]), torch.tensor([2.0, 4.0, 8.0])
        >>> bootstrap_ratio_interval(spent, full, generator=torch.Generator().manual_seed(0))
        (tensor([0.5000]), tensor([0.5000]))
    """
    _check_options(confidence, draws)
    above = _checked_rows(numerator, "numerator")
    below = _checked_rows(denominator[:, None] if denominator.ndim == 1 else denominator, "denominator")
    if len(below) != len(above) or below.shape[1] not in (1, above.shape[1]):
        raise InputError(
            f"expected a denominator of {len(above)} or {tuple(above.shape)} for a numerator of {tuple(above.shape)}, "
            f"got {tuple(denominator.shape)}; pass one value for each sample"
        )
    if not (below > 0).all():
        raise InputError(
            f"expected denominators above 0, got {below.min().item():g}; pass the full network's cost of each sample"
        )
    sums = _resampled_sums(torch.cat([above, below], dim=1), draws, generator)
    ratios = sums[:, : above.shape[1]] / sums[:, above.shape[1] :]
    return _ends(ratios, confidence, numerator.dtype)


def _resampled_sums(rows: Tensor, draws: int, generator: torch.Generator) -> Tensor:
    """Column sums of `draws` resampled sets of rows, `draws x S`, as products with how often each row was drawn."""
    num_rows = len(rows)
    at_once = max(1, _CHUNK // num_rows)
    sums = []
    for start in range(0, draws, at_once):
        size = (min(at_once, draws - start), num_rows)
        drawn = torch.randint(num_rows, size, device=generator.device, generator=generator).to(rows.device)
        times = torch.zeros(size, dtype=rows.dtype, device=rows.device)
        times.scatter_add_(1, drawn, torch.ones_like(times))
        sums.append(times @ rows)
    return torch.cat(sums)


def _ends(values: Tensor, confidence: float, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Quantiles of the draws, linear between neighbours; torch.quantile would refuse more than 2^24 values."""
    ordered = values.sort(0).values

    def quantile(level: float) -> Tensor:
        position = level * (len(ordered) - 1)
        below = math.floor(position)
        above = min(below + 1, len(ordered) - 1)
        return ordered[below].lerp(ordered[above], position - below).to(torch.promote_types(dtype, torch.float32))

    return quantile((1 - confidence) / 2), quantile((1 + confidence) / 2)


def _checked_rows(rows: Tensor, name: str) -> Tensor:
    if rows.ndim != 2 or rows.numel() == 0:
        raise InputError(
            f"expected {name} 'N x S' with at least one row and column, got {tuple(rows.shape)}; use x[:, None] for "
            "one statistic"
        )
    rows = rows.double()
    if not rows.isfinite().all():
        raise InputError(f"expected finite {name}, got NaN or infinity; look for a sample without an answer")
    return rows


def _check_options(confidence: float, draws: int) -> None:
    if not 0 < confidence < 1:
        raise InputError(f"expected confidence between 0 and 1, got {confidence}; 95 % is 0.95")
    if draws < 1:
        raise InputError(f"expected draws of at least 1, got {draws}; leave it at 1000 when in doubt")
