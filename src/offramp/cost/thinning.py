"""Fewer exits, evenly spread over what a network costs."""

import torch
from torch import Tensor

from offramp.backbone import POOLINGS, Backbone, Cascade, Hidden, merge
from offramp.cost.mul_adds import count_backbone
from offramp.errors import InputError

__all__ = ["thinned"]


def thinned(backbone: Backbone, example: Hidden, *, exits: int) -> Backbone:
    """The backbone with few exits: every one of them takes time, and many are not worth it.

    Args:
        backbone: Any backbone; of a cascade, each network gets so many.
        example: A batch of inputs as the backbone takes them: costs are counted on it.
        exits: Exits of a network at most, its own heads among them; at least 1.

    Returns:
        The backbone, some of its stages merged; the backbone itself where it has no more.

    Example:
        >>> from offramp.backbone import CifarResNet
        >>> thinned(CifarResNet(56), torch.zeros(1, 3, 32, 32), exits=3).num_exits
        3
    """
    if exits < 1:
        raise InputError(f"expected at least one exit a network, got {exits}")
    counted = count_backbone(backbone, example, POOLINGS.get("mean"))
    costs = counted.stage.sum(0)
    parts = backbone.stages_of_members if isinstance(backbone, Cascade) else (range(backbone.num_exits),)
    ends = {end for part in parts for end in _ends(costs[part.start : part.stop], exits, part.start)}
    return merge(backbone, sorted(ends | set(backbone.own_heads)))


def _ends(costs: Tensor, exits: int, start: int) -> list[int]:
    """The stages that end nearest to equal shares of the cost, the last among them."""
    reached = costs.cumsum(0) / costs.sum()
    shares = torch.arange(1, exits + 1) / exits
    return [start + int(place) for place in (reached[None] - shares[:, None]).abs().argmin(1)]
