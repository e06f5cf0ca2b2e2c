"""Functions that return class scores as backbones: members of a cascade that are only called."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from offramp.backbone._backbone import Backbone
from offramp.backbone._classifier import are_probabilities
from offramp.errors import InputError
from offramp.preprocessing._preprocessing import AS_IS, Preprocessing

__all__ = ["callable_backbone"]


def callable_backbone(
    function: Callable[[Any], Any],
    num_classes: int,
    *,
    name: str,
    mul_adds: float,
    preprocessing: Preprocessing = AS_IS,
) -> Backbone:
    """Make a function that returns class scores a backbone of one stage, to be a member of a cascade.

    Args:
        function: Prepared inputs to `N x K` scores, logits or log-probabilities: an array or a tensor.
        num_classes: K.
        name: The function's identity in a feature store: give another function another name.
        mul_adds: Mul-Adds per sample, which cannot be counted.
        preprocessing: From raw inputs to what the function takes.

    Example:
        >>> member = callable_backbone(lambda inputs: inputs[:, :3], 3, name="first-three", mul_adds=3)
        >>> member(torch.eye(4)).shape
        torch.Size([4, 3])
    """
    backbone = _Scores(name, [_Function(function, num_classes)], {0: nn.Identity()}, num_classes)
    backbone.preprocessing = preprocessing
    backbone.declared_mul_adds = {0: mul_adds}
    return backbone


class _Scores(Backbone):
    def prepare(self, inputs: Any) -> Any:
        """Return inputs unchanged: only the function knows what it takes."""
        return inputs


class _Function(nn.Module):
    def __init__(self, function: Callable[[Any], Any], num_classes: int) -> None:
        super().__init__()
        self.function, self.num_classes = function, num_classes

    def forward(self, inputs: Any) -> Tensor:
        scores = torch.as_tensor(self.function(inputs))
        if scores.ndim != 2 or scores.shape[1] != self.num_classes:
            raise InputError(expected=f"N x {self.num_classes} scores of the function", got=f"{tuple(scores.shape)}")
        if are_probabilities(scores.float()):
            raise InputError(
                expected="scores of the function",
                got="probabilities",
                hint="return their logarithms (scikit-learn: decision_function or predict_log_proba)",
            )
        return scores.float()
