"""Representations that a stage leaves behind, and the poolings that turn them into features."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cache
from math import isqrt, log2
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from offramp._registry import Registry
from offramp.errors import InputError

__all__ = [
    "POOLINGS",
    "AutoPooling",
    "FirstPooling",
    "GridPooling",
    "MeanPooling",
    "Nodes",
    "Pooling",
    "Representation",
    "Tokens",
]


@dataclass(frozen=True)
class Tokens:
    """One sequence of vectors per sample: patches of an image, or words."""

    values: Tensor
    """`N x T x C`."""
    mask: Tensor | None = None
    """`N x T`, true for real tokens; None if no sample is padded."""
    prefix: int = 0
    """Number of tokens before the patches: class, distillation, registers."""


@dataclass(frozen=True)
class Nodes:
    """The nodes of all graphs of a batch."""

    values: Tensor
    """`M x C`."""
    graph: Tensor
    """`M` indices of the graph each node belongs to."""
    count: int
    """N: number of graphs, including those without nodes."""


Representation = Tensor | Tokens | Nodes
"""A tensor holds one vector per sample, `N x C`, or one map, `N x C x H x W` (`N x C x T` in one dimension)."""


class Pooling(ABC):
    """A map from the representation after a stage to features `N x D`."""

    name: str

    @abstractmethod
    def __call__(self, representation: Representation) -> Tensor:
        """Pool a representation of N samples into `N x D` features."""

    def mul_adds(self, representation: Representation) -> int:
        """Count the operations of pooling all samples: one addition per number of a map, token or node."""
        values = representation if isinstance(representation, Tensor) else representation.values
        return values.numel() if not isinstance(representation, Tensor) or values.ndim > 2 else 0


class MeanPooling(Pooling):
    """The mean over all positions, tokens or nodes: the paper's choice for convolutional networks.

    Example:
        >>> MeanPooling()(torch.ones(2, 16, 8, 8)).shape
        torch.Size([2, 16])
    """

    name = "mean"

    def __call__(self, representation: Representation) -> Tensor:
        """Average everything but samples and channels."""
        match representation:
            case Tokens(values, mask):
                return values.mean(1) if mask is None else _masked_mean(values, mask)
            case Nodes():
                return _sums(representation) / _node_counts(representation)
            case _ if representation.ndim > 2:
                return representation.flatten(2).mean(-1)
            case _:  # a copy, as the next stage may work in place
                return representation.clone()


class FirstPooling(Pooling):
    """The first token: the paper's choice (the class token) for transformers.

    Example:
        >>> FirstPooling()(Tokens(torch.ones(2, 5, 16))).shape
        torch.Size([2, 16])
    """

    name = "first"

    def __call__(self, representation: Representation) -> Tensor:
        """Take the first token."""
        if not isinstance(representation, Tokens):
            raise InputError(
                "pooling 'first'", expected="tokens", got=_describe(representation), hint="use pooling 'auto'"
            )
        return representation.values[:, 0].clone()

    def mul_adds(self, representation: Representation) -> int:  # noqa: ARG002 (others read it)
        """Return 0: nothing is computed."""
        return 0


class GridPooling(Pooling):
    """Means over the cells of a square grid, the largest within a number of features.

    Early in a convolutional network, exits that see a grid are about ten points more accurate than exits that see one
    mean.

    Args:
        side: Maximum number of cells along each axis.
        largest: Maximum number of features; a single cell may exceed it.

    Example:
        >>> GridPooling()(torch.ones(2, 16, 32, 32)).shape
        torch.Size([2, 256])
        >>> GridPooling()(torch.ones(2, 512, 7, 7)).shape  # 2 x 2 cells: 3 x 3 would be 4,608 numbers
        torch.Size([2, 2048])
    """

    name = "grid"

    def __init__(self, *, side: int = 4, largest: int = 2048) -> None:
        self.side = side
        self.largest = largest

    def __call__(self, representation: Representation) -> Tensor:
        """Average inside each cell, channels outermost."""
        if not isinstance(representation, Tensor) or representation.ndim != 4:
            raise InputError(
                "pooling 'grid'",
                expected="maps N x C x H x W",
                got=_describe(representation),
                hint="use pooling 'auto'",
            )
        height, width = representation.shape[2:]
        side = self.side_of(representation)
        if torch.compiler.is_compiling():  # exporters recognise this operation
            return F.adaptive_avg_pool2d(representation, side).flatten(1)
        # A matrix product: torch's own pooling is up to seven times slower on maps with channels first.
        maps, double = representation.flatten(2), representation.dtype == torch.float64
        cells = torch.from_numpy(_cells(height, width, side, double))
        if maps.dtype in (torch.float32, torch.float64):
            return (maps @ cells.to(maps)).flatten(1)
        # Sums, then means: half precision rounds 1/49. Scaled, so that sums do not overflow.
        scale = 2.0 ** -round(log2(height * width / side**2))
        means = (maps @ ((cells > 0) * scale).to(maps)).float() * (cells.amax(0) / scale).to(maps.device)
        return means.to(maps.dtype).flatten(1)

    def side_of(self, maps: Tensor) -> int:
        """Return the number of cells along each axis for `N x C x H x W` maps."""
        channels, height, width = maps.shape[1:]
        side = min(self.side, height, width)
        while side > 1 and channels * side * side > self.largest:
            side -= 1
        return side


class AutoPooling(Pooling):
    """Means, chosen by the kind of representation.

    Maps: a grid of means. Patches: the tokens before them, their mean and, if they form a square, a grid. Words: mean,
    maximum and first token. Nodes of a graph: mean, maximum and sum.

    Args:
        largest: Maximum number of features of a grid.

    Example:
        >>> AutoPooling()(Tokens(torch.ones(2, 7, 16), mask=torch.ones(2, 7, dtype=torch.bool))).shape
        torch.Size([2, 48])
        >>> AutoPooling()(Tokens(torch.ones(2, 17, 16), prefix=1)).shape  # class token, mean, 4 x 4 cells
        torch.Size([2, 288])
    """

    name = "auto"

    def __init__(self, *, largest: int = 2048) -> None:
        self._mean, self._grid = MeanPooling(), GridPooling(largest=largest)

    def __call__(self, representation: Representation) -> Tensor:
        """Pool by the kind of representation."""
        match representation:
            case Tokens(values, Tensor() as mask):
                real = mask.bool()
                if _needs_no_mask(real):
                    return torch.cat([values.mean(1), values.amax(1), values[:, 0]], dim=1)
                return torch.cat([*_masked_mean_and_max(values, real), values[:, 0]], dim=1)
            case Tokens(values, _, prefix):
                patches = values[:, prefix:]
                side = isqrt(patches.shape[1])
                parts = [values[:, :prefix].flatten(1), patches.mean(1)]
                if side > 1 and side * side == patches.shape[1]:
                    parts.append(self._grid(patches.mT.reshape(values.shape[0], values.shape[2], side, side)))
                return torch.cat(parts, dim=1)
            case Nodes(values, graph, count):
                sums = _sums(representation)
                index = graph[:, None].expand_as(values)
                largest = values.new_zeros(count, values.shape[1])
                largest = largest.scatter_reduce(0, index, values, "amax", include_self=False)
                return torch.cat([sums / _node_counts(representation), largest, sums], dim=1)
            case _ if representation.ndim == 4:
                return self._grid(representation)
            case _:
                return self._mean(representation)

    def mul_adds(self, representation: Representation) -> int:
        """Count the operations: tokens and nodes are read twice, for the mean and for the grid or maximum."""
        once = super().mul_adds(representation)
        return once if isinstance(representation, Tensor) else 2 * once


@cache
def _cells(height: int, width: int, side: int, double: bool) -> npt.NDArray[np.floating[Any]]:
    """Weights `HW x side * side` whose product with maps is the mean over each cell of `adaptive_avg_pool2d`.

    An array, not a tensor: a cached tensor would keep the inference mode it was made in.
    """
    rows, columns = (np.stack([_cell_weights(size, cell, side) for cell in range(side)], 1) for size in (height, width))
    weights: npt.NDArray[np.float64] = np.einsum("ha,wb->hwab", rows, columns)
    return weights.reshape(height * width, side * side).astype(np.float64 if double else np.float32)


def _cell_weights(size: int, cell: int, cells: int) -> npt.NDArray[np.float64]:
    """Weights of `size` positions in the mean over one of `cells` cells along an axis."""
    start, stop = cell * size // cells, -(-(cell + 1) * size // cells)
    weights = np.zeros(size)
    weights[start:stop] = 1 / (stop - start)
    return weights


def _needs_no_mask(real: Tensor) -> bool:
    """True if all tokens are known to be real; a single text has no padding."""
    return _is_readable(real) and real.numel() > 0 and bool(real.all())


def _is_readable(tensor: Tensor) -> bool:
    """True if reading values needs no device synchronisation and no compiler is tracing."""
    return not torch.compiler.is_compiling() and tensor.device.type == "cpu"


def _masked_mean_and_max(values: Tensor, real: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and maximum of `N x T x D` values over the real tokens; zeros for a sample without any."""
    # The lowest number, not minus infinity: a sample without tokens must stay finite after pooling.
    lowest = torch.finfo(values.dtype).min
    empty = ~real.any(1, keepdim=True)
    if _is_readable(real) and values.dtype in (torch.float32, torch.float64, torch.bfloat16):
        # One minimum and one product: more than twice as fast as filling by a mask twice.
        bound = values.new_full(real.shape, torch.inf).masked_fill_(~real, lowest)
        bounded = torch.minimum(values, bound[..., None])
        mean = torch.bmm(real.to(values.dtype)[:, None], bounded).squeeze(1) / real.sum(1, keepdim=True).clamp_min(1)
        if not mean.isnan().any():  # NaN in padding passes the minimum
            return mean.to(values.dtype), bounded.amax(1).masked_fill(empty, 0)
    largest = values.masked_fill(~real[..., None], lowest).amax(1).masked_fill(empty, 0)
    return _masked_mean(values, real), largest


