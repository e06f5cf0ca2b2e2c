"""The seam to what is trained: a classifier after every stage that has no head of its own."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor, nn

from offramp.errors import InputError
from offramp.exits.averaging import Averaging
from offramp.registry import Registry

__all__ = ["EXITS", "ExitBank", "all_logits", "stack_exits"]


class ExitBank(nn.Module, ABC):
    """The trained classifiers of all exits, for one cost weight or many.

    Exits stand after `stages`; after every other stage the network's own head answers. A bank runs in two ways that
    give the same numbers: all exits at once on cached features (`forward`), or exit by exit with a state that travels
    with the samples (`step`).

    Args:
        widths: Features of each of the L stages.
        stages: Stages (0-based) that get a classifier, ascending.
        num_classes: K.
        stacked: W, how many cost weights have classifiers of their own; 1 where all share them.

    Attributes:
        averaging: How the network's own heads answer, where there are several.
    """

    carries_state = False
    """Whether an exit reads more than its own stage, so that earlier stages must be pooled even where nobody leaves."""

    def __init__(self, widths: tuple[int, ...], stages: tuple[int, ...], num_classes: int, *, stacked: int = 1) -> None:
        super().__init__()
        if not stages:
            raise InputError(f"a network of {len(widths)} stages, all with heads of their own, has no exit to train")
        if list(stages) != sorted(set(stages)) or not 0 <= stages[0] <= stages[-1] < len(widths):
            raise InputError(f"expected ascending stages within 0..{len(widths) - 1}, got {stages}")
        if num_classes < 2:
            raise InputError(f"a classifier needs at least 2 classes, got {num_classes}")
        self.widths = widths
        self.stages = stages
        self.num_classes = num_classes
        self.stacked = stacked
        self.averaging = Averaging((), torch.zeros(0), torch.zeros(0))
        self._ends = list(accumulate(widths))

    def options(self) -> dict[str, Any]:
        """Return what `make` needs beside widths, stages and classes to make such exits again, as JSON holds it.

        By default nothing: the constructor's other arguments have defaults that fit.
        """
        return {}

    @property
    def kind(self) -> str:
        """Name that artifacts give such exits: the registered one, or `package.module:Class`."""
        return EXITS.name_of(type(self))

    @classmethod
    def make(
        cls, widths: tuple[int, ...], stages: tuple[int, ...], num_classes: int, options: Mapping[str, Any]
    ) -> "ExitBank":
        """Make such exits, untrained, from what `options` returned."""
        return cls(widths, stages, num_classes, **options)

    @abstractmethod
    def forward(self, features: Tensor) -> list[Tensor]:
        """Answers of every exit from `N x D` cached features: `W x N x K` logits for each of `stages`."""

    @abstractmethod
    def step(self, stage: int, features: Tensor, state: Any, point: Tensor | None) -> tuple[Tensor, Any]:
        """Answer of one exit for samples that have come this far.

        Args:
            stage: The stage that has just run; one of `stages`.
            features: `n x D_stage` pooled features of it.
            state: What `step` returned at the exit before, for these samples.
            point: `n` indices into the stacked weights; None where they are shared.

        Returns:
            `n x K` logits and the state to carry on: a pytree of tensors, samples first.
        """

    @abstractmethod
    def mul_adds(self, stage: int) -> tuple[int, int]:
        """Operations a sample of (carrying the state past `stage`, answering there)."""

    @abstractmethod
    def take(self, *points: int) -> "ExitBank":
        """The exits of some cost weights alone, in that order; the bank itself where they are shared."""

    @abstractmethod
    def copy_points(self, other: "ExitBank", points: Tensor) -> None:
        """Take over the weights of another bank of the same shape at `points`, `W` booleans; all of them if shared."""

    def initial_state(self, count: int) -> Any:
        """The state of `count` samples before the first stage."""
        return ()

    def columns(self, stage: int) -> slice:
        """Where the features of `stage` stand in a row of the store."""
        return slice(self._ends[stage] - self.widths[stage], self._ends[stage])


EXITS: Registry[type[ExitBank]] = Registry("exits")
"""Kinds of exits, by the name an artifact gives them."""

EXITS.add("cumulative", "offramp.exits.linear:CumulativeLinearExits")
EXITS.add("ladder", "offramp.exits.ladder:LadderExits")
EXITS.add("linear", "offramp.exits.linear:LinearExits")


def all_logits(bank: ExitBank, features: Tensor, own_logits: Mapping[int, Tensor]) -> Tensor:
    """Answers of all L exits: the bank's, and the network's own heads where it has them.

    Args:
        bank: The trained exits.
        features: `N x D` cached features.
        own_logits: `N x K` scores of the network's own heads, by stage.

    Returns:
        `W x N x L x K` logits.
    """
    dtype = next(bank.parameters()).dtype
    by_stage = dict(zip(bank.stages, bank(features.to(dtype)), strict=True))
    for stage, logits in bank.averaging(own_logits).items():
        by_stage.setdefault(stage, logits.to(dtype).expand(bank.stacked, -1, -1))
    missing = sorted(set(range(len(bank.widths))) - set(by_stage))
    if missing:
        raise InputError(f"no classifier and no own head after stages {missing}; give the bank those stages")
    return stack_exits([by_stage[stage] for stage in range(len(bank.widths))])


def stack_exits(answers: Sequence[Tensor]) -> Tensor:
    """Put the exits' answers side by side.

    Args:
        answers: `W x N x K` logits of each exit.

    Returns:
        `W x N x L x K` logits; in memory, classes first and samples last: see `functional.log_probabilities`.
    """
    return torch.stack([answer.permute(2, 0, 1) for answer in answers], dim=2).permute(1, 3, 2, 0)
