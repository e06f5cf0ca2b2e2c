"""Operating points, costs and losses in an artifact."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import torch
from torch import Tensor

from offramp.artifact._format import LARGEST, Field
from offramp.artifact._tensors import Tensors
from offramp.cost import Costs
from offramp.cost._table import CostTable
from offramp.errors import ArtifactError, InputError
from offramp.exits import ExitSet
from offramp.policy import POLICIES, Guarantee, OperatingPoint
from offramp.policy._point import PointLosses
from offramp.uncertainty._risk import LOSSES

__all__ = [
    "TEMPERATURES",
    "chosen_content",
    "loss_content",
    "point_content",
    "point_tensors",
    "read_chosen",
    "read_costs",
    "read_points",
]

COSTS = ("stage", "carry", "answer", "decide", "full")
"""Columns of a cost table."""

MOST_POINTS = 100_000
"""Largest number of points per policy."""

TEMPERATURES = 1e-6, 1e6
"""Range of temperatures: fitted ones are from 0.01 to 100, and logits divided by these do not overflow."""

THRESHOLDS = -1e-3, math.inf
"""Range of thresholds of prediction sets: scores are from 0 to 1, and rounding may take them a little below 0."""

PRICES = 0.0, LARGEST
"""Range of costs, and of the sizes of samples that leave at an exit."""

POWERS = 8
"""Largest number of powers of a sample's size, the zeroth included; three are in use."""

TYPES = {"accuracy": torch.int8, "brier": torch.float16, "disagreement": torch.int8}
"""Types that losses are kept in."""

MOST_SAMPLES = 10**8
"""Largest calibrate split."""


def point_content(point: OperatingPoint) -> dict[str, Any]:
    """Return the manifest's entry of a point."""
    return {"active": list(point.active), "classifier": point.classifier, "tune_metrics": dict(point.tune_metrics)}


def chosen_content(points: Sequence[OperatingPoint], chosen: OperatingPoint) -> dict[str, Any]:
    """Return the manifest's entry of a point that no request leads to, with its guarantee.

    Args:
        points: The points of its policy.
        chosen: One of them; its guarantee may differ.
    """
    places = [
        place
        for place, point in enumerate(points)
        if point.active == chosen.active
        and point.classifier == chosen.classifier
        and all(torch.equal(point.parameters[name], value) for name, value in chosen.parameters.items())
    ]
    if not places:
        raise InputError(expected="a point of the model", got=chosen, hint="give one of model.points")
    guarantee = None if chosen.guarantee is None else asdict(chosen.guarantee)
    return {"policy": chosen.policy, "index": places[0], "guarantee": guarantee}


def read_chosen(field: Field, points: Mapping[str, Sequence[OperatingPoint]]) -> OperatingPoint | None:
    """Read the point that no request leads to, if the manifest has one.

    Args:
        field: The manifest's entry.
        points: Points per policy.
    """
    if field.value is None:
        return None
    policy = field.at("policy").text()
    if policy not in points:
        raise field.at("policy").wrong(f"one of {', '.join(points)}")
    point = points[policy][field.at("index").integer(high=len(points[policy]) - 1)]
    entry = field.at("guarantee")
    if entry.value is None:
        return point
    loss = entry.at("loss").text()
    if loss not in LOSSES:
        raise entry.at("loss").wrong(f"one of {', '.join(LOSSES)}")
    guarantee = Guarantee(
        loss,
        entry.at("at_most").number(low=0, high=1),
        entry.at("confidence").number(low=0, high=1),
        entry.at("bound").text(),
        entry.at("samples").integer(low=1, high=MOST_SAMPLES),
        entry.at("measured").number(low=LOSSES[loss].low, high=LOSSES[loss].high),
        entry.at("assumes").text(),
    )
    return replace(point, guarantee=guarantee)


