"""Checks of policies and their candidates, before a long fit."""

from collections.abc import Sequence
from typing import Any, get_args

import torch
from torch import Tensor

from offramp._registry import run_third_party
from offramp.errors import InputError
from offramp.functional._statistics import EVIDENCE_SIZE
from offramp.policy._observation import Observation, Reading
from offramp.policy._point import OperatingPoint
from offramp.policy._policy import Policy

__all__ = ["check_points", "check_policy"]

SAMPLES = 2
"""Made-up samples that a policy decides on in the check."""


def check_policy(policy: Policy, *, num_exits: int, num_classes: int) -> None:
    """Refuse a policy that lacks an attribute, reads an unknown field, or does not return one boolean per sample.

    Args:
        policy: The policy; its `step` runs once, on made-up samples.
        num_exits: L.
        num_classes: K.

    Raises:
        InputError: If the check fails.
    """
    if not isinstance(policy, Policy):
        raise InputError(expected="a subclass of offramp.policy.Policy", got=f"a {type(policy).__name__}")
    absent = [name for name in ("name", "reads", "parameters", "per_exit") if not hasattr(policy, name)]
    if absent:
        raise InputError(
            f"policy {policy!r}",
            expected="the attributes name, reads, parameters and per_exit",
            got=f"none called {', '.join(absent)}",
            hint="set them in its class",
        )
    called = f"policy '{policy.name}'"
    unknown = sorted(set(policy.reads) - set(get_args(Reading)))
    if unknown:
        expected = f"reads to hold some of {', '.join(get_args(Reading))}"
        raise InputError(called, expected=expected, got=", ".join(map(repr, unknown)))
    shapes = {"evidence": (SAMPLES, EVIDENCE_SIZE), "probabilities": (SAMPLES, num_classes)}
    fields: dict[str, Any] = {name: torch.full(shapes.get(name, (SAMPLES,)), 1 / num_classes) for name in policy.reads}
    if "prediction" in fields:
        fields["prediction"] = torch.zeros(SAMPLES, dtype=torch.long)
    parameters = {}
    for name in policy.parameters:
        shape = policy.shape(name, num_exits=num_exits, num_classes=num_classes)
        value = policy.stay_values.get(name, 0.0)
        parameters[name] = torch.full(shape[1:] if name in policy.per_exit else shape, value)
    with run_third_party(policy.step, called, "add to `reads` what its step looks at"):
        leave, _ = policy.step(Observation(**fields), policy.initial_carry(torch.zeros(SAMPLES)), parameters)
    if not isinstance(leave, Tensor) or leave.dtype != torch.bool or leave.shape != (SAMPLES,):
        given = f"{leave.dtype} of shape {tuple(leave.shape)}" if isinstance(leave, Tensor) else repr(leave)
        raise InputError(
            called,
            expected="step to return a tensor of booleans, one per sample, and the carry",
            got=f"{given} for {SAMPLES} samples",
        )


def check_points(policy: Policy, points: Sequence[Any], *, num_exits: int, num_classes: int) -> list[OperatingPoint]:
    """Return a policy's candidates as a list, or refuse them.

    Args:
        policy: The policy.
        points: The return value of its `candidates`.
        num_exits: L.
        num_classes: K.

    Raises:
        InputError: If there are none, or their parameters are not those that the policy declares.
    """
    if not points:
        raise InputError(
            f"policy '{policy.name}'",
            expected="at least one candidate point",
            got="none",
            hint=f"let candidates return tuning.point('{policy.name}', ...)",
        )
    expected = {
        name: policy.shape(name, num_exits=num_exits, num_classes=num_classes) for name in sorted(policy.parameters)
    }
    for point in points:
        shapes = {name: _shape(point.parameters[name]) for name in sorted(getattr(point, "parameters", {}))}
        if shapes != expected:
            raise InputError(
                f"policy '{policy.name}'", expected=f"points with tensors of the shapes {expected}", got=str(shapes)
            )
    return list(points)


def _shape(value: Any) -> Any:
    return tuple(value.shape) if isinstance(value, Tensor) else f"a {type(value).__name__}"
