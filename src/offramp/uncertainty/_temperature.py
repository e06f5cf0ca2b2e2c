r"""Temperature scaling: one temperature per exit that calibrates its confidence."""

import math
from collections.abc import Callable, Iterable
from typing import NamedTuple

import torch
from torch import Tensor

from offramp.errors import InputError

__all__ = ["fit_temperatures", "floor_temperatures", "scale_logits"]

LOWEST = 0.2
"""Lower than any exit of the benchmarks needs; reached where an exit makes no error on a small tune split."""

# Temperatures stay in [1/100, 100]. Logits that separate the classes drive T to 0, uninformative ones to infinity; a
# factor of 100 is beyond any miscalibration, and 100 times a usual logit is far from overflow.
_LARGEST = 100.0
_TOLERANCE = 1e-6
# 4 to 9 passes are usual. Bisection alone, from a bracket of ln 100, takes 22; a Newton step that is not half the step
# before it is bisected, so 64 is never reached on a loss that can be evaluated to the tolerance.
_MAX_PASSES = 64


def fit_temperatures(batches: Callable[[], Iterable[tuple[Tensor, Tensor]]]) -> Tensor:
    r"""Fit the temperature of each exit that minimises the cross-entropy of its scaled logits.

    $$T^l = \arg\min_T \frac1N \sum_i -\ln \mathrm{softmax}(z^l_i / T)_{y_i}$$

    Temperature scaling [Guo2017], which [Regol2024] applies before every uncertainty metric. With $\beta = 1/T$ the
    loss is convex and, writing $r_k = z_k - z_y$ and $p$ for the scaled softmax, has the mean over samples of
    $\mathrm{E}_p[r]$ as its slope and of $\mathrm{Var}_p[r]$ as its curvature. Each temperature is thus the root of an
    increasing function of one variable, found by Newton's method in $\ln \beta$, with bisection whenever a step leaves
    the bracket or fails to halve. Unlike LBFGS with a line search, it streams: one pass over the data serves all W x L
    problems, and no data is kept between chunks.

    Temperatures are limited to [1/100, 100]. Where the temperature has no effect (all logits of a sample equal), it
    is 1.

    Args:
        batches: Called once per pass; each call yields the same data, in chunks of logits `... x N x L x K`, with
            leading axes such as W, and labels `N`. Chunks are computed in float64; one should fit in memory four times.

    Returns:
        `... x L` temperatures, in the logits' dtype (float32 for half precision).

    Raises:
        InputError: If there are no samples, logits are not finite, labels are not classes, or two calls of `batches`
            yield different data.

    Example:
        Three of four answers are right, so sigmoid(2 / T) must be 3/4:

        >>> logits, labels = torch.tensor([2.0, 0.0]).expand(4, 1, 2), torch.tensor([0, 0, 0, 1])
        >>> fit_temperatures(lambda: [(logits, labels)])
        tensor([1.8205])
    """
    bound = math.log(_LARGEST)
    probes = torch.tensor([[1 / _LARGEST], [1.0], [_LARGEST]], dtype=torch.float64)
    first_pass = _derivatives(batches, probes)
    at_smallest, slope, at_largest = first_pass.slope.unbind()
    curvature = first_pass.curvature[1]

    # A slope that keeps its sign up to a bound has its root there or beyond; 0 at both bounds, it is 0 throughout.
    coldest, hottest = at_largest <= 0, at_smallest >= 0
    log_inverse = (coldest.double() - hottest.double()) * bound
    settled = coldest | hottest
    last_step = torch.full_like(slope, bound)
    lower, upper = torch.where(slope < 0, 0.0, -last_step), torch.where(slope < 0, last_step, 0.0)

    for _ in range(_MAX_PASSES):
        newton = -slope / (log_inverse.exp() * curvature)
        target = log_inverse + newton
        # A NaN (no curvature left in float64) fails every comparison, so it is bisected too.
        trusted = (target >= lower) & (target <= upper) & (newton.abs() <= last_step / 2)
        step = torch.where(trusted, newton, (lower + upper) / 2 - log_inverse)
        step = torch.where(settled, 0.0, step)
        log_inverse = log_inverse + step
        # A settled problem stays put: its bracket may still be wide on one side, and noise must not send it there.
        settled = settled | (step.abs() < _TOLERANCE)
        if settled.all():
            break
        this_pass = _derivatives(batches, log_inverse.exp()[None])
        if this_pass.num_samples != first_pass.num_samples:
            raise InputError(
                expected=f"batches() to yield the same {first_pass.num_samples} samples at every call",
                got=f"{this_pass.num_samples} at a later one",
                hint="pass a function that starts over, not one that returns the same iterator",
            )
        slope, curvature = this_pass.slope[0], this_pass.curvature[0]
        lower, upper = torch.where(slope < 0, log_inverse, lower), torch.where(slope < 0, upper, log_inverse)
        last_step = step.abs()
    return log_inverse.neg().exp().clamp(1 / _LARGEST, _LARGEST).to(first_pass.dtype)