def _masked_mean(values: Tensor, mask: Tensor) -> Tensor:
    real = mask.bool()[..., None]
    # Filled, not multiplied: padding may hold NaN. In single precision at least: the sum of a long text overflows half
    # precision.
    wide = torch.promote_types(values.dtype, torch.float32)
    total = values.masked_fill(~real, 0).sum(1, dtype=wide)
    return (total / real.sum(1).clamp_min(1)).to(values.dtype)


def _sums(nodes: Nodes) -> Tensor:
    # In single precision at least: a sum over many nodes overflows half precision.
    values = nodes.values.to(torch.promote_types(nodes.values.dtype, torch.float32))
    return values.new_zeros(nodes.count, values.shape[1]).index_add(0, nodes.graph, values)


def _node_counts(nodes: Nodes) -> Tensor:
    """`N x 1` nodes per graph, at least 1, so that an empty graph has features 0."""
    return torch.bincount(nodes.graph, minlength=nodes.count).clamp_min(1)[:, None]


def _describe(representation: Representation) -> str:
    if isinstance(representation, Tensor):
        return f"shape {tuple(representation.shape)}"
    return f"{type(representation).__name__.lower()} of shape {tuple(representation.values.shape)}"


POOLINGS: Registry[Pooling] = Registry("pooling")
"""The poolings, by name."""
for _pooling in (MeanPooling(), FirstPooling(), GridPooling(), AutoPooling()):
    POOLINGS.add(_pooling.name, _pooling)
