"""No trained exits: every stage has a head of its own, as in a cascade of called models."""

from typing import Any

from torch import Tensor

from offramp.errors import InputError
from offramp.exits._exit_set import ExitSet

__all__ = ["NoExits"]


class NoExits(ExitSet):
    """The exits of a cascade whose members all answer by themselves: nothing is trained.

    Args:
        widths: Number of features of each of the L stages.
        stages: Stages that get a classifier: none.
        num_classes: K.

    Example:
        >>> NoExits((3, 3), (), 3).stages
        ()
    """

    def __init__(self, widths: tuple[int, ...], stages: tuple[int, ...], num_classes: int) -> None:
        if stages:
            raise InputError("stages of no exits", expected="none", got=stages)
        super().__init__(widths, stages, num_classes)

    def forward(self, _features: Tensor) -> list[Tensor]:
        """Return no logits."""
        return []

    def step(self, stage: int, _features: Tensor, _state: Any, _point: Tensor | None) -> tuple[Tensor, Any]:
        """Refuse: no stage has an exit."""
        raise InputError(expected="a stage with a trained exit", got=stage)

    def mul_adds(self, _stage: int) -> tuple[int, int]:
        """Return no operations."""
        return 0, 0

    def take(self, *_points: int) -> "NoExits":
        """Return the same object: there is nothing to choose from."""
        return self

    def copy_points(self, _other: ExitSet, _points: Tensor) -> None:
        """Copy nothing."""
