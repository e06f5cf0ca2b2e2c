"""Backbones with fewer exits, evenly spread over the cost of the network."""

import torch
from torch import Tensor

from offramp.backbone import Cascade
from offramp.backbone._backbone import Backbone
from offramp.backbone._hidden import Hidden
from offramp.backbone._merging import merge
from offramp.cost._mul_adds import count_backbone
from offramp.errors import InputError
from offramp.pooling import POOLINGS

__all__ = ["keep_exits"]


def keep_exits(backbone: Backbone, example: Hidden, *, exits: int) -> Backbone:
    """Merge stages until a backbone has at most `exits` exits, at equal shares of its cost.

    Args:
        backbone: Any backbone; each member of a cascade keeps so many.
        example: A batch of inputs as the backbone takes them; costs are counted on it.
        exits: Largest number of exits per network, its own heads included; at least 1.

    Returns:
        The backbone with some stages merged; the same backbone if it has no more exits.

    Example:
        >>> from offramp.backbone import CifarResNet
        >>> keep_exits(CifarResNet(56), torch.zeros(1, 3, 32, 32), exits=3).num_exits
        3
    """
    if exits < 1:
        raise InputError(expected="at least one exit per network", got=exits)
    counts = count_backbone(backbone, example, POOLINGS.get("mean"))
    costs = counts.stage.sum(0)
    members = backbone.stages_of_members if isinstance(backbone, Cascade) else (range(backbone.num_exits),)
    ends = {end for part in members for end in _ends(costs[part.start : part.stop], exits, part.start)}
    return merge(backbone, sorted(ends | set(backbone.own_heads)))


def _ends(costs: Tensor, exits: int, start: int) -> list[int]:
    """Return the stages that end nearest to equal shares of the cost, the last stage included."""
    reached = costs.cumsum(0) / costs.sum()
    shares = torch.arange(1, exits + 1) / exits
    return [start + int(place) for place in (reached[None] - shares[:, None]).abs().argmin(1)]
