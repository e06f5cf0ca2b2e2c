"""What a network that can be split must give: one row of class scores a sample."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, fx, nn

from offramp.backbone.hidden import Hidden
from offramp.errors import SplitRefusedError

__all__ = ["agree", "are_probabilities", "call_network", "check_end", "check_problem", "check_task", "logits_of"]


def call_network(network: nn.Module, inputs: Hidden) -> Any:
    """Call a network with a tensor, a tuple of arguments or a dictionary of named ones."""
    if isinstance(inputs, Mapping):
        return network(**inputs)
    return network(*inputs) if isinstance(inputs, tuple | list) else network(inputs)


def logits_of(outputs: Any) -> Any:
    """The class scores among a network's outputs: the tensor itself, the entry `logits`, or the first of a tuple."""
    if isinstance(outputs, Tensor | fx.Node):
        return outputs
    if isinstance(outputs, Mapping) and "logits" in outputs:
        return outputs["logits"]
    if isinstance(outputs, tuple | list) and outputs:
        return logits_of(outputs[0])
    raise SplitRefusedError(
        f"expected the network to return class scores, or a dictionary with 'logits', got {type(outputs).__name__}; "
        "wrap it in a module that returns the scores alone"
    )


def agree(found: Tensor, expected: Tensor, *, rtol: float = 1e-4, atol: float = 1e-5) -> bool:
    """Whether two runs gave the same scores `N x K` but for rounding: in half precision, a few hundredths of them."""
    largest = float(expected.abs().max()) if expected.numel() else 0.0
    precise = torch.finfo(expected.dtype).bits >= 32
    rounding = largest * (atol if precise else torch.finfo(expected.dtype).eps ** 0.5)
    return torch.allclose(found, expected, rtol=rtol, atol=max(atol, rounding))


def are_probabilities(scores: Tensor) -> bool:
    """Whether the rows of `N x K` scores are probabilities: none below 0, each row summing to 1."""
    return bool((scores >= 0).all()) and torch.allclose(scores.sum(1), torch.ones_like(scores[:, 0]), atol=1e-4)


def check_problem(network: nn.Module) -> None:
    """Refuse a network whose configuration says that it was tuned for another task."""
    problem = getattr(getattr(network, "config", None), "problem_type", None)
    if problem not in (None, "single_label_classification"):
        raise SplitRefusedError(
            f"the network is tuned for {str(problem).replace('_', ' ')}; offramp takes networks that give one label a "
            "sample"
        )


def check_task(logits: Any) -> None:
    """Refuse what is not single-label classification."""
    if not isinstance(logits, Tensor) or not logits.is_floating_point():
        raise SplitRefusedError(f"expected class scores as a real tensor, got {type(logits).__name__}")
    shape = tuple(logits.shape)
    if logits.ndim == 3:
        raise SplitRefusedError(
            f"the network labels every token or position (scores of shape {shape}); offramp takes networks that give "
            "one label a sample, scores N x K"
        )
    if logits.ndim != 2:
        raise SplitRefusedError(f"expected scores N x K, one row a sample, got shape {shape}")
    if not bool(logits.isfinite().all()):
        raise SplitRefusedError(
            "the network's scores for the example are not all finite; give an example it answers with numbers, and let "
            "classes that are never meant have low scores, not minus infinity"
        )
    if shape[1] < 2:
        raise SplitRefusedError(
            "the network has a single output: a regression, or two classes as one score; offramp takes networks with "
            "K >= 2 scores a sample. For two classes, wrap it so that it returns (0, score)"
        )
    if are_probabilities(logits):
        raise SplitRefusedError(
            "the network returns probabilities that sum to 1; leave the softmax at its end out, so that it returns "
            "logits"
        )


def check_end(module: fx.GraphModule, logits: fx.Node) -> None:
    """Refuse networks whose last step is a sigmoid."""
    last = type(module.get_submodule(str(logits.target))).__name__ if logits.op == "call_module" else str(logits.target)
    if "sigmoid" in last.lower():
        raise SplitRefusedError(
            "the network ends in a sigmoid, as in multi-label classification; offramp takes networks that give one "
            "label a sample. If it is one, leave the sigmoid out"
        )
