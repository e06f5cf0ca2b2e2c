"""Operating points as tables, so that each sample of a batch may be at its own."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from offramp.errors import InputError
from offramp.policy import POLICIES, OperatingPoint, Policy

__all__ = ["PointTable"]


class PointTable:
    """P operating points of one network, one per row.

    Args:
        points: The points, of any policies.
        device: The device of the samples; by default torch's own choice.

    Attributes:
        points: As above.
        device: As above.
        temperatures: `P x L`.
        policies: The policies of the points.
    """

    def __init__(self, points: Sequence[OperatingPoint], *, device: torch.device | None = None) -> None:
        lengths = {len(point.temperatures) for point in points}
        if len(lengths) != 1:
            raise InputError(
                "operating points",
                expected="at least one, all for the same number of exits",
                got=f"points for {' and '.join(map(str, sorted(lengths)))} exits" if points else "none",
            )
        self.points = tuple(points)
        self.device = device
        self.temperatures = torch.stack([point.temperatures for point in points]).to(device)
        self.policies = tuple(POLICIES.get(name) for name in dict.fromkeys(point.policy for point in points))
        self._classifier = torch.tensor([point.classifier for point in points], device=device)
        active = torch.zeros(self.temperatures.shape, dtype=torch.bool, device=device)
        for row, point in enumerate(points):
            active[row, list(point.active)] = True
        self._active_under = {
            policy.name: active & torch.tensor([[point.policy == policy.name] for point in points], device=device)
            for policy in self.policies
        }
        self._parameters = {
            policy.name: {name: values.to(device) for name, values in _stack_parameters(policy, points).items()}
            for policy in self.policies
        }

    def __len__(self) -> int:
        return len(self.points)

    @property
    def num_exits(self) -> int:
        """L."""
        return self.temperatures.shape[1]

    def has(self, point: object, count: int) -> bool:
        """Tell if `point` holds `count` rows of the table."""
        return (
            isinstance(point, Tensor)
            and point.shape == (count,)
            and not point.is_floating_point()
            and not bool(((point < 0) | (point >= len(self))).any())
        )

    def classifiers(self, point: Tensor | None, count: int) -> Tensor:
        """Return the stacked classifier of each of `count` samples; None for `point` stands for the first row."""
        return self._classifier.expand(count) if point is None else self._classifier[point]

    def is_active(self, exit: int, rows: Sequence[int]) -> bool:
        """Tell if an exit is active at any of the points `rows`."""
        return any(exit in self.points[row].active for row in rows)

    def is_carried(self, exit: int) -> bool:
        """Return True if a later early exit of any point reads the state of this exit.

        This does not depend on the points of a batch: batches at other points may join it, and the states of all must
        have the same structure.
        """
        return any(exit <= early for point in self.points for early in point.active[-2:-1])

    def policies_of(self, rows: Sequence[int]) -> list[Policy]:
        """Return the policies of the points `rows`."""
        names = {self.points[row].policy for row in rows}
        return [policy for policy in self.policies if policy.name in names]

    def active_under(self, policy: Policy) -> Tensor:
        """Return `P x L` flags of the exits that are active at the points of one policy."""
        return self._active_under[policy.name]

    def parameters(self, policy: Policy, exit: int, point: Tensor | int) -> dict[str, Tensor]:
        """Return a policy's parameters at one exit, for `n` rows of the table, or one row for all samples."""
        return {
            name: (values[:, exit] if name in policy.per_exit else values)[point]
            for name, values in self._parameters[policy.name].items()
        }


def _stack_parameters(policy: Policy, points: Sequence[OperatingPoint]) -> Mapping[str, Tensor]:
    """Stack the parameters of one policy, `P x ...`; zeros for points of other policies, which never read them."""
    own = next(point for point in points if point.policy == policy.name)
    return {
        name: torch.stack(
            [
                point.parameters[name] if point.policy == policy.name else torch.zeros_like(own.parameters[name])
                for point in points
            ]
        )
        for name in sorted(policy.parameters)
    }
