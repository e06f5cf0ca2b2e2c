"""Two classifiers of digits: a transformer, and a cheaper network to run before it."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from offramp.backbone import Factory
from offramp.backbone._backbone import Backbone
from offramp.backbone._splitting import split
from offramp.demo._digits import PREPROCESSING

__all__ = ["DigitsCnn", "DigitsTransformer", "as_backbone", "digits_cnn", "digits_transformer"]


class _Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, tokens: Tensor) -> Tensor:
        samples, count, width = tokens.shape
        parts = self.qkv(self.norm1(tokens)).view(samples, count, 3, self.heads, width // self.heads)
        queries, keys, values = parts.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(queries, keys, values)
        tokens = tokens + self.proj(mixed.transpose(1, 2).flatten(2))
        attended: Tensor = tokens + self.mlp(self.norm2(tokens))
        return attended


class DigitsTransformer(nn.Module):
    """A vision transformer for images `N x 1 x 8 x 8`: sixteen patches of 2 x 2 pixels and a class token.

    Args:
        width: Numbers per token.
        depth: Number of blocks.
        heads: Number of attention heads.

    Example:
        >>> DigitsTransformer()(torch.zeros(2, 1, 8, 8)).shape
        torch.Size([2, 10])
    """

    def __init__(self, *, width: int = 64, depth: int = 6, heads: int = 4) -> None:
        super().__init__()
        self.patches = nn.Conv2d(1, width, 2, stride=2)
        # As large as the patches: with the usual 0.02, so few images do not suffice to learn positions.
        self.places = nn.Parameter(torch.randn(1, 16, width))
        self.class_token = nn.Parameter(torch.randn(1, 1, width))
        self.blocks = nn.ModuleList(_Block(width, heads) for _ in range(depth))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 10)

    def forward(self, images: Tensor) -> Tensor:
        """Return class scores `N x 10` of images `N x 1 x 8 x 8`."""
        patches = self.patches(images).flatten(2).mT + self.places
        tokens = torch.cat([self.class_token.expand(patches.shape[0], -1, -1), patches], dim=1)
        for block in self.blocks:
            tokens = block(tokens)
        scores: Tensor = self.head(self.norm(tokens[:, 0]))
        return scores


class DigitsCnn(nn.Module):
    """Two convolutions on images `N x 1 x 8 x 8` at half resolution: cheap and less accurate.

    At full resolution its exits would be as accurate as the transformer at 1 % of the cost, and a cascade would bring
    no gain.

    Args:
        channels: Channels of each convolution.

    Example:
        >>> DigitsCnn()(torch.zeros(2, 1, 8, 8)).shape
        torch.Size([2, 10])
    """

    def __init__(self, *, channels: int = 32) -> None:
        super().__init__()
        self.halve = nn.AvgPool2d(2)
        self.blocks = nn.Sequential(
            *(
                nn.Sequential(nn.Conv2d(before, channels, 3, padding=1), nn.BatchNorm2d(channels), nn.ReLU())
                for before in (1, channels)
            )
        )
        self.head = nn.Linear(16 * channels, 10)

    def forward(self, images: Tensor) -> Tensor:
        """Return class scores `N x 10` of images `N x 1 x 8 x 8`."""
        scores: Tensor = self.head(self.blocks(self.halve(images)).flatten(1))
        return scores


def as_backbone(network: DigitsTransformer | DigitsCnn) -> Backbone:
    """Split a network after each block, and record the factory that makes it when a saved model is loaded.

    Args:
        network: A network of the default size; it is frozen, not copied.
    """
    name = "digits_cnn" if isinstance(network, DigitsCnn) else "digits_transformer"
    backbone = split(network, torch.zeros(2, 1, 8, 8), name=name.replace("_", "-"))
    backbone.preprocessing = PREPROCESSING
    backbone.factory = Factory(name, preprocessing=PREPROCESSING)
    return backbone


def digits_transformer() -> Backbone:
    """Return the untrained transformer; registered under this name.

    Example:
        >>> digits_transformer().num_exits
        6
    """
    return as_backbone(DigitsTransformer())


def digits_cnn() -> Backbone:
    """Return the untrained cheaper network; registered under this name.

    Example:
        >>> digits_cnn().num_exits
        2
    """
    return as_backbone(DigitsCnn())
