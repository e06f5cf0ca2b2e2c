"""Checks of the classifier that is to be split, and of the example it is captured with."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, fx, nn
from torch.utils import _pytree as pytree

from offramp.backbone._hidden import SAMPLES_FIRST, Axes, Hidden
from offramp.errors import InputError, OfframpError, SplitRefusedError
from offramp.preprocessing._raw import plain_containers

__all__ = [
    "agree",
    "are_probabilities",
    "call_network",
    "check_end",
    "check_logits",
    "check_problem_type",
    "describe_shapes",
    "example_tensors",
    "guess_axes",
    "lacks_batch_axis",
    "logits_of",
    "mark_padding",
]


def call_network(network: nn.Module, inputs: Hidden) -> Any:
    """Call a network with a tensor, a tuple of arguments or a dictionary of named ones."""
    if isinstance(inputs, Mapping):
        return network(**inputs)
    return network(*inputs) if isinstance(inputs, tuple | list) else network(inputs)


def logits_of(outputs: Any) -> Any:
    """Return the class scores among a network's outputs: the tensor, the entry `logits`, or the first of a tuple."""
    if isinstance(outputs, Tensor | fx.Node):
        return outputs
    if isinstance(outputs, Mapping) and "logits" in outputs:
        return outputs["logits"]
    if isinstance(outputs, tuple | list) and outputs:
        return logits_of(outputs[0])
    raise SplitRefusedError(
        "output of the network",
        expected="class scores, or a dictionary with 'logits'",
        got=type(outputs).__name__,
        hint="wrap it in a module that returns the scores alone",
    )


def agree(logits: Tensor, expected: Tensor, *, rtol: float = 1e-4, atol: float = 1e-5) -> bool:
    """Return True if two runs gave the same `N x K` scores within rounding, a few percent in half precision."""
    largest = float(expected.abs().max()) if expected.numel() else 0.0
    precise = torch.finfo(expected.dtype).bits >= 32
    rounding = largest * (atol if precise else torch.finfo(expected.dtype).eps ** 0.5)
    return torch.allclose(logits, expected, rtol=rtol, atol=max(atol, rounding))


def are_probabilities(scores: Tensor) -> bool:
    """Return True if the rows of `N x K` scores are non-negative and sum to 1."""
    return bool((scores >= 0).all()) and torch.allclose(scores.sum(1), torch.ones_like(scores[:, 0]), atol=1e-4)


def check_problem_type(network: nn.Module) -> None:
    """Refuse a network whose configuration names another task than single-label classification."""
    problem_type = getattr(getattr(network, "config", None), "problem_type", None)
    if problem_type not in (None, "single_label_classification"):
        raise SplitRefusedError(
            expected="a network that gives one label per sample",
            got=f"one trained for {str(problem_type).replace('_', ' ')}",
        )


def check_logits(logits: Any) -> None:
    """Refuse outputs that are not `N x K` logits of single-label classification."""
    if not isinstance(logits, Tensor) or not logits.is_floating_point():
        raise SplitRefusedError(expected="class scores as a tensor of floats", got=type(logits).__name__)
    shape = tuple(logits.shape)
    if logits.ndim != 2:
        per_token = ": one label per token or position" if logits.ndim == 3 else ""
        raise SplitRefusedError(expected="scores N x K, one row per sample", got=f"shape {shape}{per_token}")
    if not bool(logits.isfinite().all()):
        raise SplitRefusedError(
            "the network's scores for the example are not all finite",
            hint="give another example; give classes that are never chosen low scores, not minus infinity",
        )
    if shape[1] < 2:
        raise SplitRefusedError(
            expected="at least 2 scores per sample",
            got="a single output: a regression, or two classes as one score",
            hint="for two classes, wrap the network so that it returns (0, score)",
        )
    if are_probabilities(logits):
        raise SplitRefusedError(
            expected="logits",
            got="probabilities that sum to 1",
            hint="remove the softmax at the end of the network",
        )


def check_end(module: fx.GraphModule, logits: fx.Node) -> None:
    """Refuse a network whose last operation is a sigmoid."""
    last = type(module.get_submodule(str(logits.target))).__name__ if logits.op == "call_module" else str(logits.target)
    if "sigmoid" in last.lower():
        raise SplitRefusedError(
            expected="a network that gives one label per sample",
            got="one that ends in a sigmoid, as in multi-label classification",
            hint="if it gives one label, remove the sigmoid",
        )


def example_tensors(example: Any, network: nn.Module) -> Hidden:
    """Return an example as tensors; arrays of floats in the precision of the network's first weight."""
    example = plain_containers(example)
    weights = (weight.dtype for weight in network.parameters() if weight.is_floating_point())
    precision = next(weights, torch.float32)

    def convert(leaf: Any) -> Any:
        if not isinstance(leaf, np.ndarray) or leaf.dtype.kind not in "biuf":
            return leaf
        tensor = torch.tensor(leaf)
        return tensor.to(precision) if tensor.is_floating_point() else tensor

    tensors = pytree.tree_map(convert, example)
    others = {type(leaf).__name__ for leaf in pytree.tree_leaves(tensors) if not isinstance(leaf, Tensor)}
    if others or not pytree.tree_leaves(tensors):
        raise InputError(
            expected="an example of tensors or arrays, as the network takes them",
            got=", ".join(sorted(others)) or "none",
            hint='for texts, give what tokenizer(texts, return_tensors="pt", padding=True) returns, or use '
            "offramp.backbone.adapters.transformers.text_backbone(model, tokenizer=tokenizer)",
        )
    return tensors


def guess_axes(example: Hidden) -> Any:
    """Guess the axes of an example.

    Samples come first; the second axis of integers is the length of a text; a single number is shared by all samples.
    """

    def guess(leaf: Tensor) -> Axes:
        if leaf.ndim > 1 and not leaf.is_floating_point():
            return Axes(lengths=(1,))
        return SAMPLES_FIRST if leaf.ndim else Axes(batch=None)

    return pytree.tree_map(guess, example)


def mark_padding(example: Hidden, mask: str) -> Hidden:
    """Return the example with half of its first sample marked as padding, so that a lost mask changes the output."""
    if not isinstance(example, Mapping) or mask not in example:
        raise InputError(
            "mask",
            expected="the name of an input",
            got=f"'{mask}', which is none",
            hint="give the inputs as a dictionary",
        )
    marks = example[mask].clone()
    if marks.ndim < 2:
        raise InputError(
            f"input '{mask}'",
            expected="a mask N x T",
            got=f"shape {tuple(marks.shape)}: the batch axis is missing",
            hint="add it with value[None] for each input",
        )
    marks[0, (marks.shape[1] + 1) // 2 :] = 0
    return {**example, mask: marks}


def lacks_batch_axis(network: nn.Module, example: Hidden) -> bool:
    """Return True if the network takes the example once a batch axis is put in front."""
    batch = pytree.tree_map(lambda leaf: leaf[None], example)
    try:
        with torch.no_grad():
            logits = logits_of(call_network(network, batch))
    except (OfframpError, IndexError, RuntimeError, TypeError, ValueError):
        return False
    return isinstance(logits, Tensor) and logits.ndim == 2 and len(logits) == 1


def describe_shapes(example: Hidden) -> str:
    """Describe the shapes of an example's first tensors, for an error message."""
    return ", ".join(f"shape {tuple(leaf.shape)}" for leaf in pytree.tree_leaves(example)[:4])
