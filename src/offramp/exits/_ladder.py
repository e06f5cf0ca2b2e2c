r"""The ladder: exits that share a small state, updated after every stage."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from offramp.exits._exit_set import ExitSet

__all__ = ["LadderExits"]


class LadderExits(ExitSet):
    r"""Exits that read a state which every stage so far has updated.

    $$s^l = s^{l-1} + C_l\, \mathrm{gelu}\bigl(A_l \bar z^l + B_l\, \mathrm{LN}_{l-1}(s^{l-1})\bigr), \qquad
    \text{logits}^l = H_l\, \mathrm{LN}_l(s^l), \qquad s^0 = \mathrm{LN}_0(s^0) = 0$$

    with $\bar z$ the standardised features, gelu in its tanh form, and B, C, H with biases. It is a compact form of the
    paper's $c^{\le l}$, a classifier that uses everything computed so far. All cost weights share it. Every one of
    `stages` must run: skipping one would change every later state.

    Args:
        widths: Number of features of each of the L stages.
        stages: The E stages (0-based) that get an exit, ascending.
        num_classes: K.
        width: S, the size of the state.
        dropout: Share of the inner activations dropped in training; a sample has the same mask at every exit, as in
            recurrent networks (Gal and Ghahramani, 2016), so that one draw serves all.

    Example:
        >>> exits = LadderExits((16, 32), (0, 1), 10, width=8).eval()
        >>> [answer.shape for answer in exits(torch.zeros(5, 48))]
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
        count = len(stages)
        self.read = nn.ParameterDict({str(stage): _uniform(width, widths[stage]) for stage in stages})  # A, S x D
        self.mix = _uniform(count, width, width)  # B, E x S x S
        self.mix_bias = nn.Parameter(torch.zeros(count, width))
        self.write = _uniform(count, width, width)  # C, E x S x S
        self.write_bias = nn.Parameter(torch.zeros(count, width))
        self.gain = nn.Parameter(torch.ones(count, width))  # of LN
        self.shift = nn.Parameter(torch.zeros(count, width))
        self.head = _uniform(count, num_classes, width)  # H, E x K x S
        self.head_bias = nn.Parameter(torch.zeros(count, num_classes))

    def options(self) -> dict[str, Any]:
        """Return the width of the state; dropout matters only in training."""
        return {"width": self.width}

    def standardize(self, features: Tensor) -> None:
        """Set the center and scale of each feature from `n x D` sample rows.

        Stages differ in scale by orders of magnitude, and share one learning rate.
        """
        self.center.copy_(features.mean(0))
        for stage in range(len(self.widths)):
            columns = self.columns(stage)
            spread = features[:, columns].std(0, correction=0)
            usual = spread.mean().clamp_min(torch.finfo(spread.dtype).tiny)
            # A feature that hardly varies in these rows gets the usual scale; its own would blow it up.
            self.scale[columns] = torch.where(spread > 1e-4 * usual, spread, usual).reciprocal()
            if not spread.any():  # a single row has no spread
                self.scale[columns] = 1

    def forward(self, features: Tensor) -> list[Tensor]:
        """Return `1 x N x K` logits of each exit."""
        state = self.initial_state(len(features))
        ones = features.new_ones(len(features), self.width)
        mask = F.dropout(ones, self.dropout) if self.training else None
        # Unbound at once: the gradient of each `mix[index]` would have the size of all of `mix`.
        exit_weights = zip(*(weights.unbind() for weights in self._stacked_weights()), strict=True)
        normed = []
        for stage, weights in zip(self.stages, exit_weights, strict=True):
            state = self._update(stage, weights, features[:, self.columns(stage)], state, mask)
            normed.append(state[1])
        # All heads in one product: in training, time goes by the number of small operations.
        logits = torch.baddbmm(self.head_bias[:, None], torch.stack(normed), self.head.mT)
        return [answer[None] for answer in logits]

    def step(self, stage: int, features: Tensor, state: Any, _point: Tensor | None) -> tuple[Tensor, Any]:
        """Return the logits of the exit after `stage`, and the updated state."""
        index = self.stages.index(stage)
        weights = tuple(stacked[index] for stacked in self._stacked_weights())
        state = self._update(stage, weights, features, state, None)
        return F.linear(state[1], self.head[index], self.head_bias[index]), state

    def initial_state(self, count: int) -> Any:
        """Return the state and its layer norm, `count x S` zeros each."""
        zeros = self.center.new_zeros(count, self.width)
        return zeros, zeros

    def take(self, *_points: int) -> "LadderExits":
        """Return the ladder itself: all cost weights share it."""
        return self

    def copy_points(self, other: ExitSet, points: Tensor) -> None:
        """Copy the weights of another ladder if any of `points` is true."""
        if points.any():
            self.load_state_dict(other.state_dict())

    def mul_adds(self, stage: int) -> tuple[int, int]:
        """Count A, B, C and a layer norm at 5 per element; then H. Standardising folds into A and a bias."""
        width = self.width
        carrying = self.widths[stage] * width + 2 * (width + 1) * width + 5 * width
        return carrying, (width + 1) * self.num_classes

    def _stacked_weights(self) -> tuple[Tensor, ...]:
        """Return the weights of the update except A, one row per exit: B and C with biases, gain and shift of LN."""
        return self.mix, self.mix_bias, self.write, self.write_bias, self.gain, self.shift

    def _update(
        self,
        stage: int,
        weights: tuple[Tensor, ...],
        features: Tensor,
        state: tuple[Tensor, Tensor],
        mask: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        """Return the state and its layer norm after one exit; `weights` are the exit's rows of `_stacked_weights`."""
        carried, normed = state
        mix, mix_bias, write, write_bias, gain, shift = weights
        columns = self.columns(stage)
        # Standardising the weights instead of the features gives the same product, with fewer operations.
        weight = self.read[str(stage)] * self.scale[columns]
        bias = mix_bias - weight @ self.center[columns]
        inner = F.gelu(torch.addmm(F.linear(features, weight, bias), normed, mix.T), approximate="tanh")
        inner = inner if mask is None else inner * mask
        carried = torch.addmm(carried + write_bias, inner, write.T)
        return carried, F.layer_norm(carried, (self.width,), gain, shift)


def _uniform(*shape: int) -> nn.Parameter:
    """Return a weight initialised as in `torch.nn.Linear`, by its last axis."""
    bound = shape[-1] ** -0.5
    return nn.Parameter(torch.empty(shape).uniform_(-bound, bound))
