"""From what a stage leaves behind to the vector an exit sees."""

from abc import ABC, abstractmethod
from math import prod

import torch.nn.functional as F
from torch import Tensor

from offramp.errors import InputError
from offramp.registry import Registry

__all__ = ["POOLINGS", "GridPooling", "MeanPooling", "Pooling"]


class Pooling(ABC):
    """Turns a representation `N x C x ...` into features `N x D`."""

    name: str

    @abstractmethod
    def __call__(self, representation: Tensor) -> Tensor:
        """Pool `N x C x H x W` (or `N x C x T`, or `N x C`) into `N x D` features."""

    def mul_adds(self, shape: tuple[int, ...]) -> int:
        """Operations for one sample of `shape` (batch axis left out): every number is added once."""
        return prod(shape) if len(shape) > 1 else 0


class MeanPooling(Pooling):
    """The mean over all positions: what the paper's recipe gives a convolutional network.

    Example:
        >>> import torch
        >>> MeanPooling()(torch.ones(2, 16, 8, 8)).shape
        torch.Size([2, 16])
    """

    name = "mean"

    def __call__(self, representation: Tensor) -> Tensor:
        """Average everything behind the channel axis."""
        # A copy where there is nothing to average: features outlive a stage that may work in place.
        return representation.flatten(2).mean(-1) if representation.ndim > 2 else representation.clone()


class GridPooling(Pooling):
    """Means over the cells of the largest square grid that stays within a number of features.

    An exit that sees where things are, and not only what is there, is worth ten points of accuracy early in a
    convolutional network.

    Args:
        side: Cells along each axis at most.
        largest: Features a stage at most, as long as one cell fits; one cell is always there.

    Example:
        >>> import torch
        >>> GridPooling()(torch.ones(2, 16, 32, 32)).shape
        torch.Size([2, 256])
        >>> GridPooling()(torch.ones(2, 512, 7, 7)).shape  # 2 x 2 cells: 3 x 3 would be 4,608 numbers
        torch.Size([2, 2048])
    """

    name = "grid"

    def __init__(self, *, side: int = 4, largest: int = 2048) -> None:
        self.side = side
        self.largest = largest

    def __call__(self, representation: Tensor) -> Tensor:
        """Average inside each cell, channels outermost."""
        if representation.ndim != 4:
            raise InputError(
                f"grid pooling takes maps N x C x H x W, got shape {tuple(representation.shape)}; use pooling 'mean'"
            )
        channels, height, width = representation.shape[1:]
        side = min(self.side, height, width)
        while side > 1 and channels * side * side > self.largest:
            side -= 1
        return F.adaptive_avg_pool2d(representation, side).flatten(1)


POOLINGS: Registry[Pooling] = Registry("pooling")
POOLINGS.add(MeanPooling.name, MeanPooling())
POOLINGS.add(GridPooling.name, GridPooling())
