"""From what a stage leaves behind to the vector an exit sees."""

from abc import ABC, abstractmethod
from functools import cache
from math import isqrt, log2
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from offramp.backbone.representation import Nodes, Representation, Tokens
from offramp.errors import InputError
from offramp.registry import Registry

__all__ = ["POOLINGS", "AutoPooling", "FirstPooling", "GridPooling", "MeanPooling", "Pooling"]


class Pooling(ABC):
    """Turns what a stage leaves behind into features `N x D`."""

    name: str

    @abstractmethod
    def __call__(self, representation: Representation) -> Tensor:
        """Pool a representation of N samples into `N x D` features."""

    def mul_adds(self, representation: Representation) -> int:
        """Operations for the samples of a representation: every number of a map, token or node is added once."""
        values = representation if isinstance(representation, Tensor) else representation.values
        return values.numel() if not isinstance(representation, Tensor) or values.ndim > 2 else 0


class MeanPooling(Pooling):
    """The mean over all positions, tokens or nodes: what the paper's recipe gives a convolutional network.

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
            case _:  # a copy where there is nothing to average: features outlive a stage that may work in place
                return representation.clone()


class FirstPooling(Pooling):
    """The first token: the class token of the paper's transformers.

    Example:
        >>> FirstPooling()(Tokens(torch.ones(2, 5, 16))).shape
        torch.Size([2, 16])
    """

    name = "first"

    def __call__(self, representation: Representation) -> Tensor:
        """Take the first token."""
        if not isinstance(representation, Tokens):
            raise InputError(f"pooling 'first' takes tokens, got {_described(representation)}; use pooling 'auto'")
        return representation.values[:, 0].clone()

    def mul_adds(self, representation: Representation) -> int:
        """Nothing is computed."""
        return 0


class GridPooling(Pooling):
    """Means over the cells of the largest square grid that stays within a number of features.

    An exit that sees where things are, and not only what is there, is worth ten points of accuracy early in a
    convolutional network.

    Args:
        side: Cells along each axis at most.
        largest: Features a stage at most, as long as one cell fits; one cell is always there.

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
                f"grid pooling takes maps N x C x H x W, got {_described(representation)}; use pooling 'auto'"
            )
        height, width = representation.shape[2:]
        side = self.side_of(representation)
        if torch.compiler.is_compiling():  # compilers and exporters know the operation by its name
            return F.adaptive_avg_pool2d(representation, side).flatten(1)
        # As a product: torch's own pooling is up to seven times slower on maps with channels first.
        maps, double = representation.flatten(2), representation.dtype == torch.float64
        cells = torch.from_numpy(_cells(height, width, side, double))
        if maps.dtype in (torch.float32, torch.float64):
            return (maps @ cells.to(maps)).flatten(1)
        # Sums, then means: a share such as 1/49 is not itself in a narrow type. Scaled, so that sums do not overflow.
        scale = 2.0 ** -round(log2(height * width / side**2))
        means = (maps @ ((cells > 0) * scale).to(maps)).float() * (cells.amax(0) / scale).to(maps.device)
        return means.to(maps.dtype).flatten(1)

    def side_of(self, maps: Tensor) -> int:
        """Cells along each axis of `N x C x H x W` maps.

        Args:
            maps: The maps; their shape alone matters.

        Example:
            >>> GridPooling().side_of(torch.ones(1, 512, 7, 7))
            2
        """
        channels, height, width = maps.shape[1:]
        side = min(self.side, height, width)
        while side > 1 and channels * side * side > self.largest:
            side -= 1
        return side


class AutoPooling(Pooling):
    """What serves exits best for each kind of representation.

    A grid of means for maps; for patches the tokens before them, their mean and, where they form a square, a grid;
    mean, largest and first token for words; mean, largest and sum for the nodes of a graph.

    Example:
        >>> AutoPooling()(Tokens(torch.ones(2, 7, 16), mask=torch.ones(2, 7, dtype=torch.bool))).shape
        torch.Size([2, 48])
        >>> AutoPooling()(Tokens(torch.ones(2, 17, 16), prefix=1)).shape  # 1 token, their mean, 4 x 4 cells
        torch.Size([2, 288])
    """

    name = "auto"

    def __init__(self) -> None:
        self._mean, self._grid = MeanPooling(), GridPooling()

    def __call__(self, representation: Representation) -> Tensor:
        """Pool by the representation's kind."""
        match representation:
            case Tokens(values, Tensor() as mask):
                there = mask.bool()
                if _all_there(there):
                    return torch.cat([values.mean(1), values.amax(1), values[:, 0]], dim=1)
                return torch.cat([*_mean_and_largest(values, there), values[:, 0]], dim=1)
            case Tokens(values, _, prefix):
                patches = values[:, prefix:]
                side = isqrt(patches.shape[1])
                parts = [values[:, :prefix].flatten(1), patches.mean(1)]
                if side > 1 and side * side == patches.shape[1]:
                    parts.append(self._grid(patches.mT.reshape(len(values), values.shape[2], side, side)))
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
        """Tokens and nodes are gone through twice: for the mean, and for the grid or the largest."""
        once = super().mul_adds(representation)
        return once if isinstance(representation, Tensor) else 2 * once


