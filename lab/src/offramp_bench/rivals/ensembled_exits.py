"""Ensembled exits: every exit answers with all the classifiers so far."""

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
    r"""A bank of exits, each of which averages the answers so far: [ZTW]'s geometric ensemble.

    $$\log q^l = \frac1l \sum_{j \le l} e^{w^l_j} \log p^j + b^l$$

    over the bank's E exits, $p^j$ the answer of the j-th, up to a constant that a softmax takes away. What a sample
    carries is the bank's own state and every $\log p^j$ so far. The network's own head at the end answers alone: it was
    trained with the network, on samples it remembers, where weighing it against the exits says nothing.

    [ZTW] is Wolczyk et al.: Zero Time Waste, NeurIPS 2021.

    Args:
        bank: The exits to put together, shared by all cost weights.

    Example:
        >>> from offramp.exits import LinearExits
        >>> bank = EnsembledExits(LinearExits((16, 32), (0, 1), 10))
        >>> [answer.shape for answer in bank(torch.zeros(5, 48))]
        [torch.Size([1, 5, 10]), torch.Size([1, 5, 10])]
    """

    carries_state = True

    def __init__(self, bank: ExitSet) -> None:
        super().__init__(bank.widths, bank.stages, bank.num_classes)
        if bank.stacked > 1:
            raise InputError(
                f"expected exits that all cost weights share, got {bank.stacked} sets; choose one with bank.take(index)"
            )
        self.bank = bank
        self.averaging, bank.averaging = bank.averaging, self.averaging  # kept once, and read here
        exits = len(bank.stages)
        self.weight = nn.Parameter(SPREAD * torch.randn(exits, exits))  # w, E x E; above the diagonal, no part of it
        self.bias = nn.Parameter(torch.zeros(exits, bank.num_classes))  # b, E x K

    def options(self) -> dict[str, Any]:
        """Kind and options of the exits that are put together."""
        return {"kind": self.bank.kind, "options": self.bank.options()}

    @classmethod
    def make(
        cls, widths: tuple[int, ...], stages: tuple[int, ...], num_classes: int, options: Mapping[str, Any]
    ) -> "EnsembledExits":
        """Make such exits, untrained, from what `options` returned."""
        inner = EXITS.get(options["kind"])
        return cls(inner.make(widths, stages, num_classes, options["options"]))

    def forward(self, features: Tensor) -> list[Tensor]:
        """Answers of every exit: `1 x N x K` logits each."""
        return self.ensembled(self.members(features))

    def members(self, features: Tensor) -> Tensor:
        r"""$\log p^j$ of the bank's exits by themselves, `1 x N x E x K`."""
        return log_probabilities(stack_exits(self.bank(features))).to(self.weight.dtype)

    def ensembled(self, members: Tensor) -> list[Tensor]:
        r"""$\log q^l$ of every exit, `1 x N x K` each, from those of the members, `1 x N x E x K`."""
        # As they lie in memory, classes first and samples last: see `functional.log_probabilities`.
        mixed = self._shares() @ members.permute(3, 0, 2, 1) + self.bias.T[:, None, :, None]
        return [answer.permute(1, 2, 0) for answer in mixed.unbind(2)]

    def step(self, stage: int, features: Tensor, state: Any, point: Tensor | None) -> tuple[Tensor, Any]:
        """Answer of the exit after `stage`, and the state: the bank's own, and the answers so far by themselves."""
        inner, earlier = state
        logits, inner = self.bank.step(stage, features, inner, point)
        members = (*earlier, log_probabilities(logits).to(self.weight.dtype))
        place = self.stages.index(stage)
        shares = self._shares()[place, : place + 1]
        return torch.tensordot(shares, torch.stack(members), dims=1) + self.bias[place], (inner, members)

    def initial_state(self, count: int) -> Any:
        """The bank's own, and no answers."""
        return self.bank.initial_state(count), ()

    def take(self, *points: int) -> "EnsembledExits":
        """The exits themselves: all cost weights share them."""
        return self

    def copy_points(self, other: ExitSet, points: Tensor) -> None:
        """Take over the weights of other such exits if any of `points` is set: all cost weights share them."""
        if points.any():
            self.load_state_dict(other.state_dict())

    def mul_adds(self, stage: int) -> tuple[int, int]:
        """Carrying is the bank's whole exit and a softmax at 3 a class; answering, a sum over the exits so far."""
        so_far = self.stages.index(stage) + 1
        return sum(self.bank.mul_adds(stage)) + 3 * self.num_classes, (so_far + 1) * self.num_classes

    def _shares(self) -> Tensor:
        """`E x E`: what each member counts in each answer."""
        count = torch.arange(1, len(self.weight) + 1, dtype=self.weight.dtype, device=self.weight.device)
        return self.weight.exp().tril() / count[:, None]
