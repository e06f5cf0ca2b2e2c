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
        device: Where the samples are; torch's own choice if left out.

    Attributes:
        device: As above.

    Example:
        >>> cheap, dear = (
        ...     OperatingPoint("threshold", {"threshold": torch.tensor(level)}, (0, 2), torch.ones(3))
        ...     for level in (0.5, 0.9)
        ... )
        >>> table = PointTable([cheap, dear])
        >>> table.parameters(table.policies[0], 0, torch.tensor([1, 0, 1]))["threshold"]
        tensor([0.9000, 0.5000, 0.9000])
    """

    def __init__(self, points: Sequence[OperatingPoint], *, device: torch.device | None = None) -> None:
        if not points or len({len(point.temperatures) for point in points}) != 1:
            raise InputError("expected at least one operating point, all of one network's exits")
        self.points = tuple(points)
        self.device = device
        self.temperatures = torch.stack([point.temperatures for point in points]).to(device)
        self.classifier = torch.tensor([point.classifier for point in points], device=device)
        self.active = torch.zeros(self.temperatures.shape, dtype=torch.bool, device=device)
        for row, point in enumerate(points):
            self.active[row, list(point.active)] = True
        self.policies = tuple(POLICIES.get(name) for name in dict.fromkeys(point.policy for point in points))
        self._under = {
            policy.name: self.active & torch.tensor([[point.policy == policy.name] for point in points], device=device)
            for policy in self.policies
        }
        self._parameters = {
            policy.name: {name: values.to(device) for name, values in _stacked(policy, points).items()}
            for policy in self.policies
        }

    def __len__(self) -> int:
        return len(self.points)

    @property
    def num_exits(self) -> int:
        """L."""
        return self.temperatures.shape[1]

    def has(self, point: object, count: int) -> bool:
        """Whether these are `count` rows of the table."""
        return (
            isinstance(point, Tensor)
            and point.shape == (count,)
            and not point.is_floating_point()
            and not bool(((point < 0) | (point >= len(self))).any())
        )

    def classifiers(self, point: Tensor | None, count: int) -> Tensor:
        """Which of the stacked classifiers answers each of `count` samples.

        Args:
            point: Their rows of the table; None where all are at the first.
            count: How many there are.
        """
        return self.classifier.expand(count) if point is None else self.classifier[point]

    def is_active(self, exit: int, rows: Sequence[int]) -> bool:
        """Whether an exit is in force at any of the points `rows`."""
        return any(exit in self.points[row].active for row in rows)

    def is_carried(self, exit: int) -> bool:
        """Whether what exits remember here is read later at any point of the table: an early exit is ahead.

        Whoever is on board: flights at other points may join, and what all have with them must be of one kind.
        """
        return any(exit <= early for point in self.points for early in point.active[-2:-1])

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
