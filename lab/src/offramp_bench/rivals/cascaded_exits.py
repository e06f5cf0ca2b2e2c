"""Cascaded exits: every classifier also reads the previous answer."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from offramp.exits._linear import LinearExits

__all__ = ["CascadedExits"]


class CascadedExits(LinearExits):
    r"""Linear exits on the features of their stage and the logits of the previous exit: [ZTW]'s cascade connections.

    $$f_l = A_l\, [z^l,\ \mathrm{LN}(\mathrm{stopgrad}(f_{l-1}))] + b_l, \qquad f_1 = A_1 z^1 + b_1$$

    No gradient passes to earlier exits, and the previous logits are normalised, as in the released code; its layer norm
    has a gain and a shift, which $A_l$ and $b_l$ already express. The state of a sample is $f_{l-1}$. The network's own
    head is not connected: it is not trained.

    [ZTW] is Wolczyk et al.: Zero Time Waste, NeurIPS 2021.

    Args:
        widths: Number of features of each of the L stages.
        stages: Stages (0-based) that get a classifier, ascending.
        num_classes: K.
        stacked: W, the number of cost weights with classifiers of their own.

    Example:
        >>> exits = CascadedExits((16, 32), (0, 1), 10)
        >>> [weight.shape[-1] for weight in exits.weights.values()]
        [16, 42]
    """

    carries_state = True

    def input_width(self, stage: int) -> int:
        """Return the number of features that the exit after `stage` reads: K more for all but the first."""
        return self.widths[stage] + (self.num_classes if stage != self.stages[0] else 0)

    def forward(self, features: Tensor) -> list[Tensor]:
        """Return `W x N x K` logits of each exit."""
        answers: list[Tensor] = []
        for stage in self.stages:
            own = self._own(stage, features[:, self.columns(stage)])
            if answers:
                previous = self._normalize(answers[-1].detach())
                own = own + torch.einsum("wnj,kwj->wnk", previous, self._connection(stage))
            answers.append(own)
        return answers

    def step(self, stage: int, features: Tensor, state: Any, point: Tensor | None) -> tuple[Tensor, Any]:
        """Return the `n x K` logits of the exit after `stage`, which are also the state."""
        answer = self._own(stage, features)
        own = answer[0] if point is None else answer[point, torch.arange(len(point), device=answer.device)]
        if stage != self.stages[0]:
            connection, previous = self._connection(stage), self._normalize(state)
            if point is None:
                own = own + F.linear(previous, connection[:, 0])
            else:
                own = own + torch.einsum("nj,knj->nk", previous, connection[:, point])
        return own, own

    def initial_state(self, count: int) -> Any:
        """Return `count x K` zeros, which the first exit does not read."""
        return self.biases[str(self.stages[0])].new_zeros(count, self.num_classes)

    def mul_adds(self, stage: int) -> tuple[int, int]:
        """Count all as carrying: product and bias, and from the second exit on a layer norm at 5 per element."""
        _, own = super().mul_adds(stage)
        return own + (5 * self.num_classes if stage != self.stages[0] else 0), 0

    def _own(self, stage: int, features: Tensor) -> Tensor:
        """Return the `W x n x K` part of the logits that the features of the stage give, with the bias."""
        weight = self.weights[str(stage)][:, :, : self.widths[stage]].flatten(0, 1)
        answer = torch.addmm(self.biases[str(stage)].view(-1, 1), weight, features.T)
        return answer.view(self.num_classes, self.stacked, len(features)).permute(1, 2, 0)

    def _connection(self, stage: int) -> Tensor:
        """Return the `K x W x K` weights of the previous logits."""
        weight: Tensor = self.weights[str(stage)]
        return weight[:, :, self.widths[stage] :]

    def _normalize(self, logits: Tensor) -> Tensor:
        return F.layer_norm(logits, (self.num_classes,))
