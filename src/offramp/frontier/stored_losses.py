"""The losses that promises are made from, in an artifact."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from offramp.artifact import Field
from offramp.frontier.tensors import Tensors
from offramp.policy import Guarantee, OperatingPoint, PointLosses
from offramp.uncertainty import LOSSES

__all__ = ["loss_content", "loss_tensors", "read_losses"]

TYPES = {"accuracy": torch.int8, "brier": torch.float16, "disagreement": torch.int8}
"""What losses are kept in."""

MOST_SAMPLES = 10**8
"""Of a calibrate split."""


def loss_content(points: Mapping[str, Sequence[OperatingPoint]]) -> dict[str, Any] | None:
    """What the manifest says of the calibrate split; None where not all points know what they lose on it.

    Args:
        points: Each policy's.
    """
    every = [point for listed in points.values() for point in listed]
    known = _tuned(points)
    lengths = {name: {len(point.losses[name].samples) for point in every} for name in known}
    measured = [name for name in known if lengths[name] != {0}]
    sizes = {length for name in measured for length in lengths[name]} or {0}
    if not known or len(sizes) != 1:
        return None
    return {"samples": sizes.pop(), "losses": measured, "assumes": Guarantee.assumes}


def loss_tensors(
    points: Mapping[str, Sequence[OperatingPoint]], content: Mapping[str, Any] | None
) -> dict[str, Tensor]:
    """The losses of all points, sample by sample, and what tune says of them.

    Args:
        points: Each policy's.
        content: What the manifest says.
    """
    tensors = {}
    for policy, listed in points.items():
        for name in () if content is None else _tuned(points):
            told = [point.losses[name] for point in listed]
            if content is not None and name in content["losses"]:
                tensors[f"{policy}.losses.{name}"] = torch.stack([one.samples for one in told]).to(TYPES[name])
            tuned = [[one.tune_mean, one.tune_variance] for one in told]
            tensors[f"{policy}.tuned.{name}"] = torch.tensor(tuned, dtype=torch.float64)
    return tensors


def read_losses(field: Field, policy: str, points: Sequence[OperatingPoint], tensors: Tensors) -> list[OperatingPoint]:
    """A policy's points with their losses, where the manifest tells of a calibrate split.

    Args:
        field: What it tells.
        policy: The policy's name.
        points: Its points.
        tensors: The file of points.
    """
    if field.value is None:
        return list(points)
    samples = field.at("samples").integer(high=MOST_SAMPLES)
    field.at("assumes").text()
    names = [item.text() for item in field.at("losses").items()]
    if bool(names) != bool(samples) or len(set(names)) != len(names) or not set(names) <= set(LOSSES):
        raise field.at("losses").wrong(f"names among {', '.join(LOSSES)}, each once, and none where samples are 0")
    read = {}
    for name in sorted(LOSSES):
        if name not in names and f"{policy}.tuned.{name}" not in tensors.named:
            continue
        loss, values = LOSSES[name], torch.zeros(len(points), 0, dtype=TYPES[name])
        if name in names:
            shape, within = (len(points), samples), (loss.low, loss.high)
            values = tensors.read(f"{policy}.losses.{name}", shape, dtype=TYPES[name], within=within)
        tuned = tensors.read(f"{policy}.tuned.{name}", (len(points), 2), dtype=torch.float64)
        means, variances = tuned.unbind(1)
        if bool((means < loss.low).any() | (means > loss.high).any()):
            raise tensors.wrong(f"{policy}.tuned.{name}", f"expected means from {loss.low} to {loss.high}, got others")
        if bool((variances <= 0).any() | (variances > 1).any()):
            raise tensors.wrong(f"{policy}.tuned.{name}", "expected variances above 0 and at most 1, got others")
        read[name] = values, tuned.tolist()
    return [
        replace(point, losses={name: PointLosses(values[row], *tuned[row]) for name, (values, tuned) in read.items()})
        for row, point in enumerate(points)
    ]


def _tuned(points: Mapping[str, Sequence[OperatingPoint]]) -> list[str]:
    """Losses of which all points know what the tune split says."""
    return sorted(set.intersection(*(set(point.losses) for listed in points.values() for point in listed)))
