"""Multiply-adds, counted while the network runs once."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from offramp.cost.table import CostTable
from offramp.exits import ExitBank
from offramp.trunk import Hidden, Pooling, Trunk

__all__ = ["TrunkMulAdds", "count_mul_adds", "count_trunk", "price"]


def count_mul_adds(function: Callable[..., Any], *arguments: Any) -> tuple[int, Any]:
    """Count the multiply-adds of a call.

    Matrix products and convolutions, one a multiply-add; element-wise work, norms and activations are not counted.
    Fused attention is taken apart while counting: the counter knows no formula for the fused kernels of CPUs.

    Args:
        function: What to run.
        *arguments: What to run it on.

    Returns:
        The count, and what the call returned.

    Example:
        >>> count_mul_adds(torch.nn.Linear(3, 4), torch.zeros(1, 3))[0]
        12
    """
    fused = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with torch.inference_mode(), sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
            result = function(*arguments)
    finally:
        torch.backends.mha.set_fastpath_enabled(fused)
    return counter.get_total_flops() // 2, result


@dataclass(frozen=True)
class TrunkMulAdds:
    """What the frozen network costs one sample, stage by stage."""

    stage: Tensor
    """`L` Mul-Adds of each stage."""
    pooling: Tensor
    """`L` operations that pool each stage's features."""
    head: Tensor
    """`L` Mul-Adds of the network's own heads; 0 where it has none."""


def count_trunk(trunk: Trunk, example: Hidden, pooling: Pooling) -> TrunkMulAdds:
    """Count what each stage of a trunk costs a sample.

    Args:
        trunk: The frozen network.
        example: A batch of inputs as the trunk takes them.
        pooling: How its stages are pooled.

    Returns:
        Mul-Adds a sample.
    """
    count = trunk.batch_size(example, 0)
    hidden = example
    stages, poolings, heads = [], [], []
    for index, stage in enumerate(trunk.stages):
        mul_adds, hidden = count_mul_adds(stage, hidden)
        stages.append(mul_adds / count)
        poolings.append(pooling.mul_adds(tuple(trunk.representation(hidden, index).shape[1:])))
        own = count_mul_adds(trunk.own_logits, hidden, index)[0] if index in trunk.own_heads else 0
        heads.append(own / count)
    return TrunkMulAdds(*(torch.tensor(column, dtype=torch.float64) for column in (stages, poolings, heads)))


def price(trunk: TrunkMulAdds, bank: ExitBank, *, decision: int) -> CostTable:
    """Put the costs of trunk, exits and policy together.

    Args:
        trunk: What the network costs.
        bank: The trained exits.
        decision: Operations of one decision to leave or stay.

    Returns:
        The cost table.
    """
    length = len(trunk.stage)
    carry, answer = torch.zeros(2, length, dtype=torch.float64)
    for stage in range(length):
        if stage in bank.stages:
            carrying, answering = bank.mul_adds(stage)
            carry[stage] = carrying + trunk.pooling[stage]
            answer[stage] = answering
        else:
            answer[stage] = trunk.head[stage]
    decide = torch.full((length,), float(decision), dtype=torch.float64)
    decide[-1] = 0
    bare = trunk.stage.sum() + trunk.head[-1]
    return CostTable(trunk.stage, carry, answer, decide, bare, bank.carries_state)
