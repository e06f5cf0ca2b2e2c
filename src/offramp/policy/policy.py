"""The seam to every rule for leaving: one step, the same in the simulator and in the runtime."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from torch import Tensor

from offramp.registry import Registry

if TYPE_CHECKING:
    from offramp.policy.point import OperatingPoint
    from offramp.policy.tuning import Tuning

__all__ = ["OFFERED", "POLICIES", "Observation", "Policy", "Reading"]

Reading = Literal["confidence", "evidence", "margin", "noise", "prediction", "probabilities"]


@dataclass(frozen=True)
class Observation:
    """What a policy may look at when samples stand at an exit; only what it declares in `reads` is there."""

    confidence: Tensor | None = None
    """`... x n` largest probability, temperature applied."""
    evidence: Tensor | None = None
    """`... x n x 4` evidence of the raw logits."""
    margin: Tensor | None = None
    """`... x n` how far the largest probability is ahead of the next, temperature applied."""
    noise: Tensor | None = None
    """`... x n` uniform draws in [0, 1)."""
    prediction: Tensor | None = None
    """`... x n` likeliest classes."""
    probabilities: Tensor | None = None
    """`... x n x K`, temperature applied."""


class Policy(ABC):
    """Rule for leaving, and the operating points it offers.

    A policy is stateless. What it remembers of a sample is its carry, a pytree that travels with the sample; what sets
    operating points apart are its parameters, which come a row a sample, so one batch may mix points. Everything
    broadcasts: the simulator puts an axis of points before the samples.
    """

    name: str
    reads: frozenset[Reading]
    """What the policy looks at; nothing else is computed."""
    parameters: frozenset[str]
    """The names of its parameters."""
    per_exit: frozenset[str]
    """Parameters that differ from exit to exit (`L` rows each); the others are one number a point."""
    vectors: Mapping[str, int] = MappingProxyType({})
    """Of the former, those with more than one number an exit: how many."""
    per_class: frozenset[str] = frozenset()
    """Of the former, those with a number a class."""
    staying: Mapping[str, float] = MappingProxyType({})
    """Values of parameters at which nobody leaves early, for those that are not 0; decisions are timed there."""
    counts_earlier: bool = False
    """Whether a decision depends on the exits before: points with all exits in force are then offered too."""

    def initial_carry(self, zeros: Tensor) -> Any:
        """Return the carry of samples before their first exit, given a zero for each of them."""
        return zeros

    def shape(self, name: str, *, num_exits: int, num_classes: int) -> tuple[int, ...]:
        """Return the shape of one parameter at one operating point.

        Args:
            name: The parameter's.
            num_exits: L.
            num_classes: K.
        """
        if name not in self.per_exit:
            return ()
        if name in self.per_class:
            return (num_exits, num_classes)
        return (num_exits, self.vectors[name]) if name in self.vectors else (num_exits,)

    @abstractmethod
    def step(self, seen: Observation, carry: Any, parameters: Mapping[str, Tensor]) -> tuple[Tensor, Any]:
        """Decide at one exit.

        Args:
            seen: What there is to see of the samples.
            carry: What `step` returned at the active exit before; `initial_carry` at the first.
            parameters: Each parameter at this exit, broadcastable against the samples.

        Returns:
            Booleans, who leaves, and the carry of those who stay.
        """

    @abstractmethod
    def candidates(self, tuning: "Tuning") -> "list[OperatingPoint]":
        """Offer operating points, from what the tune split shows; `offramp.fit` keeps the best of them.

        Args:
            tuning: What there is to look at.
        """

    @abstractmethod
    def mul_adds(self, num_classes: int) -> int:
        """Operations of one decision for one sample, softmax and evidence included."""


POLICIES: Registry[Policy] = Registry("policy")
"""The policies, by name."""

OFFERED = ("gates", "sampled_gates", "stopping", "threshold")
"""The policies that a fit prices and that are timed, unless others are asked for."""
