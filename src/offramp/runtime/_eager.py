"""The torch backend, in the precision of the backbone or in bfloat16, with exits prepared for inference."""

import copy
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn
from torch.utils import _pytree as pytree

from offramp.backbone._backbone import Backbone
from offramp.backbone._hidden import Hidden
from offramp.errors import InputError
from offramp.exits import ExitSet, LadderExits
from offramp.exits._averaging import Averaging
from offramp.pooling import Pooling

__all__ = ["EagerBackend", "FoldedAveraging", "FoldedLadder", "with_weights_as"]


class EagerBackend:
    """Stages and exits as plain torch operations.

    Args:
        backbone: The frozen network.
        pooling: The features that exits see of a stage.
        exits: The trained exits.
        dtype: `torch.bfloat16` to run the stages in it, on a copy of the weights; by default the backbone's precision.
            Exits and the network's own heads stay in full precision.

    Attributes:
        exact: True if it computes in the backbone's own precision.

    Example:
        >>> from offramp.exits import LinearExits
        >>> from offramp.backbone import CifarResNet
        >>> from offramp.pooling import POOLINGS
        >>> backbone, exits = CifarResNet(8), LinearExits((16, 32, 64), (0, 1), 10)
        >>> backend = EagerBackend(backbone, POOLINGS.get("mean"), exits, dtype=torch.bfloat16)
        >>> backend.stage(0, torch.randn(2, 3, 32, 32)).dtype
        torch.bfloat16
    """

    def __init__(
        self, backbone: Backbone, pooling: Pooling, exits: ExitSet, *, dtype: torch.dtype | None = None
    ) -> None:
        if dtype not in (None, torch.bfloat16):
            raise InputError(
                "dtype",
                expected="torch.bfloat16 or None",
                got=dtype,
                hint="use bfloat16: of the 16-bit types, only it has the range of float32 and cannot overflow",
            )
        self._backbone, self._pooling, self._exits = backbone, pooling, exits
        self._ladder = FoldedLadder(exits) if isinstance(exits, LadderExits) else None
        self._dtype = exits.dtype
        self._trained, self._averaging = frozenset(exits.stages), FoldedAveraging(exits.averaging)
        self._narrow, self.exact = dtype, dtype is None
        self._stages = backbone.stages if dtype is None else with_weights_as(backbone.stages, dtype)
        self._device = next((parameter.device.type for parameter in backbone.parameters()), "cpu")

    def stage(self, index: int, hidden: Hidden) -> Hidden:
        """Run one stage."""
        with self._backbone.explain_errors(hidden):
            if self._narrow is None:
                return self._stages[index](hidden)
            with torch.autocast(self._device, self._narrow, cache_enabled=False):
                return self._stages[index](hidden)

    def exit(
        self, index: int, hidden: Hidden, state: Any, classifier: Tensor | None, *, answer: bool, carry: bool
    ) -> tuple[Tensor | None, Any]:
        """Run one exit, as `Backend` says."""
        if not answer and not self._is_read_later(index, carry=carry):
            return None, state
        exits, heads = state
        if index in self._trained:
            features = self._features(index, hidden)
            if self._ladder is not None:
                logits, exits = self._ladder.step(index, features, exits, answer=answer)
            else:
                logits, exits = self._exits.step(index, features, exits, classifier)
        else:
            logits, heads = self._averaging.step(index, self._own_logits(index, hidden), heads)
        return (logits if answer else None), (exits, heads)

    def _is_read_later(self, index: int, *, carry: bool) -> bool:
        """Tell if a later exit reads the state of this one."""
        if index in self._trained:
            return carry and self._exits.carries_state
        return index in self._averaging.read

    def _features(self, index: int, hidden: Hidden) -> Tensor:
        with self._backbone.explain_errors(hidden):
            features = self._pooling(self._backbone.representation(hidden, index)).to(self._dtype)
        if features.ndim != 2 or features.shape[1] != self._exits.widths[index]:
            raise InputError(
                f"exit after stage {index}",
                expected=f"{self._exits.widths[index]} features per sample",
                got=" x ".join(map(str, features.shape[1:])) or "none",
                hint="give a batch (for a single sample, inputs[None]) of inputs of the size the exits were fitted on",
            )
        return features

    def _own_logits(self, index: int, hidden: Hidden) -> Tensor:
        with self._backbone.explain_errors(hidden):
            logits = self._backbone.own_logits(self._in_full_precision(hidden), index)
        if logits.ndim != 2:
            raise InputError(
                f"head of '{self._backbone.name}'",
                expected="N x K logits",
                got=f"shape {tuple(logits.shape)}",
                hint="give a batch (for a single sample, inputs[None])",
            )
        return logits

    def _in_full_precision(self, hidden: Hidden) -> Hidden:
        """Convert a hidden state to the precision of the network's own heads."""
        if self._narrow is None:
            return hidden
        narrow = self._narrow
        return pytree.tree_map(lambda leaf: leaf.float() if getattr(leaf, "dtype", None) == narrow else leaf, hidden)