def scale_logits(logits: Tensor, temperatures: Tensor) -> Tensor:
    """Divide logits by their exit's temperature.

    For probabilities only: gate evidence is computed from raw logits, as in training.

    Args:
        logits: `... x N x L x K` scores.
        temperatures: `... x L` temperatures, above 0.

    Returns:
        `... x N x L x K` scaled logits, in the logits' dtype (float32 for half precision).

    Raises:
        InputError: If there is not one positive temperature for each exit.

    Example:
        >>> scale_logits(torch.tensor([[[1.0, 2.0], [3.0, 4.0]]]), torch.tensor([1.0, 0.5]))
        tensor([[[1., 2.],
                 [6., 8.]]])
    """
    if logits.ndim < 3 or temperatures.ndim < 1 or logits.shape[-2] != temperatures.shape[-1]:
        raise InputError(
            expected="logits '... x N x L x K' and temperatures '... x L'",
            got=f"{tuple(logits.shape)} and {tuple(temperatures.shape)}",
            hint="pass one temperature for each exit",
        )
    if not (temperatures > 0).all():
        raise InputError(
            expected="temperatures above 0",
            got=f"{temperatures.min().item():g}",
            hint="fit them with fit_temperatures",
        )
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    return logits / temperatures.to(logits)[..., None, :, None]


class _Derivatives(NamedTuple):
    """First and second derivative of the mean cross-entropy in the inverse temperature, at P points."""

    slope: Tensor  # P x ... x L, float64
    curvature: Tensor  # P x ... x L, float64
    num_samples: int
    dtype: torch.dtype


@torch.no_grad()
def _derivatives(batches: Callable[[], Iterable[tuple[Tensor, Tensor]]], inverse: Tensor) -> _Derivatives:
    """Run one pass over the data; `inverse` is `P x ... x L`, or broadcasts to it."""
    slope: Tensor | None = None
    curvature: Tensor | None = None
    num_samples = 0
    shape: tuple[int, ...] = ()
    dtype = torch.float32
    for logits, labels in batches():
        _check_chunk(logits, labels)
        chunk_shape = (*logits.shape[:-3], *logits.shape[-2:])
        if slope is None or curvature is None:
            shape, dtype = chunk_shape, torch.promote_types(logits.dtype, torch.float32)
            size = (len(inverse), *shape[:-1])
            slope = torch.zeros(size, dtype=torch.float64, device=logits.device)
            curvature = torch.zeros_like(slope)
        if chunk_shape != shape:
            raise InputError(
                expected="every chunk's logits to be alike but for N",
                got=f"'... x L x K' of {shape} and then of {chunk_shape}",
                hint="yield all exits and cost weights in every chunk",
            )
        num_samples += len(labels)
        logits = logits.double()
        index = labels.long()[:, None, None].expand(*logits.shape[:-1], 1)
        relative = logits - logits.gather(-1, index)
        for point, at in enumerate(inverse.to(logits.device)):
            weighted = (relative * at[..., None, :, None]).softmax(-1).mul_(relative)
            mean = weighted.sum(-1)
            variance = weighted.mul_(relative).sum(-1) - mean.square()
            slope[point] += mean.sum(-2)
            curvature[point] += variance.sum(-2)
    if slope is None or curvature is None or num_samples == 0:
        raise InputError(
            expected="at least one labelled sample to fit temperatures on", got="none", hint="check the split"
        )
    if not slope.isfinite().all():  # any NaN or infinite logit ends up in the sum
        raise InputError(
            expected="finite logits",
            got="NaN or infinity",
            hint="look for a diverged classifier or a half-precision overflow",
        )
    return _Derivatives(slope / num_samples, curvature / num_samples, num_samples, dtype)


def _check_chunk(logits: Tensor, labels: Tensor) -> None:
    if logits.ndim < 3 or labels.shape != logits.shape[-3:-2]:
        raise InputError(
            expected="logits '... x N x L x K' and labels 'N'",
            got=f"{tuple(logits.shape)} and {tuple(labels.shape)}",
            hint="put samples third from last",
        )
    if not logits.is_floating_point() or labels.is_floating_point():
        raise InputError(
            expected="floating-point logits and integer labels",
            got=f"{logits.dtype} and {labels.dtype}",
            hint="pass logits first, then labels",
        )
    if len(labels) and (labels.min() < 0 or labels.max() >= logits.shape[-1]):
        raise InputError(
            expected=f"labels in 0 to {logits.shape[-1] - 1}",
            got=f"{labels.min().item()} to {labels.max().item()}",
            hint="number the classes as the logits do",
        )


def floor_temperatures(temperatures: Tensor) -> Tensor:
    """Raise temperatures of any shape to at least 0.2.

    An exit without errors on a small split would get a temperature near 0, and certainty it has not earned.
    """
    return temperatures.clamp_min(LOWEST)
