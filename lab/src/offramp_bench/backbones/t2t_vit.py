"""T2T-ViT-7 and -14 of Yuan et al. (2021), the networks of the paper, one stage per block."""

from math import isqrt, sqrt
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from offramp.backbone import Factory
from offramp.backbone._backbone import Backbone
from offramp.backbone._factory import check_classes
from offramp.backbone._hidden import Hidden
from offramp.backbone._making import BACKBONES
from offramp.errors import InputError
from offramp.pooling import Tokens

__all__ = ["T2TViT", "load_t2t_vit"]

LARGEST_SIDE = 2048
"""Pixels; a limit, so that a number in a file cannot request any amount of memory."""

LARGEST_WIDTH = 2048


class _Performer(nn.Module):
    """Attention in linear time and a small MLP; tokens leave narrower than they came."""

    def __init__(self, width_in: int, width: int) -> None:
        super().__init__()
        features = width // 2
        self.norm1, self.norm2 = nn.LayerNorm(width_in), nn.LayerNorm(width)
        self.kqv, self.proj = nn.Linear(width_in, 3 * width), nn.Linear(width, width)
        self.w = nn.Parameter(nn.init.orthogonal_(torch.empty(features, width)) * sqrt(features))  # drawn, not trained
        self.mlp = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, width))

    def forward(self, tokens: Tensor) -> Tensor:
        keys, queries, values = self.kqv(self.norm1(tokens)).chunk(3, -1)
        phi_k, phi_q = self.random_features(keys), self.random_features(queries)
        mixed = phi_q @ (phi_k.mT @ values.to(phi_k.dtype)) / (phi_q @ phi_k.sum(1)[..., None] + 1e-8)
        x: Tensor = values + self.proj(mixed.to(values.dtype))
        return x.add(self.mlp(self.norm2(x)))

    def random_features(self, x: Tensor) -> Tensor:
        r"""$\varphi(x) = \exp(w x - |x|^2 / 2) / \sqrt{m}$."""
        # Half precision holds neither these exponentials nor the 1e-8 that keeps their sum from zero.
        x, w = (part.to(torch.promote_types(x.dtype, torch.float32)) for part in (x, self.w))
        return (x @ w.mT - x.square().sum(-1, keepdim=True) / 2).exp() / sqrt(len(w))


