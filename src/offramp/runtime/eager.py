"""Computing as torch does by itself."""

from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from offramp.backbone import Backbone, Hidden, Pooling
from offramp.errors import InputError
from offramp.exits import ExitBank, LadderExits
from offramp.runtime.folded import FoldedAveraging, FoldedLadder
from offramp.runtime.narrow import narrowed

__all__ = ["EagerBackend"]


class EagerBackend:
    """Stages and exits as plain torch operations.

    Args:
        backbone: The frozen network.
        pooling: What exits see of a stage.
        bank: The trained exits; a ladder's constants are folded together once.
        dtype: `torch.bfloat16` to run the stages in it, on weights copied once; as the backbone is if left out. Exits
            and the network's own heads stay in full precision.

    Attributes:
        exact: Whether it computes in the backbone's own precision.

    Example:
        >>> from offramp.exits import LinearExits
        >>> from offramp.backbone import POOLINGS, CifarResNet
        >>> backbone, bank = CifarResNet(8), LinearExits((16, 32, 64), (0, 1), 10)
        >>> backend = EagerBackend(backbone, POOLINGS.get("mean"), bank, dtype=torch.bfloat16)
        >>> backend.stage(0, torch.randn(2, 3, 32, 32)).dtype
        torch.bfloat16
    """

    def __init__(
        self, backbone: Backbone, pooling: Pooling, bank: ExitBank, *, dtype: torch.dtype | None = None
    ) -> None:
        if dtype not in (None, torch.bfloat16):
            raise InputError(
                f"expected torch.bfloat16, or None for the backbone's own precision, got {dtype}; of the narrow types "
                "it alone has the range of single precision, so that what a network computes cannot overflow"
            )
        self._backbone, self._pooling, self._bank = backbone, pooling, bank
        self._ladder = FoldedLadder(bank) if isinstance(bank, LadderExits) else None
        self._dtype = next(bank.parameters()).dtype
        self._trained, self._averaging = frozenset(bank.stages), FoldedAveraging(bank.averaging)
        self._narrow, self.exact = dtype, dtype is None
        self._stages = backbone.stages if dtype is None else narrowed(backbone.stages, dtype)
        self._device = next((parameter.device.type for parameter in backbone.parameters()), "cpu")

    def stage(self, index: int, hidden: Hidden) -> Hidden:
        """Run one stage."""
        with self._backbone.explaining(hidden):
            if self._narrow is None:
                return self._stages[index](hidden)
            with torch.autocast(self._device, self._narrow, cache_enabled=False):
                return self._stages[index](hidden)

    def exit(
        self, index: int, hidden: Hidden, state: Any, classifier: Tensor | None, *, answer: bool, carry: bool
    ) -> tuple[Tensor | None, Any]:
        """Answer at one exit, as `Backend` says."""
        if self._passes(index, answer=answer, carry=carry):
            return None, state
        exits, heads = state
        if index in self._trained:
            with self._backbone.explaining(hidden):
                features = self._pooling(self._backbone.representation(hidden, index)).to(self._dtype)
            if features.ndim != 2 or features.shape[1] != self._bank.widths[index]:
                width = " x ".join(map(str, features.shape[1:])) or "none"
                raise InputError(
                    f"the exit after stage {index} reads {self._bank.widths[index]} features, these inputs give "
                    f"{width}; give a batch (of a single sample, inputs[None]) of inputs of the size the exits were "
                    "fitted on"
                )
            if self._ladder is not None:
                logits, exits = self._ladder.step(index, features, exits, answer=answer)
            else:
                logits, exits = self._bank.step(index, features, exits, classifier)
        else:
            with self._backbone.explaining(hidden):
                own = self._backbone.own_logits(self._widened(hidden), index)
            if own.ndim != 2:
                raise InputError(
                    f"expected N x K scores of '{self._backbone.name}', got shape {tuple(own.shape)}; give a batch (of "
                    "a single sample, inputs[None])"
                )
            logits, heads = self._averaging.step(index, own, heads)
        return (logits if answer else None), (exits, heads)

    def _passes(self, index: int, *, answer: bool, carry: bool) -> bool:
        """Whether an exit has nothing to do: no answer is wanted, and nothing that later exits read."""
        if index in self._trained:
            return not answer and not (carry and self._bank.carries_state)
        return not answer and index not in self._averaging.read

    def _widened(self, hidden: Hidden) -> Hidden:
        """A hidden state in the precision that the network's own heads compute in."""
        if self._narrow is None:
            return hidden
        narrow = self._narrow
        return pytree.tree_map(lambda leaf: leaf.float() if getattr(leaf, "dtype", None) == narrow else leaf, hidden)
