r"""The ladder: one small state that every sample carries up the network."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from offramp.exits.bank import ExitBank

__all__ = ["LadderExits"]


class LadderExits(ExitBank):
    r"""Exits that read a state into which every stage so far has written.

    $$s^l = s^{l-1} + C_l\, \mathrm{gelu}\bigl(A_l \bar z^l + B_l\, \mathrm{LN}_{l-1}(s^{l-1})\bigr), \qquad
    \text{logits}^l = H_l\, \mathrm{LN}_l(s^l), \qquad s^0 = \mathrm{LN}_0(s^0) = 0$$

    with $\bar z$ the features standardised, gelu in its tanh form, and B, C, H with biases. It is the paper's
    $c^{\le l}$ made small: a classifier may use everything computed so far. All cost weights share it. The rungs stand
    at `stages` and nowhere else: skipping one would change every later state.

    Args:
        widths: Features of each of the L stages.
        stages: Stages (0-based) that get a rung, ascending; E of them.
        num_classes: K.
        width: Numbers in the state, S.
        dropout: Share of the inner activations dropped while training: the same ones of a sample at every rung, as in
            recurrent networks (Gal and Ghahramani, 2016), which needs one draw where fresh ones would need E.

    Example:
        >>> bank = LadderExits((16, 32), (0, 1), 10, width=8).eval()
        >>> [answer.shape for answer in bank(torch.zeros(5, 48))]
        [torch.Size([1, 5, 10]), torch.Size([1, 5, 10])]
    """

    carries_state = True
    center: Tensor
    scale: Tensor

    def __init__(
        self,
        widths: tuple[int, ...],
        stages: tuple[int, ...],
        num_classes: int,
        *,
        width: int,
        dropout: float = 0.1,
    ) -> None:
        super().__init__(widths, stages, num_classes)
        self.width = width
        self.dropout = dropout
        self.register_buffer("center", torch.zeros(sum(widths)))
        self.register_buffer("scale", torch.ones(sum(widths)))
        rungs = len(stages)
        self.read = nn.ParameterDict({str(stage): _uniform(width, widths[stage]) for stage in stages})  # A, S x D
        self.mix = _uniform(rungs, width, width)  # B, E x S x S
        self.mix_bias = nn.Parameter(torch.zeros(rungs, width))
        self.write = _uniform(rungs, width, width)  # C, E x S x S
        self.write_bias = nn.Parameter(torch.zeros(rungs, width))
        self.gain = nn.Parameter(torch.ones(rungs, width))  # of LN
        self.shift = nn.Parameter(torch.zeros(rungs, width))
        self.head = _uniform(rungs, num_classes, width)  # H, E x K x S
        self.head_bias = nn.Parameter(torch.zeros(rungs, num_classes))

    def options(self) -> dict[str, Any]:
        """Return the width of the state; dropout matters in training alone."""
        return {"width": self.width}

    def standardize(self, features: Tensor) -> None:
        """Fix the center and scale of each feature from a sample of rows, `n x D`.

        Stages differ in scale by orders of magnitude; a shared learning rate wants them alike.
        """
        self.center.copy_(features.mean(0))
        for stage in range(len(self.widths)):
            columns = self.columns(stage)
            spread = features[:, columns].std(0, correction=0)
            usual = spread.mean().clamp_min(torch.finfo(spread.dtype).tiny)
            # A feature that hardly varies in the sample would be blown up by its own spread.
            self.scale[columns] = torch.where(spread > 1e-4 * usual, spread, usual).reciprocal()
            if not spread.any():  # a sample of one row says nothing of scales
                self.scale[columns] = 1

    def forward(self, features: Tensor) -> list[Tensor]:
        """Answers of every exit: `1 x N x K` logits each."""
        state = self.initial_state(len(features))
        ones = features.new_ones(len(features), self.width)
        kept = F.dropout(ones, self.dropout) if self.training else None
        normed = []
        for rung, stage in enumerate(self.stages):
            state = self._climb(rung, features[:, self.columns(stage)], state, kept)
            normed.append(state[1])
        # All heads in one product: most of what a rung costs in training is the number of small operations.
        logits = torch.baddbmm(self.head_bias[:, None], torch.stack(normed), self.head.mT)
        return [answer[None] for answer in logits]

    def step(self, stage: int, features: Tensor, state: Any, point: Tensor | None) -> tuple[Tensor, Any]:
        """Answer of the exit after `stage`, and the state after its rung."""
        rung = self.stages.index(stage)
        state = self._climb(rung, features, state, None)
        return F.linear(state[1], self.head[rung], self.head_bias[rung]), state

    def initial_state(self, count: int) -> Any:
        """The state and its layer norm, `count x S` each: zeros, before the first rung."""
        zeros = self.center.new_zeros(count, self.width)
        return zeros, zeros

    def take(self, *points: int) -> "LadderExits":
        """The ladder itself: all cost weights share it."""
        return self

    def copy_points(self, other: ExitBank, points: Tensor) -> None:
        """Take over the weights of another ladder if any of `points` is set: all cost weights share them."""
        if points.any():
            self.load_state_dict(other.state_dict())

    def mul_adds(self, stage: int) -> tuple[int, int]:
        """A; B and C with their biases; a layer norm at 5 an element; then H. Standardising folds into A and a bias."""
        width = self.width
        carrying = self.widths[stage] * width + 2 * (width + 1) * width + 5 * width
        return carrying, (width + 1) * self.num_classes

    def _climb(
        self, rung: int, features: Tensor, state: tuple[Tensor, Tensor], kept: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        carried, normed = state
        columns = self.columns(self.stages[rung])
        # Standardising the weights instead of the features is the same product, with fewer numbers to touch.
        weight = self.read[str(self.stages[rung])] * self.scale[columns]
        bias = self.mix_bias[rung] - weight @ self.center[columns]
        inner = F.gelu(torch.addmm(F.linear(features, weight, bias), normed, self.mix[rung].T), approximate="tanh")
        inner = inner if kept is None else inner * kept
        carried = torch.addmm(carried + self.write_bias[rung], inner, self.write[rung].T)
        return carried, F.layer_norm(carried, (self.width,), self.gain[rung], self.shift[rung])


def _uniform(*shape: int) -> nn.Parameter:
    """A weight initialised as `torch.nn.Linear` does, by its last axis."""
    bound = shape[-1] ** -0.5
    return nn.Parameter(torch.empty(shape).uniform_(-bound, bound))
