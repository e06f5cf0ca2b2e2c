"""Linear exits: on their own stage, as in the paper, or on all stages so far."""

from functools import cached_property
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor, nn

from offramp.exits._exit_set import ExitSet

__all__ = ["CumulativeLinearExits", "LinearExits"]


class LinearExits(ExitSet):
    """One linear layer on the pooled features of its stage: the paper's inference modules.

    Initialised as `torch.nn.Linear`. Weights are stored `K x W x D`, so that all cost weights are one matrix product,
    with samples last in memory.

    Args:
        widths: Number of features of each of the L stages.
        stages: Stages (0-based) that get a classifier, ascending.
        num_classes: K.
        stacked: W, the number of cost weights with classifiers of their own.

    Example:
        >>> exits = LinearExits((16, 32), (0,), 10, stacked=3)
        >>> [answer.shape for answer in exits(torch.zeros(5, 48))]
        [torch.Size([3, 5, 10])]
    """

    def __init__(self, widths: tuple[int, ...], stages: tuple[int, ...], num_classes: int, *, stacked: int = 1) -> None:
        super().__init__(widths, stages, num_classes, stacked=stacked)
        self.weights = nn.ParameterDict()
        self.biases = nn.ParameterDict()
        for stage in stages:
            width = self.input_width(stage)
            bound = width**-0.5
            weight = torch.empty(num_classes, 1, width).uniform_(-bound, bound)
            bias = torch.empty(num_classes, 1).uniform_(-bound, bound)
            self.weights[str(stage)] = nn.Parameter(weight.repeat(1, stacked, 1))
            self.biases[str(stage)] = nn.Parameter(bias.repeat(1, stacked))

    def options(self) -> dict[str, Any]:
        """Return W, the number of cost weights with classifiers of their own."""
        return {"stacked": self.stacked}

    def input_width(self, stage: int) -> int:
        """Return the number of features that the exit after `stage` reads."""
        return self.widths[stage]

    def forward(self, features: Tensor) -> list[Tensor]:
        """Return `W x N x K` logits of each exit."""
        state = self.initial_state(len(features))
        answers = []
        for stage in self.stages:
            answer, state = self._answer(stage, features[:, self.columns(stage)], state)
            answers.append(answer)
        return answers

    def step(self, stage: int, features: Tensor, state: Any, point: Tensor | None) -> tuple[Tensor, Any]:
        """Return the `n x K` logits of the exit after `stage`."""
        answer, state = self._answer(stage, features, state)
        return (answer[0] if point is None else answer[point, torch.arange(point.shape[0])]), state

    def stack(self, count: int) -> "LinearExits":
        """Return these exits, copied for `count` cost weights."""
        return self._with_points(torch.zeros(count, dtype=torch.long))

    def take(self, *points: int) -> "LinearExits":
        """Return the exits of some cost weights, in that order."""
        return self._with_points(torch.tensor(points))

    def copy_points(self, other: ExitSet, points: Tensor) -> None:
        """Copy the weights of other linear exits at `points`."""
        assert isinstance(other, LinearExits)
        with torch.no_grad():
            for stage in map(str, self.stages):
                self.weights[stage][:, points] = other.weights[stage][:, points]
                self.biases[stage][:, points] = other.biases[stage][:, points]

    def parameters_of(self, stage: int) -> list[nn.Parameter]:
        """Return the weight and bias of the exit after `stage`."""
        return [self.weights[str(stage)], self.biases[str(stage)]]

    def mul_adds(self, stage: int) -> tuple[int, int]:
        """Count a product and a bias, D K + K, as the paper does; there is no state."""
        return 0, (self.input_width(stage) + 1) * self.num_classes

    def _answer(self, stage: int, features: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Return the `W x n x K` logits of the exit after `stage`, and the state."""
        weight, bias = self.weights[str(stage)], self.biases[str(stage)]
        answer = torch.addmm(bias.view(-1, 1), weight.flatten(0, 1), features.T)
        return answer.view(self.num_classes, self.stacked, features.shape[0]).permute(1, 2, 0), state

    def _with_points(self, points: Tensor) -> "LinearExits":
        other = type(self)(self.widths, self.stages, self.num_classes, stacked=len(points))
        other.averaging = self.averaging
        with torch.no_grad():
            for stage in map(str, self.stages):
                other.weights[stage] = nn.Parameter(self.weights[stage].detach()[:, points].clone())
                other.biases[stage] = nn.Parameter(self.biases[stage].detach()[:, points].clone())
        return other


class CumulativeLinearExits(LinearExits):
    r"""One linear layer on the pooled features of all stages so far, the paper's $c^{\le l}$ in its simplest form.

    Example:
        >>> CumulativeLinearExits((16, 32, 64), (0, 1), 10).weights["1"].shape
        torch.Size([10, 1, 48])
    """

    carries_state = True

    def input_width(self, stage: int) -> int:
        """Return the number of features of all stages with an exit up to `stage`."""
        return self._input_widths[stage]

    @cached_property
    def _input_widths(self) -> dict[int, int]:
        return dict(zip(self.stages, accumulate(self.widths[stage] for stage in self.stages), strict=True))

    def _answer(self, stage: int, features: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Answer from all features so far; they are the state."""
        state = (*state, features)
        answer, _ = super()._answer(stage, torch.cat(state, dim=1), ())
        return answer, state
