"""The ladder for inference: what does not depend on the sample is computed once."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from offramp.exits import LadderExits

__all__ = ["FoldedLadder"]


class FoldedLadder:
    """A trained ladder, its standardisation folded into its weights.

    Args:
        bank: The ladder; its weights are copied.
    """

    @torch.no_grad()
    def __init__(self, bank: LadderExits) -> None:
        self._width = (bank.width,)
        self._rungs = {}
        for rung, stage in enumerate(bank.stages):
            columns = bank.columns(stage)
            weight = bank.read[str(stage)] * bank.scale[columns]
            bias = bank.mix_bias[rung] - weight @ bank.center[columns]
            # The state and the features side by side: one product instead of two.
            self._rungs[stage] = (
                torch.cat([weight, bank.mix[rung]], dim=1).T.contiguous(),
                bias,
                bank.write[rung].T.contiguous(),
                bank.write_bias[rung].clone(),
                bank.gain[rung].clone(),
                bank.shift[rung].clone(),
                bank.head[rung].T.contiguous(),
                bank.head_bias[rung].clone(),
            )

    def step(self, stage: int, features: Tensor, state: Any, point: Tensor | None) -> tuple[Tensor, Any]:
        """Answer of the exit after `stage`, and the state after its rung: as `LadderExits.step`."""
        read, bias, write, write_bias, gain, shift, head, head_bias = self._rungs[stage]
        carried, normed = state
        inner = F.gelu(torch.addmm(bias, torch.cat([features, normed], dim=1), read), approximate="tanh")
        carried = torch.addmm(carried, inner, write).add_(write_bias)
        normed = F.layer_norm(carried, self._width, gain, shift)
        return torch.addmm(head_bias, normed, head), (carried, normed)
