"""Where every sample leaves at every operating point, without running the network."""

from collections import defaultdict
from collections.abc import Sequence

import torch
from torch import Tensor

from offramp.frontier.outcomes import Outcomes
from offramp.policy import OperatingPoint

__all__ = ["exit_shares", "simulate"]

_CELLS = 500_000  # points times samples at a time: what a sweep holds besides its answers stays below 20 MB


def simulate(points: Sequence[OperatingPoint], seen: Outcomes, *, seed: int = 0) -> Tensor:
    """Run the policies of operating points on outcomes.

    Args:
        points: P operating points.
        seen: Outcomes of N samples.
        seed: Of the draws that sampling policies take.

    Returns:
        `P x N` exits, 0-based.
    """
    exits = torch.empty(len(points), len(seen.labels), dtype=torch.long)
    alike: dict[tuple[str, tuple[int, ...], int], list[int]] = defaultdict(list)
    for index, point in enumerate(points):
        alike[point.policy, point.active, point.classifier].append(index)
    at_once = max(1, _CELLS // max(1, len(seen.labels)))
    for indices in alike.values():
        for start in range(0, len(indices), at_once):
            group = indices[start : start + at_once]
            exits[group] = _simulate_alike([points[index] for index in group], seen, seed)
    return exits


def exit_shares(exits: Tensor, seen: Outcomes, *, powers: int = 1) -> Tensor:
    """Which share of the samples leaves at each exit, and where samples differ in size, how large those are.

    Args:
        exits: `P x N` exits the samples leave at.
        seen: Outcomes of the N samples.
        powers: C, how many powers of the size costs depend on: 1, size, size squared.

    Returns:
        `P x C x L` sums of a power of the size over those who leave at an exit, divided by N.
    """
    weights = torch.stack([seen.sizes.double() ** power for power in range(powers)])
    shares = torch.zeros(len(exits), powers, seen.predictions.shape[-1], dtype=torch.float64)
    shares.scatter_add_(2, exits[:, None].expand(-1, powers, -1), weights.expand(len(exits), -1, -1))
    return shares / exits.shape[1]


def _simulate_alike(points: Sequence[OperatingPoint], seen: Outcomes, seed: int) -> Tensor:
    """Exits `P x N` of points that share policy, active exits and classifiers."""
    first = points[0]
    rule = first.rule
    stacked = {name: torch.stack([point.parameters[name] for point in points]) for name in first.parameters}
    generator = torch.Generator().manual_seed(seed)
    exits = torch.full((len(points), len(seen.labels)), first.active[-1])
    undecided = torch.ones_like(exits, dtype=torch.bool)
    carry = rule.initial_carry(torch.zeros(exits.shape))
    for exit in first.active[:-1]:
        noise = torch.rand(len(seen.labels), generator=generator) if "noise" in rule.reads else None
        observation = seen.observe(rule.reads, first.classifier, exit, noise)
        here = {name: value[:, exit] if name in rule.per_exit else value for name, value in stacked.items()}
        leave, carry = rule.step(observation, carry, {name: value[:, None] for name, value in here.items()})
        exits[undecided & leave] = exit
        undecided &= ~leave
    return exits
