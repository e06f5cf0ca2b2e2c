"""Multiply-adds, counted while the network runs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from offramp.backbone import Cascade
from offramp.backbone._backbone import Backbone
from offramp.backbone._hidden import Hidden
from offramp.cost._table import Costs, CostTable
from offramp.errors import InputError
from offramp.exits import ExitSet
from offramp.policy import Policy
from offramp.pooling import Pooling

__all__ = ["BackboneMulAdds", "count_backbone", "count_mul_adds", "price"]


SIZES = (4, 8, 16)
"""Sizes at which costs are counted: small, as counting runs the network; three determine a quadratic."""


def count_mul_adds(function: Callable[..., Any], *arguments: Any, layer_norms: bool = False) -> tuple[int, Any]:
    """Count the multiply-adds of a call.

    Only matrix products and convolutions count; element-wise operations, norms and activations do not. Fused attention
    is disabled while counting, as the counter has no formula for the fused kernels of CPUs.

    Args:
        function: The function to call.
        *arguments: Its arguments.
        layer_norms: Count layer norms too, 5 per element, as in the paper's tables.

    Returns:
        The count, and the result of the call.

    Example:
        >>> count_mul_adds(torch.nn.Linear(3, 4), torch.zeros(1, 3))[0]
        12
    """
    fused = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    rules = {torch.ops.aten.native_layer_norm: _layer_norm_flops} if layer_norms else {}
    counter = FlopCounterMode(display=False, custom_mapping=rules)
    try:
        with torch.inference_mode(), sdpa_kernel(SDPBackend.MATH), counter:
            result = function(*arguments)
    finally:
        torch.backends.mha.set_fastpath_enabled(fused)
    return counter.get_total_flops() // 2, result


def _layer_norm_flops(shape: Sequence[int], *_: Any, **__: Any) -> int:
    return 2 * 5 * prod(shape)  # the counter counts each multiply-add as two


@dataclass(frozen=True)
class BackboneMulAdds:
    """The Mul-Adds per sample of the frozen network, stage by stage.

    Each field is `C x L`: the coefficients of 1, size and size squared where samples differ in size (C = 3), else the
    cost itself (C = 1).
    """

    stage: Tensor
    """Mul-Adds of each stage."""
    pooling: Tensor
    """Mul-Adds of each stage's features: their representation, and pooling it."""
    head: Tensor
    """Mul-Adds of the network's own heads; 0 where it has none."""
    full: Tensor
    """`C` Mul-Adds of the full network, its stages and its own last head."""

    def price(self, exits: ExitSet, policy: Policy) -> Costs:
        """Return the costs of network, exits and policy together."""
        return price(self, exits, decision=policy.mul_adds(exits.num_classes))


def count_backbone(
    backbone: Backbone, example: Hidden, pooling: Pooling, *, layer_norms: bool = False
) -> BackboneMulAdds:
    """Count the Mul-Adds per sample of each stage of a backbone.

    Where samples differ in size, the first sample of the example is counted at three sizes: the cost of tokens or nodes
    grows with their number, and that of attention with its square. The members of a cascade are counted one by one.
    Costs refer to the size that the last member sees; sizes of other members follow from their ratio in the example.

    Args:
        backbone: The frozen network.
        example: A batch of inputs as the backbone takes them.
        pooling: The pooling of its stages.
        layer_norms: Count layer norms too, as the paper does.
    """
    if isinstance(backbone, Cascade):
        return _count_members(backbone, example, pooling, layer_norms)
    if not backbone.varies_in_size:
        counts = _count_stages(backbone, example, pooling, layer_norms)[None]
    else:
        samples = [backbone.with_size(example, size) for size in SIZES]
        counted = torch.stack([_count_stages(backbone, sample, pooling, layer_norms) for sample in samples])
        sizes = torch.tensor(SIZES, dtype=torch.float64)
        powers = torch.stack([sizes**0, sizes, sizes**2], dim=1)
        # The counts are integers: rounding removes the solver's noise, and with it costs below zero.
        counts = torch.linalg.solve(powers, counted.flatten(1)).round().view_as(counted)
    stage, pooled, head = counts.unbind(1)
    return _with_full(backbone, stage, pooled, head)


