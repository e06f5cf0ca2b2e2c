"""The interface of every rule for leaving: one step, the same in the simulator and in the runtime."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from torch import Tensor

from offramp._registry import Registry
from offramp.policy._observation import Observation, Reading

if TYPE_CHECKING:
    from offramp.policy._point import OperatingPoint
    from offramp.policy._tuning import Tuning

__all__ = ["DEFAULT_POLICIES", "OFFERED_POLICIES", "POLICIES", "Policy"]


class Policy(ABC):
    """A rule for leaving, and the operating points it offers.

    A policy is stateless. Its memory of a sample is the carry, a pytree that travels with the sample. Operating points
    differ in the policy's parameters; each sample has its own, so one batch may mix points. All tensors broadcast: the
    simulator puts an axis of points before the samples.
    """

    name: str
    reads: frozenset[Reading]
    """The fields of an `Observation` that the policy reads; no others are computed."""
    parameters: frozenset[str]
    """The names of its parameters."""
    per_exit: frozenset[str]
    """Parameters with one row per exit, `L` rows; the others are one number per point."""
    vectors: Mapping[str, int] = MappingProxyType({})
    """The length of a row, for parameters in `per_exit` whose rows are vectors."""
    per_class: frozenset[str] = frozenset()
    """Parameters in `per_exit` whose rows hold one number per class."""
    stay_values: Mapping[str, float] = MappingProxyType({})
    """Parameter values at which no sample leaves early, where that value is not 0. Decisions are timed there."""
    counts_earlier: bool = False
    """True if a decision depends on earlier exits. A fit then also offers points at which all exits are active."""

    def initial_carry(self, zeros: Tensor) -> Any:
        """Return the carry of samples before their first exit, given one zero per sample."""
        return zeros

    def shape(self, name: str, *, num_exits: int, num_classes: int) -> tuple[int, ...]:
        """Return the shape of one parameter at one operating point.

        Args:
            name: The parameter's name.
            num_exits: L.
            num_classes: K.
        """
        if name not in self.per_exit:
            return ()
        if name in self.per_class:
            return (num_exits, num_classes)
        return (num_exits, self.vectors[name]) if name in self.vectors else (num_exits,)

    @abstractmethod
    def step(self, observation: Observation, carry: Any, parameters: Mapping[str, Tensor]) -> tuple[Tensor, Any]:
        """Decide at one exit.

        Args:
            observation: The answers of this exit.
            carry: The carry that `step` returned at the previous active exit; `initial_carry` at the first.
            parameters: The parameters at this exit, broadcastable against the samples.

        Returns:
            Booleans, true for samples that leave, and the carry.
        """

    @abstractmethod
    def candidates(self, tuning: "Tuning") -> "list[OperatingPoint]":
        """Return operating points to choose from; `offramp.fit` keeps the best of them.

        Args:
            tuning: The answers of all exits on the tune split.
        """

    @abstractmethod
    def mul_adds(self, num_classes: int) -> int:
        """Return the operations of one decision for one sample, softmax and evidence included."""


POLICIES: Registry[Policy] = Registry("policy")
"""The policies, by name."""

OFFERED_POLICIES = ("threshold", "stopping")
"""The policies that a fit offers points of, besides the gates that a method trains; the first is the default."""

DEFAULT_POLICIES = ("gates", "sampled_gates", "stopping", "threshold")
"""The policies that a fit prices and that latency is measured for, unless you name others."""
