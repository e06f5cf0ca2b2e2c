"""Fewer exits, evenly spread over what a network costs."""

import torch
from torch import Tensor

from offramp.cost.mul_adds import count_trunk
from offramp.errors import InputError
from offramp.trunk import POOLINGS, ChainTrunk, Hidden, Trunk, merge

__all__ = ["thinned"]


def thinned(trunk: Trunk, example: Hidden, *, exits: int) -> Trunk:
    """The trunk with few exits: every one of them takes time, and many are not worth it.

    Args:
        trunk: Any trunk; of a chain, each network gets so many.
        example: A batch of inputs as the trunk takes them: costs are counted on it.
        exits: Exits of a network at most, its own heads among them; at least 1.

    Returns:
        The trunk, some of its stages merged; the trunk itself where it has no more.

    Example:
        >>> from offramp.trunk import CifarResNet
        >>> thinned(CifarResNet(56), torch.zeros(1, 3, 32, 32), exits=3).num_exits
        3
    """
    if exits < 1:
        raise InputError(f"expected at least one exit a network, got {exits}")
    counted = count_trunk(trunk, example, POOLINGS.get("mean"))
    costs = counted.stage.sum(0)
    parts = trunk.stages_of_links if isinstance(trunk, ChainTrunk) else (range(trunk.num_exits),)
    ends = {end for part in parts for end in _ends(costs[part.start : part.stop], exits, part.start)}
    return merge(trunk, sorted(ends | set(trunk.own_heads)))


def _ends(costs: Tensor, exits: int, start: int) -> list[int]:
    """The stages that end nearest to equal shares of the cost, the last among them."""
    reached = costs.cumsum(0) / costs.sum()
    shares = torch.arange(1, exits + 1) / exits
    return [start + int(place) for place in (reached[None] - shares[:, None]).abs().argmin(1)]
