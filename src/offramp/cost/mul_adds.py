"""Multiply-adds, counted while the network runs once."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from offramp.backbone import Backbone, Cascade, Hidden, Pooling
from offramp.cost.table import Costs, CostTable
from offramp.errors import InputError
from offramp.exits import ExitBank
from offramp.policy import Policy

__all__ = ["BackboneMulAdds", "count_backbone", "count_mul_adds", "price"]


SIZES = (4, 8, 16)
"""Sizes at which costs are counted: small, as counting runs the network; three give a quadratic."""


def count_mul_adds(function: Callable[..., Any], *arguments: Any, layer_norms: bool = False) -> tuple[int, Any]:
    """Count the multiply-adds of a call.

    Matrix products and convolutions, one a multiply-add; element-wise work, norms and activations are not counted.
    Fused attention is taken apart while counting: the counter knows no formula for the fused kernels of CPUs.

    Args:
        function: What to run.
        *arguments: What to run it on.
        layer_norms: Count layer norms too, 5 an element: the rule of the paper's tables.

    Returns:
        The count, and what the call returned.

    Example:
        >>> count_mul_adds(torch.nn.Linear(3, 4), torch.zeros(1, 3))[0]
        12
        >>> count_mul_adds(torch.nn.LayerNorm(3), torch.zeros(2, 3), layer_norms=True)[0]
        30
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
    return 2 * 5 * prod(shape)  # the counter counts two a multiply-add


@dataclass(frozen=True)
class BackboneMulAdds:
    """What the frozen network costs one sample, stage by stage.

    `C x L` each: the coefficients of 1, size and size squared where samples differ in size (C = 3), else the cost
    itself (C = 1).
    """

    stage: Tensor
    """Mul-Adds of each stage."""
    pooling: Tensor
    """What it takes to get each stage's features: their representation, and pooling it."""
    head: Tensor
    """Mul-Adds of the network's own heads; 0 where it has none."""
    full: Tensor
    """`C`: the full network, its stages and its own last head."""

    def price(self, bank: ExitBank, policy: Policy) -> Costs:
        """Put the costs of network, exits and policy together, as `Prices` says."""
        return price(self, bank, decision=policy.mul_adds(bank.num_classes))


def count_backbone(
    backbone: Backbone, example: Hidden, pooling: Pooling, *, layer_norms: bool = False
) -> BackboneMulAdds:
    """Count what each stage of a backbone costs a sample.

    Where samples differ in size, the first of the example is counted at three sizes: what a network spends on words or
    nodes grows with their number, and in attention with its square. The networks of a cascade are counted one by one;
    by the size the last of them sees, and where another sees other sizes, by their ratio in the example.

    Args:
        backbone: The frozen network.
        example: A batch of inputs as the backbone takes them.
        pooling: How its stages are pooled.
        layer_norms: Count layer norms too, as the paper does.

    Returns:
        Mul-Adds a sample.
    """
    if isinstance(backbone, Cascade):
        return _count_members(backbone, example, pooling, layer_norms)
    if not backbone.grows:
        counts = _count_stages(backbone, example, pooling, layer_norms)[None]
    else:
        samples = [backbone.resized(example, size) for size in SIZES]
        counted = torch.stack([_count_stages(backbone, sample, pooling, layer_norms) for sample in samples])
        sizes = torch.tensor(SIZES, dtype=torch.float64)
        powers = torch.stack([sizes**0, sizes, sizes**2], dim=1)
        # Whole numbers in, whole numbers out: rounding takes the solver's noise away, and with it costs below zero.
        counts = torch.linalg.solve(powers, counted.flatten(1)).round().view_as(counted)
    stage, pooled, head = counts.unbind(1)
    return _with_full(backbone, stage, pooled, head)


def _count_members(backbone: Cascade, example: Hidden, pooling: Pooling, layer_norms: bool) -> BackboneMulAdds:
    """Every network of a cascade by itself, side by side."""
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
    """`3 x L` costs a sample of stages, pooling and heads."""
    count = backbone.batch_size(example, 0)
    hidden = example
    rows = []
    for index, stage in enumerate(backbone.stages):
        counted, hidden = count_mul_adds(stage, hidden, layer_norms=layer_norms)
        mul_adds = counted + count * backbone.declared_mul_adds.get(index, 0)
        own = 0
        if index in backbone.own_heads:
            own, _ = count_mul_adds(backbone.own_logits, hidden, index, layer_norms=layer_norms)
        looking, representation = count_mul_adds(backbone.representation, hidden, index, layer_norms=layer_norms)
        rows.append([mul_adds, looking + pooling.mul_adds(representation), own])
    return torch.tensor(rows, dtype=torch.float64).T / count


def _with_full(backbone: Backbone, stage: Tensor, pooling: Tensor, head: Tensor) -> BackboneMulAdds:
    """The counts with those of the full network, which must cost something: all costs are relative to it."""
    full = stage[:, list(backbone.full_stages)].sum(1) + head[:, -1]
    if not full.any():
        raise InputError(
            f"'{backbone.name}' costs nothing that can be counted, so nothing can be saved of it; declare what its "
            "stages "
            "cost: backbone.declared_mul_adds = {stage: multiply-adds a sample}"
        )
    return BackboneMulAdds(stage, pooling, head, full)


def price(backbone: BackboneMulAdds, bank: ExitBank, *, decision: int) -> Costs:
    """Put the costs of backbone, exits and policy together.

    Args:
        backbone: What the network costs.
        bank: The trained exits.
        decision: Operations of one decision to leave or stay.

    Returns:
        The costs, by the samples' sizes where they differ.
    """
    trained = torch.zeros(backbone.stage.shape[-1], dtype=torch.bool)
    trained[list(bank.stages)] = True
    carry = torch.where(trained, backbone.pooling, 0)
    answer = torch.where(trained, 0, backbone.head)
    decide = torch.zeros_like(answer)
    # A head that a later one averages with is asked by everybody who passes, like the stage itself.
    read = torch.zeros_like(trained)
    read[list(bank.averaging.read)] = True
    stage = backbone.stage + torch.where(read, answer, 0)
    answer = torch.where(read, 0, answer)
    # Exits see a vector of fixed width: what they cost does not grow with the sample.
    for index in bank.stages:
        carrying, answering = bank.mul_adds(index)
        carry[0, index] += carrying
        answer[0, index] = answering
    decide[0, :-1] = decision
    columns = zip(stage, carry, answer, decide, backbone.full, strict=True)
    return Costs(tuple(CostTable(*column, bank.carries_state) for column in columns))
