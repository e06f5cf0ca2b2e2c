"""A narrow T2T-ViT-7, fitted to small images from random weights: no pretrained ones are available."""

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from offramp.features import Source
from offramp_bench.backbones.images import PREPROCESSING, SIDE, batch_maker
from offramp_bench.backbones.t2t_vit import T2TViT
from offramp_bench.backbones.training import Recipe, fit
from offramp_bench.backbones.weights import State

__all__ = ["backbone_of", "fit_network"]

DEPTH = 7

WIDTH = 128
"""Half of the published width, so that a backbone is fitted in minutes on one core."""

FIXED = (".w", "pos_embed")
"""Name endings of the parameters that are drawn or computed, not fitted."""


def backbone_of(state: State, *, num_classes: int) -> T2TViT:
    """Return the frozen network, one stage per block: 7.

    Args:
        state: The weights, in any precision.
        num_classes: K.
    """
    backbone = T2TViT(DEPTH, num_classes=num_classes, image_side=SIDE, width=WIDTH)
    backbone.load_state_dict(state)
    backbone.preprocessing = PREPROCESSING
    return backbone


def fit_network(seen: Source, recipe: Recipe, *, num_classes: int, name: str) -> State:
    """Fit the network to images.

    Args:
        seen: The images to fit on.
        recipe: Settings of the training.
        num_classes: K.
        name: Name in the lines of progress.

    Returns:
        The weights.
    """
    torch.manual_seed(recipe.seed)
    backbone = T2TViT(DEPTH, num_classes=num_classes, image_side=SIDE, width=WIDTH)
    for key, parameter in backbone.named_parameters():
        parameter.requires_grad_(not key.endswith(FIXED))
    # On CPUs the gradient of fused attention takes ten times as long in 16 bits.
    with sdpa_kernel(SDPBackend.MATH):
        fit(backbone, batch_maker(seen, mirrored=True), len(seen), recipe, name=name)
    return backbone.state_dict()
