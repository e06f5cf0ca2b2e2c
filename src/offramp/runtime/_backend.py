"""The protocol of a backend, and the registry of backends."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor

from offramp._registry import Registry
from offramp.backbone._backbone import Backbone
from offramp.backbone._hidden import Hidden
from offramp.exits import ExitSet
from offramp.policy import OperatingPoint, Policy
from offramp.pooling import Pooling
from offramp.runtime._eager import EagerBackend
from offramp.runtime._processor import warn_if_slow

__all__ = ["BACKENDS", "Backend", "BackendFactory", "FusedBackend", "Step"]


class Backend(Protocol):
    """The computation of the stages and exits of one network.

    A backend whose attribute `exact` is true computes in the precision that the network was calibrated in, up to the
    order of sums. Only such a backend keeps the guarantee of an operating point.
    """

    def stage(self, index: int, hidden: Hidden) -> Hidden:
        """Run one stage."""

    def exit(
        self, index: int, hidden: Hidden, state: Any, classifier: Tensor | None, *, answer: bool, carry: bool
    ) -> tuple[Tensor | None, Any]:
        """Run one exit.

        Args:
            index: The stage that has just run.
            hidden: Its output for n samples.
            state: The state that the exit before returned.
            classifier: `n` indices into stacked classifiers; None if there is one set.
            answer: True if the logits are needed.
            carry: True if a later exit may read the state of this one.

        Returns:
            `n x K` logits in full precision, or None if they are not needed, and the new state.
        """


class Step(NamedTuple):
    """n samples after a stage, its exit and a decision."""

    hidden: Hidden
    """The output of the stage."""
    state: Any
    """The new state of the exits."""
    probabilities: Tensor
    """`n x K`, calibrated."""
    leave: Tensor | None
    """`n` flags of the samples that the policy lets leave; None if no policy was asked."""
    carry: Any
    """The new carry of the policy."""


@runtime_checkable
class FusedBackend(Backend, Protocol):
    """A backend that can run a stage, its exit and a policy together."""

    def step(
        self,
        index: int,
        hidden: Hidden,
        state: Any,
        classifier: Tensor | None,
        policy: Policy | None,
        parameters: Mapping[str, Tensor],
        carry: Any,
    ) -> Step | None:
        """Run one stage, its exit and a policy.

        Args:
            index: The stage.
            hidden: Its input for n samples.
            state: As for `exit`.
            classifier: As for `exit`.
            policy: The policy of all samples, which draws nothing at random; None if all leave here.
            parameters: `n x 1` temperatures as "temperature", and the policy's parameters, n of each.
            carry: The policy's carry.

        Returns:
            The result; None if this stage can only be run part by part.
        """

    def single(self, point: OperatingPoint) -> Callable[[Hidden], tuple[Tensor, Tensor]] | None:
        """Return a function that runs the whole network for one sample, where that is possible.

        Args:
            point: The operating point.

        Returns:
            A function from the inputs of one sample to `1 x K` probabilities and its exit.
        """


BackendFactory = Callable[[Backbone, Pooling, ExitSet, Hidden | None], Backend]
"""Makes a backend for a backbone, a pooling and exits; the last argument is an example from `backbone.prepare`."""


def _eager(backbone: Backbone, pooling: Pooling, exits: ExitSet, _example: Hidden | None) -> Backend:
    return EagerBackend(backbone, pooling, exits)


def _bfloat16(backbone: Backbone, pooling: Pooling, exits: ExitSet, _example: Hidden | None) -> Backend:
    if all(parameter.device.type == "cpu" for parameter in backbone.parameters()):
        warn_if_slow("bfloat16")
    return EagerBackend(backbone, pooling, exits, dtype=torch.bfloat16)


BACKENDS: Registry[BackendFactory] = Registry("backend")
"""The backends, by name."""
BACKENDS.add("eager", _eager)
BACKENDS.add("bfloat16", _bfloat16)
BACKENDS.add("onnx", "offramp.runtime.onnx._backend:onnx_backend")
BACKENDS.add("int8", "offramp.runtime.onnx._backend:int8_backend")