@cache
def _cells(height: int, width: int, side: int, double: bool) -> npt.NDArray[np.floating[Any]]:
    """Weights `HW x side * side` whose product with maps is the mean over each cell, as `adaptive_avg_pool2d` cuts.

    An array, not a tensor: what is kept must not depend on the mode of torch it was made in.
    """
    rows, columns = (np.stack([_within(size, cell, side) for cell in range(side)], 1) for size in (height, width))
    weights: npt.NDArray[np.float64] = np.einsum("ha,wb->hwab", rows, columns)
    return weights.reshape(height * width, side * side).astype(np.float64 if double else np.float32)


def _within(size: int, cell: int, cells: int) -> npt.NDArray[np.float64]:
    """Weights of `size` positions in the mean over one of `cells` cells along an axis."""
    start, stop = cell * size // cells, -(-(cell + 1) * size // cells)
    weights = np.zeros(size)
    weights[start:stop] = 1 / (stop - start)
    return weights


def _all_there(there: Tensor) -> bool:
    """Whether nothing is to be left out: worth asking where the answer is at hand, a text by itself has no padding."""
    return _at_hand(there) and there.numel() > 0 and bool(there.all())


def _at_hand(there: Tensor) -> bool:
    """Whether looking at a tensor costs nothing: no device is waited for, no compiler is at work."""
    return not torch.compiler.is_compiling() and there.device.type == "cpu"


def _mean_and_largest(values: Tensor, there: Tensor) -> tuple[Tensor, Tensor]:
    """Of `N x T x D` values, over the T tokens that are there; zeros for a sample without any."""
    # The lowest number, not minus infinity: a sample without any token must stay finite after pooling.
    lowest = torch.finfo(values.dtype).min
    empty = ~there.any(1, keepdim=True)
    if _at_hand(there) and values.dtype in (torch.float32, torch.float64, torch.bfloat16):
        # A bound and a product, each gone through once: more than twice as fast as filling by a mask, twice.
        bound = values.new_full(there.shape, torch.inf).masked_fill_(~there, lowest)
        bounded = torch.minimum(values, bound[..., None])
        mean = torch.bmm(there.to(values.dtype)[:, None], bounded).squeeze(1) / there.sum(1, keepdim=True).clamp_min(1)
        if not mean.isnan().any():  # else there may be NaN where there is no token, which a bound lets through
            return mean.to(values.dtype), bounded.amax(1).masked_fill(empty, 0)
    largest = values.masked_fill(~there[..., None], lowest).amax(1).masked_fill(empty, 0)
    return _masked_mean(values, there), largest


def _masked_mean(values: Tensor, mask: Tensor) -> Tensor:
    there = mask.bool()[..., None]
    # Filled, not multiplied: where there is no token there may be no number either. In single precision at least: the
    # sum of a long text overflows half precision.
    wide = torch.promote_types(values.dtype, torch.float32)
    total = values.masked_fill(~there, 0).sum(1, dtype=wide)
    return (total / there.sum(1).clamp_min(1)).to(values.dtype)


def _sums(nodes: Nodes) -> Tensor:
    # In full precision at least: a sum over many nodes is more than half precision holds.
    values = nodes.values.to(torch.promote_types(nodes.values.dtype, torch.float32))
    return values.new_zeros(nodes.count, values.shape[1]).index_add(0, nodes.graph, values)


def _node_counts(nodes: Nodes) -> Tensor:
    """`N x 1` nodes of each graph, at least 1: an empty graph has features 0."""
    return torch.bincount(nodes.graph, minlength=nodes.count).clamp_min(1)[:, None]


def _described(representation: Representation) -> str:
    if isinstance(representation, Tensor):
        return f"shape {tuple(representation.shape)}"
    return f"{type(representation).__name__.lower()} of shape {tuple(representation.values.shape)}"


POOLINGS: Registry[Pooling] = Registry("pooling")
for _pooling in (MeanPooling(), FirstPooling(), GridPooling(), AutoPooling()):
    POOLINGS.add(_pooling.name, _pooling)
