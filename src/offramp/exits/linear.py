"""Linear exits: on their own stage, as in the paper, or on all stages so far."""

from itertools import groupby
from typing import Any

import torch
from torch import Tensor, nn

from offramp.exits.bank import ExitBank

__all__ = ["CumulativeLinearExits", "LinearExits"]


class LinearExits(ExitBank):
    """One linear layer on the pooled features of its stage: the paper's inference modules.

    Initialised as `torch.nn.Linear`. Weights are stored `K x W x D`, so that W cost weights are one matrix product
    whose result has samples last in memory.

    Args:
        widths: Features of each of the L stages.
        stages: Stages (0-based) that get a classifier, ascending.
        num_classes: K.
        stacked: W, how many cost weights have classifiers of their own.

    Example:
        >>> bank = LinearExits((16, 32), (0,), 10, stacked=3)
        >>> [answer.shape for answer in bank(torch.zeros(5, 48))]
        [torch.Size([3, 5, 10])]
    """

    def __init__(self, widths: tuple[int, ...], stages: tuple[int, ...], num_classes: int, *, stacked: int = 1) -> None:
        super().__init__(widths, stages, num_classes, stacked=stacked)
        self.weights = nn.ParameterDict()
        self.biases = nn.ParameterDict()
        for stage in stages:
            reads = self.reads(stage)
            bound = reads**-0.5
            weight = torch.empty(num_classes, 1, reads).uniform_(-bound, bound)
            bias = torch.empty(num_classes, 1).uniform_(-bound, bound)
            self.weights[str(stage)] = nn.Parameter(weight.repeat(1, stacked, 1))
            self.biases[str(stage)] = nn.Parameter(bias.repeat(1, stacked))

    def options(self) -> dict[str, Any]:
        """Return W, the number of cost weights with classifiers of their own."""
        return {"stacked": self.stacked}

    def reads(self, stage: int) -> int:
        """How many features the exit after `stage` looks at."""
        return self.widths[stage]

    def forward(self, features: Tensor) -> list[Tensor]:
        """Answers of every exit: `W x N x K` logits each."""
        answers: list[Tensor] = []
        for _, group in groupby(self.stages, key=lambda stage: self.widths[stage]):
            # Exits of one width in one product: a dozen small ones are a dozen waits for the other threads.
            stages = list(group)
            inputs = torch.stack([features[:, self.columns(stage)] for stage in stages])
            weight = torch.stack([self.weights[str(stage)].flatten(0, 1) for stage in stages])
            bias = torch.stack([self.biases[str(stage)].view(-1, 1) for stage in stages])
            for answer in torch.baddbmm(bias, weight, inputs.mT):
                answers.append(answer.view(self.num_classes, self.stacked, -1).permute(1, 2, 0))
        return answers

    def step(self, stage: int, features: Tensor, state: Any, point: Tensor | None) -> tuple[Tensor, Any]:
        """Answer of the exit after `stage`: `n x K` logits; there is no state."""
        answer, state = self._answer(stage, features, state)
        return (answer[0] if point is None else answer[point, torch.arange(len(point))]), state

    def stack(self, count: int) -> "LinearExits":
        """The same exits, copied for `count` cost weights."""
        return self._restacked(torch.zeros(count, dtype=torch.long))

    def take(self, *points: int) -> "LinearExits":
        """The exits of some cost weights alone, in that order."""
        return self._restacked(torch.tensor(points))

    def copy_points(self, other: ExitBank, points: Tensor) -> None:
        """Take over the weights of another bank at `points`."""
        assert isinstance(other, LinearExits)
        with torch.no_grad():
            for stage in map(str, self.stages):
                self.weights[stage][:, points] = other.weights[stage][:, points]
                self.biases[stage][:, points] = other.biases[stage][:, points]

    def parameters_of(self, stage: int) -> list[nn.Parameter]:
        """The weight and bias of the exit after `stage`."""
        return [self.weights[str(stage)], self.biases[str(stage)]]

    def mul_adds(self, stage: int) -> tuple[int, int]:
        """A product and a bias: D K + K, as the paper counts; nothing to carry."""
        return 0, (self.reads(stage) + 1) * self.num_classes

    def _answer(self, stage: int, features: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Answers `W x n x K` of the exit after `stage`, and the state to carry on."""
        weight, bias = self.weights[str(stage)], self.biases[str(stage)]
        answer = torch.addmm(bias.view(-1, 1), weight.flatten(0, 1), features.T)
        return answer.view(self.num_classes, self.stacked, len(features)).permute(1, 2, 0), state

    def _restacked(self, points: Tensor) -> "LinearExits":
        other = type(self)(self.widths, self.stages, self.num_classes, stacked=len(points))
        other.averaging = self.averaging
        with torch.no_grad():
            for stage in map(str, self.stages):
                other.weights[stage] = nn.Parameter(self.weights[stage].detach()[:, points].clone())
                other.biases[stage] = nn.Parameter(self.biases[stage].detach()[:, points].clone())
        return other


class CumulativeLinearExits(LinearExits):
    r"""One linear layer on the pooled features of all stages so far.

    The paper's $c^{\le l}$ lets a classifier read everything computed up to its stage; this is the plainest use of it.

    Example:
        >>> CumulativeLinearExits((16, 32, 64), (0, 1), 10).weights["1"].shape
        torch.Size([10, 1, 48])
    """

    carries_state = True

    def reads(self, stage: int) -> int:
        """How many features the stages with an exit have brought up to `stage`."""
        return sum(self.widths[earlier] for earlier in self.stages if earlier <= stage)

    def forward(self, features: Tensor) -> list[Tensor]:
        """Answers of every exit: `W x N x K` logits each."""
        state = self.initial_state(len(features))
        answers = []
        for stage in self.stages:
            answer, state = self._answer(stage, features[:, self.columns(stage)], state)
            answers.append(answer)
        return answers

    def _answer(self, stage: int, features: Tensor, state: Any) -> tuple[Tensor, Any]:
        """As above, on everything so far: the state is the tuple of all features."""
        state = (*state, features)
        answer, _ = super()._answer(stage, torch.cat(state, dim=1), ())
        return answer, state
