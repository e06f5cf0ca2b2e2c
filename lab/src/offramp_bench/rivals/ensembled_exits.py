"""Ensembled exits: every exit averages the answers of all classifiers so far."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from offramp.errors import InputError
from offramp.exits._exit_set import EXITS, ExitSet, stack_exits
from offramp.functional._statistics import log_probabilities

__all__ = ["EnsembledExits"]

SPREAD = 0.01
"""Standard deviation of the initial weights: nearly a plain geometric mean."""


class EnsembledExits(ExitSet):
    r"""Exits that each average the answers so far: [ZTW]'s geometric ensemble.

    $$\log q^l = \frac1l \sum_{j \le l} e^{w^l_j} \log p^j + b^l$$

    over E exits, where $p^j$ is the answer of the j-th, up to a constant that a softmax removes. The state of a sample
    is the state of the exits and every $\log p^j$ so far. The network's own head answers alone: it was trained with the
    network on the same samples, so weighing it against the exits would be meaningless.

    [ZTW] is Wolczyk et al.: Zero Time Waste, NeurIPS 2021.

    Args:
        exits: The exits to average, shared by all cost weights.

    Example:
        >>> from offramp.exits import LinearExits
        >>> exits = EnsembledExits(LinearExits((16, 32), (0, 1), 10))
        >>> [answer.shape for answer in exits(torch.zeros(5, 48))]
        [torch.Size([1, 5, 10]), torch.Size([1, 5, 10])]
    """

    carries_state = True

    def __init__(self, exits: ExitSet) -> None:
        super().__init__(exits.widths, exits.stages, exits.num_classes)
        if exits.stacked > 1:
            raise InputError(
                expected="exits that all cost weights share",
                got=f"{exits.stacked} sets",
                hint="choose one with exits.take(index)",
            )
        self.exits = exits
        self.averaging, exits.averaging = exits.averaging, self.averaging  # only this object uses it
        count = len(exits.stages)
        self.weight = nn.Parameter(SPREAD * torch.randn(count, count))  # w, E x E; not used above the diagonal
        self.bias = nn.Parameter(torch.zeros(count, exits.num_classes))  # b, E x K

    def options(self) -> dict[str, Any]:
        """Return kind and options of the averaged exits."""
        return {"kind": self.exits.kind, "options": self.exits.options()}

    @classmethod
    def make(
        cls, widths: tuple[int, ...], stages: tuple[int, ...], num_classes: int, options: Mapping[str, Any]
    ) -> "EnsembledExits":
        """Make untrained exits of this kind, with the options that `options` returned."""
        inner = EXITS.get(options["kind"])
        return cls(inner.make(widths, stages, num_classes, options["options"]))

    def forward(self, features: Tensor) -> list[Tensor]:
        """Return `1 x N x K` logits of each exit."""
        return self.ensemble(self.members(features))

    def members(self, features: Tensor) -> Tensor:
        r"""Return `1 x N x E x K` answers $\log p^j$ of the averaged exits."""
        return log_probabilities(stack_exits(self.exits(features))).to(self.weight.dtype)

    def ensemble(self, members: Tensor) -> list[Tensor]:
        r"""Return `1 x N x K` answers $\log q^l$ of each exit, from the result of `members`."""
        # As they lie in memory, classes first and samples last: see `functional.log_probabilities`.
        mixed = self._shares() @ members.permute(3, 0, 2, 1) + self.bias.T[:, None, :, None]
        return [answer.permute(1, 2, 0) for answer in mixed.unbind(2)]

    def step(self, stage: int, features: Tensor, state: Any, point: Tensor | None) -> tuple[Tensor, Any]:
        """Return the answer of the exit after `stage`, and the state: that of the exits, and their answers so far."""
        inner, earlier = state
        logits, inner = self.exits.step(stage, features, inner, point)
        members = (*earlier, log_probabilities(logits).to(self.weight.dtype))
        place = self.stages.index(stage)
        shares = self._shares()[place, : place + 1]
        return torch.tensordot(shares, torch.stack(members), dims=1) + self.bias[place], (inner, members)

    def initial_state(self, count: int) -> Any:
        """Return the initial state of the exits, and no answers."""
        return self.exits.initial_state(count), ()

    def take(self, *points: int) -> "EnsembledExits":
        """Return these exits: all cost weights share them."""
        return self

    def copy_points(self, other: ExitSet, points: Tensor) -> None:
        """Copy the weights of other exits of this kind if any of `points` is set: all cost weights share them."""
        if points.any():
            self.load_state_dict(other.state_dict())

    def mul_adds(self, stage: int) -> tuple[int, int]:
        """Return Mul-Adds: carrying is a whole exit and a softmax (3 per class); answering, a sum over exits so far."""
        so_far = self.stages.index(stage) + 1
        return sum(self.exits.mul_adds(stage)) + 3 * self.num_classes, (so_far + 1) * self.num_classes

    def _shares(self) -> Tensor:
        """Return the `E x E` weights of the averaged answers in each answer."""
        count = torch.arange(1, len(self.weight) + 1, dtype=self.weight.dtype, device=self.weight.device)
        return self.weight.exp().tril() / count[:, None]
