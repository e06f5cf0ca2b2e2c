"""Simulation of policies exit by exit, independent of the simulator."""

from collections.abc import Sequence

import torch

from offramp.model._outcomes import Outcomes
from offramp.policy import OperatingPoint, Policy

__all__ = ["walk"]


def walk(policy: Policy, points: Sequence[OperatingPoint], outcomes: Outcomes) -> torch.Tensor:
    """Return the exits `P x N` that samples leave at, one point at a time, as the runtime decides."""
    rows = []
    for point in points:
        carry = policy.initial_carry(torch.zeros(len(outcomes.labels)))
        left = torch.full((len(outcomes.labels),), point.active[-1])
        waiting = torch.ones(len(left), dtype=torch.bool)
        for exit in point.active[:-1]:
            here = {name: value[exit] if name in policy.per_exit else value for name, value in point.parameters.items()}
            leave, carry = policy.step(outcomes.observe(policy.reads, 0, exit, None), carry, here)
            left[waiting & leave] = exit
            waiting &= ~leave
        rows.append(left)
    return torch.stack(rows)
