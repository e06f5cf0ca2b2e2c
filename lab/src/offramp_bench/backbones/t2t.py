"""A narrow T2T-ViT-7, fitted to small images from random weights: there are none to start from."""

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from offramp.features import Source
from offramp_bench.backbones.images import PREPROCESSING, SIDE, dealt
from offramp_bench.backbones.t2t_vit import T2TViT
from offramp_bench.backbones.training import Recipe, fit
from offramp_bench.backbones.weights import State

__all__ = ["backbone_of", "fitted"]

DEPTH = 7

WIDTH = 128
"""Half of the published: a backbone is to be fitted in minutes, on one core."""

FIXED = (".w", "pos_embed")
"""How the names of what is drawn or computed, not fitted, end."""


def backbone_of(state: State, *, num_classes: int) -> T2TViT:
    """The frozen network, one stage a block: 7.

    Args:
        state: Of the backbone, in any precision.
        num_classes: K.
    """
    backbone = T2TViT(DEPTH, num_classes=num_classes, image_side=SIDE, width=WIDTH)
    backbone.load_state_dict(state)
    backbone.preprocessing = PREPROCESSING
    return backbone


def fitted(seen: Source, recipe: Recipe, *, num_classes: int, name: str) -> State:
    """Fit the network to rows.

    Args:
        seen: The rows.
        recipe: How.
        num_classes: K.
        name: What progress is told under.

    Returns:
        Its weights.
    """
    torch.manual_seed(recipe.seed)
    backbone = T2TViT(DEPTH, num_classes=num_classes, image_side=SIDE, width=WIDTH)
    for key, parameter in backbone.named_parameters():
        parameter.requires_grad_(not key.endswith(FIXED))
    # On CPUs the gradient of fused attention takes ten times as long in 16 bits.
    with sdpa_kernel(SDPBackend.MATH):
        fit(backbone, dealt(seen, mirrored=True), len(seen), recipe, name=name)
    return backbone.state_dict()
