"""Training of a small classifier."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import AdamW
from torch.optim.lr_scheduler import CosineAnnealingLR

from offramp._progress import progress_bar
from offramp.demo._digits import PREPROCESSING
from offramp.features import ArraySource

__all__ = ["train"]

BATCH = 32
"""Images per step."""


def train(
    module: nn.Module,
    source: ArraySource,
    *,
    epochs: int,
    learning_rate: float,
    moved: float = 0.0,
    seed: int = 0,
    progress: bool = True,
) -> None:
    """Train a network in place and leave it in evaluation mode.

    Deterministic given the seed, the network's weights and the number of threads.

    Args:
        module: A network that returns class scores `N x 10` of prepared images.
        source: Images of digits.
        epochs: Passes over the images.
        learning_rate: Initial learning rate; it falls to 0 along a cosine.
        moved: Share of images that are shifted by up to one pixel in each pass.
        seed: Seed of the order of the images and of their shifts.
        progress: Show a progress bar.
    """
    rows = source.read(0, len(source))
    images, labels = PREPROCESSING(rows.inputs), torch.as_tensor(rows.labels)
    generator = torch.Generator().manual_seed(seed)
    optimizer = AdamW(module.parameters(), lr=learning_rate, weight_decay=0.05, fused=True)
    schedule = CosineAnnealingLR(optimizer, epochs * math.ceil(len(labels) / BATCH))
    module.train()
    with progress_bar(f"training {type(module).__name__}", epochs, unit="epochs", show=progress) as advance:
        for _ in range(epochs):
            order = torch.randperm(len(labels), generator=generator)
            for start in range(0, len(labels), BATCH):
                batch = order[start : start + BATCH]
                optimizer.zero_grad()
                torch.autograd.backward(
                    F.cross_entropy(module(_shifted(images[batch], moved, generator)), labels[batch])
                )
                optimizer.step()
                schedule.step()
            advance(1)
    module.eval()


def _shifted(images: Tensor, moved: float, generator: torch.Generator) -> Tensor:
    """Shift a share of images `n x 1 x 8 x 8` by up to one pixel in each direction, filled with background."""
    count, _, height, width = images.shape
    padded = F.pad(images, (1, 1, 1, 1), value=-1.0)
    still = torch.rand(count, generator=generator) >= moved
    top, left = torch.randint(0, 3, (2, count), generator=generator).masked_fill(still, 1)
    rows, columns = top[:, None] + torch.arange(height), left[:, None] + torch.arange(width)
    return padded[torch.arange(count)[:, None, None], 0, rows[:, :, None], columns[:, None, :]][:, None]
