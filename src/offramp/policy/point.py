"""One setting of the dial."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import Tensor

from offramp.errors import InputError
from offramp.policy.guarantee import Guarantee, PointLosses
from offramp.policy.policy import POLICIES, Policy

__all__ = ["OperatingPoint"]


@dataclass(frozen=True)
class OperatingPoint:
    """Everything that decides where samples leave and how their answers are read.

    Which exits are in force is part of a point: running sums, costs, temperatures and conformal thresholds are those of
    the active exits alone, in the simulator and in the runtime.

    Example:
        >>> import torch
        >>> point = OperatingPoint("threshold", {"threshold": torch.tensor(0.9)}, (0, 2), torch.ones(3))
        >>> point.rule.name
        'threshold'
    """

    policy: str
    """Name of a registered policy."""
    parameters: Mapping[str, Tensor]
    """Its parameters: `L x ...` for those that differ from exit to exit, else one number."""
    active: tuple[int, ...]
    """The exits in force, ascending, 0-based, the final one last."""
    temperatures: Tensor
    """`L` temperatures that divide the logits before probabilities are read."""
    classifier: int = 0
    """Which of the stacked classifiers answers, where cost weights have their own."""
    conformal_thresholds: Mapping[float, Tensor] = field(default_factory=dict)
    """`L` thresholds for each miscoverage prediction sets are offered at, or `L x K` where classes have their own."""
    promised: Mapping[str, float] = field(default_factory=dict)
    """What was measured of the point on the tune split: cost, accuracy, ..."""
    leaving: Tensor | None = None
    """`C x L` shares of the tune split that leave at each exit, then their sizes (C = 3: and the squares of those), as
    sums over those who leave there divided by the number of all; any table of costs can price the point by them."""
    losses: Mapping[str, PointLosses] = field(default_factory=dict)
    """What it loses against the full network, by the name of the loss: promises are made from them."""
    guarantee: Guarantee | None = None
    """What is promised of the point, if it was chosen for a promise."""

    def __post_init__(self) -> None:
        last = len(self.temperatures) - 1
        ascending = list(self.active) == sorted(set(self.active))
        if not ascending or not self.active or self.active[0] < 0 or self.active[-1] != last:
            raise InputError(f"active exits must ascend and end with the final one, {last}; got {self.active}")

    @property
    def rule(self) -> Policy:
        """The policy itself."""
        return POLICIES.get(self.policy)
