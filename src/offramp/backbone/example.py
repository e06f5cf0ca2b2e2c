"""The example a network is captured with: a batch of tensors, and what its axes mean."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from offramp.backbone.hidden import SAMPLES_FIRST, Axes, Hidden
from offramp.backbone.raw import plain_containers
from offramp.backbone.task import call_network, logits_of
from offramp.errors import InputError, OfframpError

__all__ = ["as_tensors", "describe_shapes", "guess_axes", "lacks_batch_axis", "with_padding"]


def as_tensors(example: Any, model: nn.Module) -> Hidden:
    """Return an example as tensors; real numbers of arrays in the precision of the network's first weight."""
    example = plain_containers(example)
    precision = next((one.dtype for one in model.parameters() if one.is_floating_point()), torch.float32)

    def convert(leaf: Any) -> Any:
        if not isinstance(leaf, np.ndarray) or leaf.dtype.kind not in "biuf":
            return leaf
        tensor = torch.tensor(leaf)
        return tensor.to(precision) if tensor.is_floating_point() else tensor

    tensors = pytree.tree_map(convert, example)
    others = {type(leaf).__name__ for leaf in pytree.tree_leaves(tensors) if not isinstance(leaf, Tensor)}
    if others or not pytree.tree_leaves(tensors):
        raise InputError(
            f"expected an example of tensors or arrays, as the network takes them, got {', '.join(sorted(others)) or 0}"
            '; of texts, give what tokenizer(texts, return_tensors="pt", padding=True) returns, or use '
            "offramp.backbone.transformers.text_backbone(model, tokenizer=tokenizer)"
        )
    return tensors


def guess_axes(example: Hidden) -> Any:
    """Return the axes an example seems to have.

    Samples come first; of whole numbers, the second axis is the length of a text; a single number is for all samples.
    """

    def guessed(leaf: Tensor) -> Axes:
        if leaf.ndim > 1 and not leaf.is_floating_point():
            return Axes(lengths=(1,))
        return SAMPLES_FIRST if leaf.ndim else Axes(batch=None)

    return pytree.tree_map(guessed, example)


def with_padding(example: Hidden, mask: str) -> Hidden:
    """Return the example with half of its first sample marked as padding, so that a lost mask changes the answer."""
    if not isinstance(example, Mapping) or mask not in example:
        raise InputError(f"mask names an input, but there is no input '{mask}'; give the inputs as a dictionary")
    marks = example[mask].clone()
    if marks.ndim < 2:
        raise InputError(
            f"expected '{mask}' as N x T marks, got shape {tuple(marks.shape)}: the batch axis is missing; add it with "
            "value[None] for each input"
        )
    marks[0, (marks.shape[1] + 1) // 2 :] = 0
    return {**example, mask: marks}


def lacks_batch_axis(model: nn.Module, example: Hidden) -> bool:
    """Return whether a network answers the example as one sample, once a batch axis is put in front."""
    batch = pytree.tree_map(lambda leaf: leaf[None], example)
    try:
        with torch.no_grad():
            logits = logits_of(call_network(model, batch))
    except (OfframpError, IndexError, RuntimeError, TypeError, ValueError):
        return False
    return isinstance(logits, Tensor) and logits.ndim == 2 and len(logits) == 1


def describe_shapes(example: Hidden) -> str:
    """Return the shapes of an example's first tensors, for an error message."""
    return ", ".join(f"shape {tuple(leaf.shape)}" for leaf in pytree.tree_leaves(example)[:4])
