"""Small hand-written networks, each with one thing that makes cutting it up hard."""

from typing import Any

import torch
from torch import Tensor, nn

from offramp.backbone import Axes
from offramp.backbone._capture import capture
from offramp.backbone._hidden import SAMPLES_FIRST, Hidden
from offramp.backbone._liveness import Liveness

WIDTH, CLASSES, VOCABULARY = 8, 3, 20
TEXT_AXES = {"ids": Axes(lengths=(1,)), "mask": Axes(lengths=(1,))}


class Block(nn.Module):
    """A residual block: four operations."""

    def __init__(self) -> None:
        super().__init__()
        self.upper = nn.Linear(WIDTH, WIDTH)
        self.lower = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        added: Tensor = self.lower(torch.relu(self.upper(x)))
        return x + added


class Layered(nn.Module):
    """Something that reads vectors of six numbers, blocks, a head."""

    def __init__(self, blocks: int = 4, classes: int = CLASSES) -> None:
        super().__init__()
        self.read = nn.Linear(6, WIDTH)
        self.blocks = nn.ModuleList([Block() for _ in range(blocks)])
        self.head = nn.Linear(WIDTH, classes)

    def forward(self, x: Tensor) -> Any:
        x = self.read(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


class Branching(Layered):
    """Control flow by the number of samples: torch.fx cannot follow it."""

    def forward(self, x: Tensor) -> Any:
        return super().forward(x if x.shape[0] > 0 else x + 1)


class Ending(Layered):
    """The same with something done to its scores."""

    def __init__(self, end: Any, **options: int) -> None:
        super().__init__(**options)
        self.end = end

    def forward(self, x: Tensor) -> Any:
        return self.end(super().forward(x))


class Skipping(Layered):
    """Adds the first value again at the end."""

    def forward(self, x: Tensor) -> Any:
        first = x = self.read(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x + first)


class Attending(nn.Module):
    """Self-attention by hand, with a bias added to the scores of each position."""

    def __init__(self, width: int = WIDTH) -> None:
        super().__init__()
        self.query = nn.Linear(width, width)
        self.value = nn.Linear(width, width)

    def forward(self, x: Tensor, bias: Tensor) -> Tensor:
        attention = (self.query(x) @ x.mT + bias[:, None]).softmax(-1)
        added: Tensor = attention @ self.value(x)
        return x + added


class FirstToken(nn.Module):
    """A head of three classes on the first of tokens of width 4."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, hidden: dict[str, Tensor]) -> Tensor:
        logits: Tensor = self.linear(hidden["tokens"][:, 0])
        return logits


class Words(nn.Module):
    """A text classifier: token numbers and marks of the real ones, by name."""

    def __init__(self, blocks: int = 4, width: int = WIDTH) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, width)
        self.blocks = nn.ModuleList([Attending(width) for _ in range(blocks)])
        self.head = nn.Linear(width, CLASSES)

    def bias(self, mask: Tensor) -> Tensor:
        return torch.zeros_like(mask, dtype=torch.float32).masked_fill(mask == 0, -1e9)

    def forward(self, ids: Tensor, mask: Tensor) -> dict[str, Tensor]:
        bias = self.bias(mask)
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x, bias)
        shown = mask[..., None].to(x.dtype)
        return {"logits": self.head((x * shown).sum(1) / shown.sum(1))}


class MapBlock(nn.Module):
    """A residual block of maps that works in place."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels, channels, 3, padding=1, bias=False),
            nn.BatchNorm2d(channels),
            nn.ReLU(inplace=True),
            nn.Conv2d(channels, channels, 3, padding=1, bias=False),
            nn.BatchNorm2d(channels),
        )
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        out = self.body(x)
        out += x
        rectified: Tensor = self.relu(out)
        return rectified


class Maps(nn.Module):
    """A residual network of images in three colours."""

    def __init__(self, blocks: int = 4, channels: int = 8) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, channels, 3, stride=2, bias=False), nn.BatchNorm2d(channels), nn.ReLU())
        self.blocks = nn.Sequential(*[MapBlock(channels) for _ in range(blocks)])
        self.head = nn.Linear(channels, CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.head(self.blocks(self.stem(images)).mean((2, 3)))
        return logits


def vectors(count: int = 4, *, seed: int = 0) -> Tensor:
    return torch.randn(count, 6, generator=torch.Generator().manual_seed(seed))


def images(count: int = 3, side: int = 11, *, seed: int = 0) -> Tensor:
    return torch.randn(count, 3, side, side, generator=torch.Generator().manual_seed(seed))


def texts(count: int = 3, length: int = 6, *, shortest: int | None = None, seed: int = 0) -> dict[str, Tensor]:
    """Texts, the first of them shorter where asked."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(1, VOCABULARY, (count, length), generator=generator)
    mask = torch.ones(count, length, dtype=torch.long)
    if shortest is not None:
        ids[0, shortest:], mask[0, shortest:] = 0, 0
    return {"ids": ids, "mask": mask}


def liveness_of(network: nn.Module, example: Hidden, axes: Any = SAMPLES_FIRST) -> Liveness:
    return Liveness(capture(network.eval(), example, axes))
