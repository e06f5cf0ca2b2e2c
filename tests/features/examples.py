"""Small backbones and sources that the tests of this folder share."""

import time
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from offramp.backbone import Axes, CifarResNet
from offramp.backbone._backbone import Backbone
from offramp.backbone._hidden import Hidden
from offramp.features import ArraySource, Source
from offramp.features._source import Rows
from offramp.preprocessing import Preprocessing
from offramp.preprocessing._images import image_preprocessing

CLEAN = image_preprocessing(mean=(0.5, 0.5, 0.5), std=(0.25, 0.25, 0.25))
SHIFTED = Preprocessing((CLEAN.steps[0], ("shift_and_flip", {"shift": 4}), *CLEAN.steps[1:]))


def small_resnet() -> CifarResNet:
    """Three stages, random weights, always the same."""
    torch.manual_seed(0)
    return CifarResNet(8)


def images(rows: int) -> ArraySource:
    """Random images, sorted by class."""
    pixels = np.random.default_rng(0).integers(0, 256, (rows, 32, 32, 3), np.uint8)
    return ArraySource(pixels, np.arange(rows) * 10 // rows, name="images")


def contents(path: Path) -> dict[str, bytes]:
    """Every file of a folder, by name, but the lock of its writer."""
    files = (file for file in path.rglob("*") if file.is_file() and not file.name.startswith(".lock"))
    return {str(file.relative_to(path)): file.read_bytes() for file in files}


class Slowly:
    """A source that takes its time, so that a kill can find it at work."""

    def __init__(self, source: Source, wait_s: float) -> None:
        self.name = source.name
        self._source = source
        self._wait_s = wait_s

    def __len__(self) -> int:
        return len(self._source)

    def read(self, start: int, stop: int) -> Rows:
        time.sleep(self._wait_s)
        return self._source.read(start, stop)


class VectorBackbone(Backbone):
    """Stages on plain vectors, each one's output its representation."""

    def __init__(self, stages: list[nn.Module], width: int, *, num_classes: int = 10) -> None:
        super().__init__("vectors", stages, {len(stages) - 1: nn.Linear(width, num_classes)}, num_classes)

    def representation(self, hidden: Hidden, stage: int) -> Tensor:
        assert isinstance(hidden, Tensor)
        return hidden


class _Embed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(20, 6)

    def forward(self, hidden: dict[str, Tensor]) -> dict[str, Tensor]:
        return {"states": self.table(hidden["tokens"]), "mask": hidden["mask"]}


class _Mix(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 4)

    def forward(self, hidden: dict[str, Tensor]) -> dict[str, Tensor]:
        return {**hidden, "states": torch.tanh(self.linear(hidden["states"]))}


class _TokenHead(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, 3)

    def forward(self, hidden: dict[str, Tensor]) -> Tensor:
        weights = hidden["mask"] / hidden["mask"].sum(1, keepdim=True)
        logits: Tensor = self.linear((hidden["states"] * weights[:, :, None]).sum(1))
        return logits


class TokenBackbone(Backbone):
    """Token sequences with a mask: the hidden state is a dictionary, and both stages bring a head."""

    def __init__(self) -> None:
        super().__init__("tokens", [_Embed(), _Mix()], {0: _TokenHead(6), 1: _TokenHead(4)}, 3)

    def axes(self, depth: int) -> Axes:
        return Axes(lengths=(1,))

    def sizes(self, inputs: Hidden) -> Tensor:
        sizes: Tensor = inputs["mask"].sum(1)
        return sizes

    def representation(self, hidden: Hidden, stage: int) -> Tensor:
        states: Tensor = hidden["states"]
        return states.transpose(1, 2)


def vectors(features: np.ndarray, labels: np.ndarray) -> ArraySource:
    return ArraySource(features.astype(np.float32), labels, name="vectors")