def with_weights_as(stages: nn.ModuleList, dtype: torch.dtype) -> nn.ModuleList:
    """Copy stages with their weights in another precision, to be run under `torch.autocast`.

    Norms, which take narrow inputs with float32 weights, and buffers (statistics, positions, masks) keep their
    precision. What is not converted is shared with the original.

    Args:
        stages: Stages of a backbone; they are not changed.
        dtype: The precision.
    """
    copies: dict[int, object] = {}  # the memo of `copy.deepcopy`: by the id of an original, what replaces it
    for module in stages.modules():
        # Shared with the original: other attributes of a module may not be copyable.
        shared = (value for value in vars(module).values() if not isinstance(value, dict | nn.Module | fx.Graph))
        copies |= {id(value): value for value in shared}
        parameters = list(module.parameters(recurse=False))
        # A layer with only vectors is a norm, except a PReLU.
        is_norm = bool(parameters) and all(p.ndim == 1 for p in parameters) and not isinstance(module, nn.PReLU)
        for parameter in parameters:
            unchanged = is_norm or not parameter.is_floating_point()
            copies[id(parameter)] = parameter if unchanged else nn.Parameter(parameter.to(dtype), requires_grad=False)
        copies |= {id(buffer): buffer for buffer in module.buffers(recurse=False)}
    return copy.deepcopy(stages, copies).eval()


class FoldedLadder:
    """A trained ladder with its standardisation folded into its weights.

    Args:
        exits: The ladder; its weights are copied.
    """

    @torch.no_grad()
    def __init__(self, exits: LadderExits) -> None:
        self._width = (exits.width,)
        self._first = exits.stages[0] if exits.stages else None
        self._rungs = {}
        for rung, stage in enumerate(exits.stages):
            columns = exits.columns(stage)
            weight = exits.read[str(stage)] * exits.scale[columns]
            bias = exits.mix_bias[rung] - weight @ exits.center[columns]
            self._rungs[stage] = (
                weight.T.contiguous(),
                bias,
                exits.mix[rung].T.contiguous(),
                exits.write[rung].T.contiguous(),
                exits.write_bias[rung].clone(),
                exits.gain[rung].clone(),
                exits.shift[rung].clone(),
                exits.head[rung].T.contiguous(),
                exits.head_bias[rung].clone(),
            )

    def step(self, stage: int, features: Tensor, state: Any, *, answer: bool) -> tuple[Tensor | None, Any]:
        """Compute the logits after `stage`, if needed, and the new state, as `LadderExits.step` does."""
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
    """The averaging of a cascade's own heads, with the constants of `Averaging` as plain numbers.

    Args:
        averaging: The averaging; its numbers are copied.

    Attributes:
        read: Stages whose answer a later head averages with.
    """

    @torch.no_grad()
    def __init__(self, averaging: Averaging) -> None:
        shares, temperatures = averaging.shares.double(), averaging.temperatures.double()
        self.read = averaging.read
        self._log_shares = {
            stage: (float(torch.log1p(-shares[index])), float(shares[index].log()))
            for index, stage in enumerate(averaging.stages)
            if shares[index] != 0
        }
        self._temperatures = {stage: float(temperatures[index]) for index, stage in enumerate(averaging.stages)}

    def step(self, stage: int, logits: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Compute the logits of one head in full precision, and the new state, as `Averaging.step` does."""
        precise = logits if logits.dtype in (torch.float32, torch.float64) else logits.float()
        if stage not in self.read and stage not in self._log_shares:
            return precise, state
        own = torch.log_softmax(precise / self._temperatures[stage], dim=1)
        if stage not in self._log_shares:
            return precise, own
        own_share, share_before = self._log_shares[stage]
        mixed = torch.logaddexp(own + own_share, state + share_before)
        return mixed, mixed
