"""Fitting a classifier: AdamW, a short way up, a cosine down."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from offramp.backbone._backbone import Backbone
from offramp.features import Source
from offramp_bench.bars import say

__all__ = ["Deal", "Recipe", "accuracy", "fit"]

Deal = Callable[[Tensor, torch.Generator], tuple[Any, Tensor]]
"""From `n` places and a generator to a batch: what the network takes, and `n` labels."""

WARM_UP = 0.08
"""Part of the steps in which the learning rate rises."""

LARGEST_GRADIENT = 1.0
"""Norm that gradients are cut to: transformers from random weights diverge without."""


@dataclass(frozen=True)
class Recipe:
    """How a network is fitted."""

    epochs: int
    batch_size: int
    rate: float
    """Highest learning rate."""
    weight_decay: float
    """Of matrices and kernels; biases and norms have none."""
    smoothing: float = 0.1
    """Share of a label given to all classes alike."""
    bfloat16: bool = False
    """Whether products are computed in 16 bits."""
    seed: int = 0


def fit(network: nn.Module, deal: Deal, count: int, recipe: Recipe, *, name: str) -> None:
    """Fit the parameters that take a gradient, in place; modules stay in the mode they are in.

    Args:
        network: From what is dealt to `n x K` logits.
        deal: Makes batches of the rows.
        count: N rows.
        recipe: How.
        name: What a line an epoch is told under.
    """
    generator = torch.Generator().manual_seed(recipe.seed)
    free = [parameter for parameter in network.parameters() if parameter.requires_grad]
    groups = [
        {"params": [parameter for parameter in free if parameter.ndim > 1], "weight_decay": recipe.weight_decay},
        {"params": [parameter for parameter in free if parameter.ndim <= 1], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=recipe.rate)
    steps = recipe.epochs * (count // recipe.batch_size)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: _share(step, steps))
    for epoch in range(recipe.epochs):
        began, loss_sum, correct = time.monotonic(), 0.0, 0
        # The rows that do not fill a batch wait for the next shuffle: batch norms dislike a small one.
        order = torch.randperm(count, generator=generator)
        batches = torch.split(order, recipe.batch_size)[: count // recipe.batch_size]
        for places in batches:
            inputs, labels = deal(places, generator)
            with torch.autocast("cpu", torch.bfloat16, enabled=recipe.bfloat16):
                logits = network(inputs).float()
            loss = F.cross_entropy(logits, labels, label_smoothing=recipe.smoothing)
            optimizer.zero_grad()
            torch.autograd.backward(loss)
            nn.utils.clip_grad_norm_(free, LARGEST_GRADIENT)
            optimizer.step()
            schedule.step()
            loss_sum += loss.item()
            correct += int((logits.argmax(1) == labels).sum())
        dealt = len(batches) * recipe.batch_size
        say(
            f"{name}: epoch {epoch + 1} of {recipe.epochs}, loss {loss_sum / len(batches):.3f}, accuracy "
            f"{correct / dealt:.4f} on what it learns from, {time.monotonic() - began:.0f} s"
        )


def _share(step: int, steps: int) -> float:
    """Of the highest learning rate."""
    rising = max(1, round(WARM_UP * steps))
    if step < rising:
        return (step + 1) / rising
    return 0.5 * (1 + math.cos(math.pi * (step - rising) / max(1, steps - rising)))


@torch.inference_mode()
def accuracy(backbone: Backbone, source: Source, *, batch_size: int = 250) -> float:
    """Share of a source's rows that the full network gets right."""
    correct = 0
    for start in range(0, len(source), batch_size):
        rows = source.read(start, min(start + batch_size, len(source)))
        logits = backbone(backbone.prepare(backbone.preprocessing(rows.inputs)))
        correct += int((logits.argmax(1) == torch.as_tensor(rows.labels)).sum())
    return correct / len(source)