def point_tensors(
    points: Mapping[str, Sequence[OperatingPoint]], costs: Mapping[str, Costs], losses: Mapping[str, Any] | None
) -> dict[str, Tensor]:
    """Return every number of points and costs, stacked: thousands of small tensors would be slow to open.

    Args:
        points: Points per policy.
        costs: Costs per policy.
        losses: The manifest's entry of the calibrate split, from `loss_content`.
    """
    tensors = {
        f"costs.{policy}.{column}": torch.stack([getattr(table, column) for table in priced.tables]).double()
        for policy, priced in costs.items()
        for column in COSTS
    }
    for policy, rows in points.items():
        singles = {f"{policy}.temperatures": torch.stack([point.temperatures for point in rows])}
        for name in rows[0].parameters:
            singles[f"{policy}.parameters.{name}"] = torch.stack([point.parameters[name] for point in rows])
        for level in rows[0].conformal_thresholds:
            columns = [point.conformal_thresholds[level] for point in rows]
            singles[f"{policy}.conformal.{level!r}"] = torch.stack(columns)
        tensors |= {name: check_single(name, tensor) for name, tensor in singles.items()}
        leaving = [point.leaving for point in rows if point.leaving is not None]
        if len(leaving) == len(rows):
            tensors[f"{policy}.leaving"] = torch.stack(leaving).double()
        for name in () if losses is None else _tuned_losses(points):
            point_losses = [point.losses[name] for point in rows]
            if losses is not None and name in losses["losses"]:
                stacked = torch.stack([loss.samples for loss in point_losses])
                tensors[f"{policy}.losses.{name}"] = stacked.to(TYPES[name])
            tuned = [[loss.tune_mean, loss.tune_variance] for loss in point_losses]
            tensors[f"{policy}.tuned.{name}"] = torch.tensor(tuned, dtype=torch.float64)
    return tensors


def check_single(name: str, tensor: Tensor) -> Tensor:
    """Return a tensor if it is in single precision; refuse it otherwise."""
    if tensor.dtype != torch.float32:
        raise InputError(name, expected="torch.float32", got=str(tensor.dtype), hint="convert it before saving")
    return tensor


def loss_content(points: Mapping[str, Sequence[OperatingPoint]]) -> dict[str, Any] | None:
    """Return the manifest's entry of the calibrate split; None if some points do not know their losses on it.

    Args:
        points: Points per policy.
    """
    rows = [point for policy_points in points.values() for point in policy_points]
    names = _tuned_losses(points)
    lengths = {name: {len(point.losses[name].samples) for point in rows} for name in names}
    measured = [name for name in names if lengths[name] != {0}]
    sizes = {length for name in measured for length in lengths[name]} or {0}
    if not names or len(sizes) != 1:
        return None
    return {"samples": sizes.pop(), "losses": measured, "assumes": Guarantee.assumes}


def _tuned_losses(points: Mapping[str, Sequence[OperatingPoint]]) -> list[str]:
    """Return the losses that all points know of the tune split."""
    return sorted(set.intersection(*(set(point.losses) for rows in points.values() for point in rows)))


def read_costs(field: Field, policy: str, tensors: Tensors, exits: ExitSet) -> Costs:
    """Read the costs of a policy.

    Args:
        field: Number of tables.
        policy: Its name.
        tensors: The file of points.
        exits: The exits.
    """
    powers, length = field.integer(low=1, high=POWERS), len(exits.widths)
    columns = {
        column: tensors.read(
            f"costs.{policy}.{column}",
            (powers,) if column == "full" else (powers, length),
            dtype=torch.float64,
            within=PRICES,
        )
        for column in COSTS
    }
    if float(columns["full"].sum()) < 1 / LARGEST:  # every cost is divided by it
        raise tensors.wrong(f"costs.{policy}.full", expected="a cost above 0", got="0")
    tables = [{column: values[power] for column, values in columns.items()} for power in range(powers)]
    return Costs(tuple(CostTable(**table, carries_state=exits.carries_state) for table in tables))


