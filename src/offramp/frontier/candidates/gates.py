"""Learned gates: every cost weight with every offset."""

from functools import partial

import torch
from torch import Tensor

from offramp.frontier.candidates.tuning import CANDIDATES, Tuning
from offramp.methods import FittedExits
from offramp.policy import OperatingPoint

__all__ = ["gate_candidates"]


def gate_candidates(
    fitted: FittedExits, temperatures: Tensor, *, active: tuple[int, ...] | None = None, policy: str | None = None
) -> list[OperatingPoint]:
    """The learned gates of every cost weight, with offsets from -8 to 8 that fill the frontier between them.

    Args:
        fitted: Exits and gates.
        temperatures: `W x L`, or `1 x L` where classifiers are shared.
        active: The exits in force; all if left out.
        policy: How gates decide, "gates" or "branch_gates"; as they were trained to if left out.

    Returns:
        Points for every cost weight and offset.
    """
    gates = fitted.trained_gates
    weight, bias = gates.weight.detach(), gates.bias.detach()
    active = tuple(range(weight.shape[1] + 1)) if active is None else active
    # The final exit has no gate; its row is there so that exits index the parameters directly.
    weight = torch.cat([weight, torch.zeros_like(weight[:, :1])], dim=1)
    bias = torch.cat([bias, torch.zeros_like(bias[:, :1])], dim=1)
    shared = fitted.bank.stacked == 1
    points = []
    for index in range(len(weight)):
        classifier = 0 if shared else index
        for offset in torch.linspace(-8, 8, 65):
            parameters = {"weight": weight[index], "bias": bias[index], "offset": offset}
            points.append(
                OperatingPoint(policy or fitted.gate_policy, parameters, active, temperatures[classifier], classifier)
            )
    return points


def _candidates(policy: str, tuning: Tuning) -> list[OperatingPoint]:
    return gate_candidates(tuning.fitted, tuning.temperatures, active=tuning.active, policy=policy)


CANDIDATES.add("gates", partial(_candidates, "gates"))
CANDIDATES.add("branch_gates", partial(_candidates, "branch_gates"))