def _count_members(backbone: Cascade, example: Hidden, pooling: Pooling, layer_norms: bool) -> BackboneMulAdds:
    """Count each member of a cascade by itself."""
    inputs = backbone.inputs_of_members(example)
    sizes = [float(member.sizes(own).double().mean()) for member, own in zip(backbone.members, inputs, strict=True)]
    counted = []
    for member, own, size in zip(backbone.members, inputs, sizes, strict=True):
        counts = count_backbone(member, own, pooling, layer_norms=layer_norms)
        rows = torch.stack([counts.stage, counts.pooling, counts.head])  # 3 x C x L
        ratio = size / sizes[-1] if sizes[-1] else 1.0
        powers = torch.arange(rows.shape[1], dtype=rows.dtype)
        counted.append(rows * (ratio**powers)[:, None])
    most = max(rows.shape[1] for rows in counted)
    filled = [F.pad(rows, (0, 0, 0, most - rows.shape[1])) for rows in counted]
    stage, pooled, head = torch.cat(filled, dim=-1)
    return _with_full(backbone, stage, pooled, head)


def _count_stages(backbone: Backbone, example: Hidden, pooling: Pooling, layer_norms: bool) -> Tensor:
    """Return `3 x L` Mul-Adds per sample of stages, pooling and heads."""
    count = backbone.batch_size(example, 0)
    hidden = example
    rows = []
    for index, stage in enumerate(backbone.stages):
        counted, hidden = count_mul_adds(stage, hidden, layer_norms=layer_norms)
        mul_adds = counted + count * backbone.declared_mul_adds.get(index, 0)
        own = 0
        if index in backbone.own_heads:
            own, _ = count_mul_adds(backbone.own_logits, hidden, index, layer_norms=layer_norms)
        pooled, representation = count_mul_adds(backbone.representation, hidden, index, layer_norms=layer_norms)
        rows.append([mul_adds, pooled + pooling.mul_adds(representation), own])
    return torch.tensor(rows, dtype=torch.float64).T / count


def _with_full(backbone: Backbone, stage: Tensor, pooling: Tensor, head: Tensor) -> BackboneMulAdds:
    """Add the full network's cost, which must not be 0, as all costs are relative to it."""
    full = stage[:, list(backbone.full_stages)].sum(1) + head[:, -1]
    if not full.any():
        raise InputError(
            f"'{backbone.name}'",
            expected="stages whose multiply-adds can be counted",
            got="a total of 0",
            hint="declare their cost: backbone.declared_mul_adds = {stage: multiply-adds per sample}",
        )
    return BackboneMulAdds(stage, pooling, head, full)


def price(backbone: BackboneMulAdds, exits: ExitSet, *, decision: int) -> Costs:
    """Return the costs of backbone, exits and policy together.

    Args:
        backbone: The costs of the backbone.
        exits: The exits.
        decision: Operations of one decision to leave or stay.
    """
    trained = torch.zeros(backbone.stage.shape[-1], dtype=torch.bool)
    trained[list(exits.stages)] = True
    carry = torch.where(trained, backbone.pooling, 0)
    answer = torch.where(trained, 0, backbone.head)
    decide = torch.zeros_like(answer)
    # A head that a later one averages with runs for every sample, like the stage itself.
    read = torch.zeros_like(trained)
    read[list(exits.averaging.read)] = True
    stage = backbone.stage + torch.where(read, answer, 0)
    answer = torch.where(read, 0, answer)
    # Exits read a vector of fixed width: their cost does not depend on the size of the sample.
    for index in exits.stages:
        carrying, answering = exits.mul_adds(index)
        carry[0, index] += carrying
        answer[0, index] = answering
    decide[0, :-1] = decision
    columns = zip(stage, carry, answer, decide, backbone.full, strict=True)
    return Costs(tuple(CostTable(*column, exits.carries_state) for column in columns))
