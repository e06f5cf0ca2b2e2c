"""The seam to every choice of points: what it may look at, and what it hands back."""

from collections.abc import Callable, Collection
from dataclasses import dataclass

import torch
from torch import Tensor

from offramp.cost import Costs
from offramp.frontier.outcomes import Outcomes
from offramp.methods import FittedExits
from offramp.policy import Observation, OperatingPoint
from offramp.registry import Registry

__all__ = ["CANDIDATES", "Tuning"]


@dataclass(frozen=True)
class Tuning:
    """All that a choice of operating points may look at."""

    fitted: FittedExits
    """Exits and gates."""
    seen: Outcomes
    """Outcomes on the tune split; with probabilities, where the policy reads them."""
    temperatures: Tensor
    """`W x L`."""
    costs: Costs
    """What the policy costs."""
    classifier: int
    """Which set of classifiers; gates that have classifiers of their own answer by those instead."""
    active: tuple[int, ...]
    """The exits in force, the final one last."""
    seed: int
    """Of whatever is drawn."""

    @property
    def early(self) -> tuple[int, ...]:
        """The exits in force but the final one."""
        return self.active[:-1]

    @property
    def relative_costs(self) -> Tensor:
        """`A` cumulative costs of the exits in force as shares of the bare network's, mean over the tune samples."""
        table = self.costs.average(self.seen.sizes)
        return (table.cumulative_costs(self.active) / table.bare)[list(self.active)]

    def observe(self, exit: int, reads: Collection[str]) -> Observation:
        """What a policy sees of the tune samples at one exit.

        Args:
            exit: The exit.
            reads: What the policy reads.
        """
        return self.seen.observe(reads, self.classifier, exit)

    def probabilities(self, exit: int) -> Tensor:
        """`N x K` answers of one exit, temperature applied."""
        answers = self.observe(exit, ("probabilities",)).probabilities
        assert answers is not None
        return answers

    def per_exit(self, values: Tensor, otherwise: float = 0.0) -> Tensor:
        """A parameter of every exit from one of the early exits in force.

        Args:
            values: `(A - 1) x ...`, a row an early exit in force.
            otherwise: What stands at all other exits, where nobody asks.

        Returns:
            `L x ...` in single precision, which artifacts hold.
        """
        whole = torch.full((self.temperatures.shape[1], *values.shape[1:]), otherwise)
        whole[list(self.early)] = values.float()
        return whole

    def point(self, policy: str, **parameters: Tensor) -> OperatingPoint:
        """An operating point with these exits and classifiers.

        Args:
            policy: Its name.
            **parameters: The policy's.
        """
        return OperatingPoint(policy, parameters, self.active, self.temperatures[self.classifier], self.classifier)


CANDIDATES: Registry[Callable[[Tuning], list[OperatingPoint]]] = Registry("candidates")
