"""Several operating points as tables, so that every sample of a batch may have its own."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from offramp.errors import InputError
from offramp.policy import POLICIES, OperatingPoint, Policy

__all__ = ["PointTable"]


class PointTable:
    """P operating points of one bank of exits, row by row.

    Args:
        points: The points; of any policies.

    Example:
        >>> cheap, dear = (
        ...     OperatingPoint("threshold", {"threshold": torch.tensor(level)}, (0, 2), torch.ones(3))
        ...     for level in (0.5, 0.9)
        ... )
        >>> table = PointTable([cheap, dear])
        >>> table.parameters(table.policies[0], 0, torch.tensor([1, 0, 1]))["threshold"]
        tensor([0.9000, 0.5000, 0.9000])
    """

    def __init__(self, points: Sequence[OperatingPoint]) -> None:
        if not points or len({len(point.temperatures) for point in points}) != 1:
            raise InputError("expected at least one operating point, all of one network's exits")
        self.points = tuple(points)
        self.temperatures = torch.stack([point.temperatures for point in points])
        self.classifier = torch.tensor([point.classifier for point in points])
        self.active = torch.zeros(self.temperatures.shape, dtype=torch.bool)
        for row, point in enumerate(points):
            self.active[row, list(point.active)] = True
        self.policies = tuple(POLICIES.get(name) for name in dict.fromkeys(point.policy for point in points))
        self._under = {
            policy.name: self.active & torch.tensor([[point.policy == policy.name] for point in points])
            for policy in self.policies
        }
        self._parameters = {policy.name: _stacked(policy, points) for policy in self.policies}

    def __len__(self) -> int:
        return len(self.points)

    @property
    def num_exits(self) -> int:
        """L."""
        return self.temperatures.shape[1]

    def is_active(self, exit: int, rows: Sequence[int]) -> bool:
        """Whether an exit is in force at any of the points `rows`."""
        return any(exit in self.points[row].active for row in rows)

    def is_carried(self, exit: int, rows: Sequence[int]) -> bool:
        """Whether what exits remember here is read later at any of the points `rows`: an early exit is ahead."""
        return any(exit <= early for row in rows for early in self.points[row].active[-2:-1])

    def policies_of(self, rows: Sequence[int]) -> list[Policy]:
        """The policies of the points `rows`."""
        names = {self.points[row].policy for row in rows}
        return [policy for policy in self.policies if policy.name in names]

    def active_under(self, policy: Policy) -> Tensor:
        """`P x L` flags: the exits in force at the points of one policy."""
        return self._under[policy.name]

    def parameters(self, policy: Policy, exit: int, point: Tensor | int) -> dict[str, Tensor]:
        """A policy's parameters at one exit.

        Args:
            policy: The policy.
            exit: The exit.
            point: `n` rows of the table, or one for all.
        """
        return {
            name: (values[:, exit] if name in policy.per_exit else values)[point]
            for name, values in self._parameters[policy.name].items()
        }


def _stacked(rule: Policy, points: Sequence[OperatingPoint]) -> Mapping[str, Tensor]:
    """`P x ...` parameters of one policy; zeros for points of other policies, which never look at them."""
    own = next(point for point in points if point.policy == rule.name)
    return {
        name: torch.stack(
            [
                point.parameters[name] if point.policy == rule.name else torch.zeros_like(own.parameters[name])
                for point in points
            ]
        )
        for name in sorted(rule.parameters)
    }
