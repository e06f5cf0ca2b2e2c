"""Training of a classifier: AdamW, a short linear warm-up, then a cosine schedule."""

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

__all__ = ["BatchMaker", "Recipe", "accuracy", "fit"]

BatchMaker = Callable[[Tensor, torch.Generator], tuple[Any, Tensor]]
"""Function from `n` row numbers and a generator to a batch: inputs of the network, and `n` labels."""

WARM_UP = 0.08
"""Share of the steps in which the learning rate rises."""

LARGEST_GRADIENT = 1.0
"""Norm to which gradients are clipped; without it, transformers from random weights diverge."""


@dataclass(frozen=True)
class Recipe:
    """Settings of a training."""

    epochs: int
    batch_size: int
    rate: float
    """Highest learning rate."""
    weight_decay: float
    """Weight decay of matrices and kernels; biases and norms have none."""
    smoothing: float = 0.1
    """Label smoothing: share of a label that is spread evenly over all classes."""
    bfloat16: bool = False
    """True to compute products in 16 bits."""
    seed: int = 0


def fit(network: nn.Module, make_batch: BatchMaker, count: int, recipe: Recipe, *, name: str) -> None:
    """Fit the parameters that take a gradient, in place; modules stay in the mode they are in.

    Args:
        network: Network from the inputs of a batch to `n x K` logits.
        make_batch: Function that makes a batch.
        count: N, the number of rows.
        recipe: Settings of the training.
        name: Name in the lines of progress, one per epoch.
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
        # Rows that do not fill a batch are left out until the next shuffle: batch norms need large batches.
        order = torch.randperm(count, generator=generator)
        batches = torch.split(order, recipe.batch_size)[: count // recipe.batch_size]
        for places in batches:
            inputs, labels = make_batch(places, generator)
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
        num_samples = len(batches) * recipe.batch_size
        say(
            f"{name}: epoch {epoch + 1} of {recipe.epochs}, loss {loss_sum / len(batches):.3f}, accuracy "
            f"{correct / num_samples:.4f} on what it learns from, {time.monotonic() - began:.0f} s"
        )


def _share(step: int, steps: int) -> float:
    """Return the learning rate at a step, as a share of the highest."""
    rising = max(1, round(WARM_UP * steps))
    if step < rising:
        return (step + 1) / rising
    return 0.5 * (1 + math.cos(math.pi * (step - rising) / max(1, steps - rising)))


@torch.inference_mode()
def accuracy(backbone: Backbone, source: Source, *, batch_size: int = 250) -> float:
    """Return the share of samples that the full network classifies correctly."""
    correct = 0
    for start in range(0, len(source), batch_size):
        rows = source.read(start, min(start + batch_size, len(source)))
        logits = backbone(backbone.prepare(backbone.preprocessing(rows.inputs)))
        correct += int((logits.argmax(1) == torch.as_tensor(rows.labels)).sum())
    return correct / len(source)
