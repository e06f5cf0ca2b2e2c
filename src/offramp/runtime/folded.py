"""Exits for inference: what does not depend on the sample is computed once."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from offramp.exits import Averaging, LadderExits

__all__ = ["FoldedAveraging", "FoldedLadder"]


class FoldedLadder:
    """A trained ladder, its standardisation folded into its weights.

    Args:
        bank: The ladder; its weights are copied.
    """

    @torch.no_grad()
    def __init__(self, bank: LadderExits) -> None:
        self._width = (bank.width,)
        self._first = bank.stages[0] if bank.stages else None
        self._rungs = {}
        for rung, stage in enumerate(bank.stages):
            columns = bank.columns(stage)
            weight = bank.read[str(stage)] * bank.scale[columns]
            bias = bank.mix_bias[rung] - weight @ bank.center[columns]
            self._rungs[stage] = (
                weight.T.contiguous(),
                bias,
                bank.mix[rung].T.contiguous(),
                bank.write[rung].T.contiguous(),
                bank.write_bias[rung].clone(),
                bank.gain[rung].clone(),
                bank.shift[rung].clone(),
                bank.head[rung].T.contiguous(),
                bank.head_bias[rung].clone(),
            )

    def step(self, stage: int, features: Tensor, state: Any, *, answer: bool) -> tuple[Tensor | None, Any]:
        """Answer of the exit after `stage`, if wanted, and the state after its rung: as `LadderExits.step`."""
        read, bias, mix, write, write_bias, gain, shift, head, head_bias = self._rungs[stage]
        inner = torch.addmm(bias, features, read)
        if stage == self._first:  # its state is zero
            carried = torch.addmm(write_bias, F.gelu(inner, approximate="tanh"), write)
        else:
            carried, normed = state
            inner = F.gelu(torch.addmm(inner, normed, mix), approximate="tanh")
            carried = torch.addmm(carried, inner, write).add_(write_bias)
        normed = F.layer_norm(carried, self._width, gain, shift)
        return (torch.addmm(head_bias, normed, head) if answer else None), (carried, normed)


class FoldedAveraging:
    """What the own heads of a cascade answer, with the constants of `Averaging` as plain numbers.

    Args:
        averaging: The averaging; its numbers are copied.
    """

    @torch.no_grad()
    def __init__(self, averaging: Averaging) -> None:
        shares, temperatures = averaging.shares.double(), averaging.temperatures.double()
        self.read = averaging.read
        """Stages whose answer a later head averages with."""
        self._mixed = {
            stage: (float(torch.log1p(-shares[index])), float(shares[index].log()))
            for index, stage in enumerate(averaging.stages)
            if shares[index] != 0
        }
        self._temperatures = {stage: float(temperatures[index]) for index, stage in enumerate(averaging.stages)}

    def step(self, stage: int, logits: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Answer of one head in full precision, and what the next head averages with: as `Averaging.step`."""
        precise = logits if logits.dtype in (torch.float32, torch.float64) else logits.float()
        if stage not in self.read and stage not in self._mixed:
            return precise, state
        own = torch.log_softmax(precise / self._temperatures[stage], dim=1)
        if stage not in self._mixed:
            return precise, own
        own_share, share_before = self._mixed[stage]
        mixed = torch.logaddexp(own + own_share, state + share_before)
        return mixed, mixed