def read_points(
    field: Field, calibration: Field, policy: str, tensors: Tensors, exits: ExitSet, costs: Costs | None
) -> list[OperatingPoint]:
    """Read the points of a policy.

    Args:
        field: The manifest's list of them.
        calibration: The manifest's entry of the calibrate split.
        policy: Its name.
        tensors: The file of points.
        exits: The exits.
        costs: Costs of the policy, if the manifest has any.
    """
    rows = field.items()
    if not 0 < len(rows) <= MOST_POINTS:
        raise field.wrong(f"1 to {MOST_POINTS} points")
    rule, length = POLICIES.get(policy), len(exits.widths)
    sizes = {"num_exits": length, "num_classes": exits.num_classes}
    temperatures = tensors.read(f"{policy}.temperatures", (len(rows), length), within=TEMPERATURES)
    parameters = {
        name: tensors.read(f"{policy}.parameters.{name}", (len(rows), *rule.shape(name, **sizes)))
        for name in sorted(rule.parameters)
    }
    conformal = {
        level: _read_conformal(f"{policy}.conformal.{level!r}", tensors, (len(rows), length, exits.num_classes))
        for level in tensors.miscoverages(policy)
    }
    leaving: Sequence[Tensor | None] = [None] * len(rows)
    if costs is not None and f"{policy}.leaving" in tensors.named:
        leaving = list(_read_leaving(f"{policy}.leaving", tensors, (len(rows), len(costs.tables), length)))
    points: list[OperatingPoint] = []
    for index, row in enumerate(rows):
        figures = row.at("tune_metrics")
        figures.at("cost").number(low=0)  # 0 where free members of a cascade answer
        figures.at("accuracy").number(low=0, high=1)
        tune_metrics = {key: value.number() for key, value in figures.entries().items()}
        if points and tune_metrics["cost"] < points[-1].tune_metrics["cost"]:
            raise figures.wrong("a cost no lower than that of the point before")
        try:
            point = OperatingPoint(
                policy,
                {name: tensor[index] for name, tensor in parameters.items()},
                row.at("active").integers(high=length - 1),
                temperatures[index],
                row.at("classifier").integer(high=exits.stacked - 1),
                {level: tensor[index] for level, tensor in conformal.items()},
                tune_metrics,
                leaving[index],
            )
        except InputError as error:
            raise ArtifactError(f"{row.file}, field '{row.place}.active': {error}") from error
        points.append(point)
    return _read_losses(calibration, policy, points, tensors)


def _read_losses(field: Field, policy: str, points: Sequence[OperatingPoint], tensors: Tensors) -> list[OperatingPoint]:
    """Return the points with their losses, if the manifest has a calibrate split."""
    if field.value is None:
        return list(points)
    samples = field.at("samples").integer(high=MOST_SAMPLES)
    field.at("assumes").text()
    names = [item.text() for item in field.at("losses").items()]
    if bool(names) != bool(samples) or len(set(names)) != len(names) or not set(names) <= set(LOSSES):
        raise field.at("losses").wrong(f"names among {', '.join(LOSSES)}, each once, and none where samples are 0")
    losses = {}
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
            raise tensors.wrong(f"{policy}.tuned.{name}", expected=f"means from {loss.low} to {loss.high}")
        if bool((variances <= 0).any() | (variances > 1).any()):
            raise tensors.wrong(f"{policy}.tuned.{name}", expected="variances above 0 and at most 1")
        losses[name] = values, tuned.tolist()
    return [
        replace(point, losses={name: PointLosses(values[row], *tuned[row]) for name, (values, tuned) in losses.items()})
        for row, point in enumerate(points)
    ]


def _read_conformal(name: str, tensors: Tensors, most: tuple[int, int, int]) -> Tensor:
    """Read thresholds of prediction sets: `points x exits`, or `points x exits x classes` for sets by class."""
    return tensors.read(name, most if tensors.named[name].ndim == 3 else most[:2], within=THRESHOLDS)


def _read_leaving(name: str, tensors: Tensors, least: tuple[int, int, int]) -> Tensor:
    """Read the share of tune samples that leaves at each exit, `points x powers of size x exits`.

    There are at least as many powers as cost tables; more if times were measured at one size only.
    """
    points, tables, length = least
    stored = tensors.named[name]
    powers = stored.shape[1] if stored.ndim == 3 and tables <= stored.shape[1] <= POWERS else tables
    leaving = tensors.read(name, (points, powers, length), dtype=torch.float64, within=PRICES)
    totals = leaving.sum(2)
    # The price of a point is divided by these sums.
    if bool((totals <= 0).any() | ((totals[:, 0] - 1).abs() > 1e-6).any()):
        raise tensors.wrong(name, expected="shares that add up to 1 at each point, and sizes above 0")
    return leaving
