"""Averaging of the answers of a cascade's own heads."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from offramp.functional._statistics import log_probabilities

__all__ = ["Averaging"]


class Averaging(nn.Module):
    r"""The answers of a cascade's own heads, each averaged with the previous head's answer.

    $$\log p^j = \log\bigl((1 - w_j)\, \mathrm{softmax}(\text{logits}^j / T_j) + w_j\, p^{j-1}\bigr)$$

    Where $w_j = 0$ the head's own logits are returned unchanged.

    Args:
        stages: The H stages with a head of the network's own, ascending.
        shares: `H` shares $w_j$ of the previous answer; the first is 0.
        temperatures: `H` temperatures $T_j$.

    Example:
        >>> averaging = Averaging((2, 5), torch.tensor([0.0, 0.5]), torch.ones(2))
        >>> averaging({2: torch.tensor([[9.0, -9.0]]), 5: torch.tensor([[-9.0, 9.0]])})[5].exp()
        tensor([[0.5000, 0.5000]])
    """

    shares: Tensor
    temperatures: Tensor

    def __init__(self, stages: tuple[int, ...], shares: Tensor, temperatures: Tensor) -> None:
        super().__init__()
        self.stages = stages
        self.register_buffer("shares", shares)
        self.register_buffer("temperatures", temperatures)

    def forward(self, own_logits: Mapping[int, Tensor]) -> dict[int, Tensor]:
        """Return the `N x K` answer of every head, from the logits of each."""
        state: Any = ()
        answers = {}
        for stage, logits in sorted(own_logits.items()):
            answers[stage], state = self.step(stage, logits, state)
        return answers

    def step(self, stage: int, logits: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Return the answer of one head, and the state that the next head averages with."""
        if stage not in self.stages:
            return logits, state
        index = self.stages.index(stage)
        # In full precision, as shares and temperatures were fitted, whatever the network's dtype.
        precise = logits.to(torch.promote_types(logits.dtype, torch.float32))
        share = self.shares[index].to(precise.dtype)
        own = log_probabilities(precise / self.temperatures[index].to(precise.dtype))
        if share == 0:
            return logits, own
        mixed = torch.logaddexp(own + torch.log1p(-share), state + share.log())
        return mixed, mixed

    @property
    def read(self) -> frozenset[int]:
        """Stages whose answer a later head averages with; these heads run for every sample."""
        return frozenset(self.stages[index - 1] for index in self.shares.nonzero().flatten().tolist())
