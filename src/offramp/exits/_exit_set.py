"""The interface of all trained classifiers: one after every stage that has no head of the network's own."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor, nn

from offramp._registry import Registry
from offramp.errors import InputError
from offramp.exits._averaging import Averaging

__all__ = ["EXITS", "ExitSet", "all_logits", "stack_exits"]


class ExitSet(nn.Module, ABC):
    """The trained classifiers of all exits, for one cost weight or many.

    There is one exit after each of `stages`; after every other stage the network's own head answers. Exits run in two
    ways with the same result: all at once on cached features (`forward`), or one by one with a state that travels with
    the samples (`step`).

    Args:
        widths: Number of features of each of the L stages.
        stages: Stages (0-based) that get a classifier, ascending.
        num_classes: K.
        stacked: W, the number of cost weights with classifiers of their own; 1 where all share them.

    Attributes:
        averaging: The averaging of the network's own heads, where there are several.
    """

    carries_state = False
    """True if an exit reads more than its own stage, so that earlier stages must be pooled even if no sample leaves."""

    def __init__(self, widths: tuple[int, ...], stages: tuple[int, ...], num_classes: int, *, stacked: int = 1) -> None:
        super().__init__()
        if list(stages) != sorted(set(stages)) or any(not 0 <= stage < len(widths) for stage in stages):
            raise InputError(expected=f"ascending stages in 0 to {len(widths) - 1}", got=stages)
        if num_classes < 2:
            raise InputError(expected="at least 2 classes", got=num_classes)
        self.widths = widths
        self.stages = stages
        self.num_classes = num_classes
        self.stacked = stacked
        self.averaging = Averaging((), torch.zeros(0), torch.zeros(0))
        self._ends = list(accumulate(widths))

    def options(self) -> dict[str, Any]:
        """Return the JSON-compatible arguments that `make` needs beside widths, stages and classes; by default none."""
        return {}

    @property
    def dtype(self) -> torch.dtype:
        """Data type of the weights."""
        weight = next(self.parameters(), None)
        return torch.float32 if weight is None else weight.dtype

    @property
    def kind(self) -> str:
        """The name in artifacts: the registered one, or `package.module:Class`."""
        return EXITS.name_of(type(self))

    @classmethod
    def make(
        cls, widths: tuple[int, ...], stages: tuple[int, ...], num_classes: int, options: Mapping[str, Any]
    ) -> "ExitSet":
        """Make untrained exits of this kind, with the options that `options` returned."""
        return cls(widths, stages, num_classes, **options)

    @abstractmethod
    def forward(self, features: Tensor) -> list[Tensor]:
        """Return `W x N x K` logits for each of `stages`, from `N x D` cached features."""

    @abstractmethod
    def step(self, stage: int, features: Tensor, state: Any, point: Tensor | None) -> tuple[Tensor, Any]:
        """Answer at one exit.

        Args:
            stage: The stage that has just run; one of `stages`.
            features: `n x D_stage` pooled features of it.
            state: The state that `step` returned at the previous exit, for these samples.
            point: `n` indices into the stacked weights; None where they are shared.

        Returns:
            `n x K` logits and the state to carry on: a pytree of tensors, samples first.
        """

    @abstractmethod
    def mul_adds(self, stage: int) -> tuple[int, int]:
        """Return the operations per sample of carrying the state past `stage`, and of answering there."""

    @abstractmethod
    def take(self, *points: int) -> "ExitSet":
        """Return the exits of some cost weights, in that order; the same object where they are shared."""

    @abstractmethod
    def copy_points(self, other: "ExitSet", points: Tensor) -> None:
        """Copy the weights of other exits of the same shape at `points`, `W` booleans; all weights if shared."""

    def initial_state(self, _count: int) -> Any:
        """Return the state of some number of samples before the first stage."""
        return ()

    def columns(self, stage: int) -> slice:
        """Return the columns of a row of the feature store that belong to `stage`."""
        return slice(self._ends[stage] - self.widths[stage], self._ends[stage])


EXITS: Registry[type[ExitSet]] = Registry("exits")
"""Kinds of exits, by their name in artifacts."""

EXITS.add("cumulative", "offramp.exits._linear:CumulativeLinearExits")
EXITS.add("ladder", "offramp.exits._ladder:LadderExits")
EXITS.add("linear", "offramp.exits._linear:LinearExits")
EXITS.add("none", "offramp.exits._none:NoExits")


def all_logits(exits: ExitSet, features: Tensor, own_logits: Mapping[int, Tensor]) -> Tensor:
    """Return the logits of all L exits: the trained ones, and the network's own heads elsewhere.

    Args:
        exits: The trained exits.
        features: `N x D` cached features.
        own_logits: `N x K` logits of the network's own heads, by stage.

    Returns:
        `W x N x L x K` logits.
    """
    dtype = exits.dtype
    by_stage = dict(zip(exits.stages, exits(features.to(dtype)), strict=True))
    for stage, logits in exits.averaging(own_logits).items():
        by_stage.setdefault(stage, logits.to(dtype).expand(exits.stacked, -1, -1))
    missing = sorted(set(range(len(exits.widths))) - set(by_stage))
    if missing:
        raise InputError(
            expected="a classifier or a head of the network's own after every stage",
            got=f"none after stages {missing}",
            hint="give the exits those stages",
        )
    return stack_exits([by_stage[stage] for stage in range(len(exits.widths))])


def stack_exits(answers: Sequence[Tensor]) -> Tensor:
    """Stack `W x N x K` logits of each exit to `W x N x L x K`; in memory, classes first and samples last.

    See `functional.log_probabilities` for the order in memory.
    """
    return torch.stack([answer.permute(2, 0, 1) for answer in answers], dim=2).permute(1, 3, 2, 0)
