"""Checks of policies and of the points they offer, before a long fit and with what to mend."""

from collections.abc import Sequence
from typing import Any, get_args

import torch
from torch import Tensor

from offramp.errors import InputError
from offramp.functional import EVIDENCE_SIZE
from offramp.policy.point import OperatingPoint
from offramp.policy.policy import Observation, Policy, Reading
from offramp.registry import run_third_party

__all__ = ["check_points", "check_policy"]

SAMPLES = 2


def check_policy(policy: Policy, *, num_exits: int, num_classes: int) -> None:
    """Refuse a policy that lacks a part, reads what does not exist, or does not decide for each sample.

    Args:
        policy: The policy; it decides once, on made-up samples.
        num_exits: L.
        num_classes: K.

    Raises:
        InputError: If something is wrong with it.
    """
    if not isinstance(policy, Policy):
        raise InputError(f"expected a subclass of offramp.policy.Policy, got a {type(policy).__name__}")
    lacking = [name for name in ("name", "reads", "parameters", "per_exit") if not hasattr(policy, name)]
    if lacking:
        raise InputError(f"policy {policy!r} lacks {', '.join(lacking)}; set them in its class")
    known = get_args(Reading)
    unknown = sorted(set(policy.reads) - set(known))
    if unknown:
        raise InputError(
            f"policy '{policy.name}' reads {', '.join(map(repr, unknown))}, expected some of {', '.join(known)}"
        )
    shapes = {"evidence": (SAMPLES, EVIDENCE_SIZE), "probabilities": (SAMPLES, num_classes)}
    readings: dict[str, Any] = {
        name: torch.full(shapes.get(name, (SAMPLES,)), 1 / num_classes) for name in policy.reads
    }
    if "prediction" in readings:
        readings["prediction"] = torch.zeros(SAMPLES, dtype=torch.long)
    parameters = {}
    for name in policy.parameters:
        shape = policy.shape(name, num_exits=num_exits, num_classes=num_classes)
        parameters[name] = torch.full(shape[1:] if name in policy.per_exit else shape, policy.staying.get(name, 0.0))
    with run_third_party(policy.step, f"policy '{policy.name}'", "add to `reads` what its step looks at"):
        leave, _ = policy.step(Observation(**readings), policy.initial_carry(torch.zeros(SAMPLES)), parameters)
    if not isinstance(leave, Tensor) or leave.dtype != torch.bool or leave.shape != (SAMPLES,):
        given = f"{leave.dtype} of shape {tuple(leave.shape)}" if isinstance(leave, Tensor) else repr(leave)
        raise InputError(
            f"expected step of policy '{policy.name}' to return a tensor of booleans, one per sample, and the carry; "
            f"for {SAMPLES} samples it returned {given}"
        )


def check_points(policy: Policy, points: Sequence[Any], *, num_exits: int, num_classes: int) -> list[OperatingPoint]:
    """Return the candidates of a policy; refuse none at all, and those with other parameters than it declares.

    Args:
        policy: The policy.
        points: What its `candidates` returned.
        num_exits: L.
        num_classes: K.

    Raises:
        InputError: If something is wrong with them.
    """
    if not points:
        raise InputError(
            f"policy '{policy.name}' offered no points; let candidates return tuning.point('{policy.name}', ...)"
        )
    expected = {
        name: policy.shape(name, num_exits=num_exits, num_classes=num_classes) for name in sorted(policy.parameters)
    }
    for point in points:
        given = {name: _shape(point.parameters[name]) for name in sorted(getattr(point, "parameters", {}))}
        if given != expected:
            raise InputError(
                f"expected points of policy '{policy.name}' with tensors of these shapes: {expected}, got {given}"
            )
    return list(points)


def _shape(value: Any) -> Any:
    return tuple(value.shape) if isinstance(value, Tensor) else f"a {type(value).__name__}"
