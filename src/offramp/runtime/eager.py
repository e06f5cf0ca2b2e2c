"""Computing as torch does by itself."""

from typing import Any

import torch
from torch import Tensor

from offramp.errors import InputError
from offramp.exits import ExitBank, LadderExits
from offramp.runtime.ladder import FoldedLadder
from offramp.trunk import Hidden, Pooling, Trunk

__all__ = ["EagerBackend"]


class EagerBackend:
    """Stages and exits as plain torch operations.

    Args:
        trunk: The frozen network.
        pooling: What exits see of a stage.
        bank: The trained exits; a ladder's constants are folded together once.
    """

    def __init__(self, trunk: Trunk, pooling: Pooling, bank: ExitBank) -> None:
        self._trunk, self._pooling, self._bank = trunk, pooling, bank
        self._step = FoldedLadder(bank).step if isinstance(bank, LadderExits) else bank.step
        self._dtype = next(bank.parameters()).dtype

    def stage(self, index: int, hidden: Hidden) -> Hidden:
        """Run one stage."""
        with self._trunk.explaining(hidden):
            return self._trunk.stages[index](hidden)

    def exit(
        self, index: int, hidden: Hidden, state: Any, classifier: Tensor | None, *, answer: bool, carry: bool
    ) -> tuple[Tensor | None, Any]:
        """Answer at one exit, as `Backend` says."""
        exits, heads = state
        if index in self._bank.stages:
            if not answer and not (carry and self._bank.carries_state):
                return None, state
            features = self._pooling(self._trunk.representation(hidden, index)).to(self._dtype)
            if features.shape[1] != self._bank.widths[index]:
                raise InputError(
                    f"the exit after stage {index} reads {self._bank.widths[index]} features, these inputs give "
                    f"{features.shape[1]}; give inputs of the size the exits were fitted on"
                )
            logits, exits = self._step(index, features, exits, classifier)
        elif not answer and index not in self._bank.averaging.read:
            return None, state
        else:
            own = self._trunk.own_logits(hidden, index)
            logits, heads = self._bank.averaging.step(index, own, heads)
        # Divided by temperatures in full precision, as these were fitted.
        wide = torch.promote_types(logits.dtype, torch.float32)
        return (logits.to(wide) if answer else None), (exits, heads)
