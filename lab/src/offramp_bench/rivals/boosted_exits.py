"""Boosted exits: every classifier corrects the previous one."""

from typing import Any

from torch import Tensor

from offramp.exits._linear import LinearExits

__all__ = ["BoostedExits"]

SHARE = 0.5
"""Share of the previous logits in the logits of an exit: the temperature t of [BoostedNet]."""


class BoostedExits(LinearExits):
    r"""Linear exits that add their logits to half of the previous exit's: [BoostedNet]'s additive ensemble.

    $$F_l = f_l(z^l) + t\, \mathrm{stopgrad}(F_{l-1}), \qquad F_0 = 0,\ t = \tfrac12$$

    with $f_l$ linear on the stage's features. No gradient passes to the earlier exits: each is trained for its own
    answer. The state of a sample is $F_{l-1}$, so a classifier runs even where its exit is not in use: the next one
    needs it. The network's own head is not connected: it is not trained, so it cannot correct anything.

    [BoostedNet] is Yu et al.: Boosted Dynamic Neural Networks, AAAI 2023.

    Args:
        widths: Number of features of each of the L stages.
        stages: Stages (0-based) that get a classifier, ascending.
        num_classes: K.
        stacked: W, the number of cost weights with classifiers of their own.

    Example:
        >>> import torch
        >>> exits = BoostedExits((1, 1), (0, 1), 2)
        >>> for parameter in exits.parameters():
        ...     _ = torch.nn.init.ones_(parameter)
        >>> [answer[0, 0, 0].item() for answer in exits(torch.ones(1, 2))]
        [2.0, 3.0]
    """

    carries_state = True

    def forward(self, features: Tensor) -> list[Tensor]:
        """Return `W x N x K` logits of each exit."""
        answers: list[Tensor] = []
        for own in super().forward(features):
            answers.append(own + SHARE * answers[-1].detach() if answers else own)
        return answers

    def step(self, stage: int, features: Tensor, state: Any, point: Tensor | None) -> tuple[Tensor, Any]:
        """Return the `n x K` logits of the exit after `stage`, which are also the state."""
        own, _ = super().step(stage, features, (), point)
        answer = own + SHARE * state
        return answer, answer

    def initial_state(self, count: int) -> Any:
        """Return `count x K` zeros, which the first exit corrects."""
        return self.biases[str(self.stages[0])].new_zeros(count, self.num_classes)

    def mul_adds(self, stage: int) -> tuple[int, int]:
        """Count all as carrying: D K + K, and from the second exit on K for the previous logits."""
        _, own = super().mul_adds(stage)
        return own + (self.num_classes if stage != self.stages[0] else 0), 0