class _Stem(nn.Module):
    """Patches from pixels by overlapping windows of strides 4, 2 and 2, with a class token and positions."""

    def __init__(self, width: int, image_side: int) -> None:
        super().__init__()
        narrow = min(64, width // 4)
        self.attention1, self.attention2 = _Performer(7 * 7 * 3, narrow), _Performer(3 * 3 * narrow, narrow)
        self.project = nn.Linear(3 * 3 * narrow, width)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, width))
        places = torch.arange((image_side // 16) ** 2 + 1, dtype=torch.float64)
        angles = torch.outer(places, 10_000.0 ** (-torch.arange(0, width, 2, dtype=torch.float64) / width))
        waves = torch.stack([angles.sin(), angles.cos()], dim=2).flatten(1)  # sines in even columns, cosines in odd
        self.pos_embed = nn.Parameter(waves.float()[None])  # fixed as well

    def forward(self, images: Tensor) -> Tensor:
        x = self.attention1(F.unfold(images, 7, stride=4, padding=2).mT)
        x = self.project(_windows(self.attention2(_windows(x))))
        return torch.cat([self.cls_token.expand(len(x), -1, -1), x], dim=1) + self.pos_embed


def _windows(tokens: Tensor) -> Tensor:
    """Return every other 3 x 3 window, `N x T/4 x 9C`, of the square that tokens `N x T x C` form."""
    samples, count, width = tokens.shape
    return F.unfold(tokens.mT.reshape(samples, width, isqrt(count), isqrt(count)), 3, stride=2, padding=1).mT


class _Block(nn.Module):
    def __init__(self, width: int, heads: int, ratio: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, ratio * width), nn.GELU(), nn.Linear(ratio * width, width))

    def forward(self, tokens: Tensor) -> Tensor:
        samples, count, width = tokens.shape
        parts = self.qkv(self.norm1(tokens)).view(samples, count, 3, self.heads, width // self.heads)
        mixed = F.scaled_dot_product_attention(*parts.permute(2, 0, 3, 1, 4))
        x: Tensor = tokens + self.proj(mixed.transpose(1, 2).flatten(2))
        return x.add(self.mlp(self.norm2(x)))


class _Head(nn.Module):
    def __init__(self, width: int, num_classes: int) -> None:
        super().__init__()
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, num_classes)

    def forward(self, tokens: Tensor) -> Tensor:
        logits: Tensor = self.head(self.norm(tokens)[:, 0])  # all tokens are normed, as the paper's tables count
        return logits


class T2TViT(Backbone):
    """A T2T-ViT with performers in its T2T module, which belongs to the first stage.

    Exits see their block's tokens after the network's own final layer norm; the first token is the paper's $z^l$.

    Args:
        depth: Number of blocks and of stages: 7 or 14.
        num_classes: K.
        image_side: Height and width of the images, a multiple of 16.
        width: Numbers per token, 64 for each head; 256 and 384, as published, if left out. The T2T module is a
            quarter as wide, 64 at most.

    Example:
        >>> backbone = T2TViT(7, num_classes=10, image_side=32)
        >>> backbone.num_exits, backbone(torch.zeros(2, 3, 32, 32)).shape
        (7, torch.Size([2, 10]))
    """

    def __init__(self, depth: int, *, num_classes: int = 1000, image_side: int = 224, width: int | None = None) -> None:
        sides = range(16, LARGEST_SIDE + 1, 16)
        if type(depth) is not int or depth not in (7, 14) or type(image_side) is not int or image_side not in sides:
            raise InputError(
                f"expected depth 7 or 14 and a multiple of 16 up to {LARGEST_SIDE} as image side, got {depth!r} and "
                f"{image_side!r}"
            )
        if width is not None and (type(width) is not int or width not in range(64, LARGEST_WIDTH + 1, 64)):
            raise InputError(f"expected a multiple of 64 up to {LARGEST_WIDTH} as width, got {width!r}")
        check_classes(num_classes)
        options = {"depth": depth, "num_classes": num_classes, "image_side": image_side}
        options |= {} if width is None else {"width": width}
        own_width, ratio = (256, 2) if depth == 7 else (384, 3)
        width = own_width if width is None else width
        stages: list[nn.Module] = [_Block(width, width // 64, ratio) for _ in range(depth)]
        stages[0] = nn.Sequential(_Stem(width, image_side), stages[0])
        super().__init__(f"t2t-vit-{depth}", stages, {depth - 1: _Head(width, num_classes)}, num_classes)
        self.input_axes = 4
        self.factory = Factory("t2t_vit", options)

    def representation(self, hidden: Hidden, stage: int) -> Tokens:
        """Return the tokens after `stage` and the final layer norm, class token first."""
        norm = self.heads[str(self.num_exits - 1)].get_submodule("norm")
        return Tokens(norm(hidden), prefix=1)


def load_t2t_vit(path: str | Path, depth: int, *, num_classes: int = 1000, image_side: int = 224) -> T2TViT:
    """Load a frozen backbone from an official checkpoint (keys `cls_token`, `blocks.0.attn.qkv.weight`, ...).

    Args:
        path: Weights, plain or under `state_dict_ema`, `state_dict` or `net`, read without running any code in them.
        depth: 7 or 14.
        num_classes: K of the checkpoint.
        image_side: Height and width of its images.
    """
    backbone = T2TViT(depth, num_classes=num_classes, image_side=image_side)
    checkpoint = torch.load(path, map_location="cpu", weights_only=True)
    checkpoint = next(
        (checkpoint[key] for key in ("state_dict_ema", "state_dict", "net") if key in checkpoint), checkpoint
    )
    prefixes = {"blocks.0.": "stages.0.1.", "blocks.": "stages."}
    prefixes |= {own: f"heads.{depth - 1}.{own}" for own in ("norm.", "head.")}
    state = {}
    for key, value in checkpoint.items():
        name = key.removeprefix("module.").removeprefix("tokens_to_token.")
        name = name.replace(".attn.", ".").replace(".fc1.", ".0.").replace(".fc2.", ".2.")
        start = next((start for start in prefixes if name.startswith(start)), "")
        state[prefixes.get(start, "stages.0.0.") + name.removeprefix(start)] = value
    try:
        backbone.load_state_dict(state)
    except RuntimeError as error:
        raise InputError(f"{path} does not fit a T2T-ViT-{depth}; check depth, classes and side: {error}") from error
    return backbone


BACKBONES.add("t2t_vit", T2TViT)
