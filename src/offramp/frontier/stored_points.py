"""Operating points and what they cost, from an artifact."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from offramp.artifact import LARGEST, Field
from offramp.cost import Costs, CostTable
from offramp.errors import ArtifactError, InputError
from offramp.exits import ExitBank
from offramp.frontier.saving import COSTS
from offramp.frontier.tensors import Tensors
from offramp.policy import POLICIES, OperatingPoint

__all__ = ["MOST", "TEMPERATURES", "read_costs", "read_points"]

MOST = 100_000
"""Features of a stage, sets of classifiers or points at most."""

TEMPERATURES = 1e-6, 1e6
"""Range of temperatures: fitted ones are from 0.01 to 100, and logits divided by these do not overflow."""

THRESHOLDS = -1e-3, math.inf
"""Range of prediction sets' thresholds: scores are from 0 to 1, and rounding may take them a little below 0."""

PRICES = 0.0, LARGEST
"""Range of costs, and of the sizes of those who leave."""

POWERS = 8
"""Of samples' sizes at most, the zeroth included; three are in use."""


def read_costs(field: Field, policy: str, tensors: Tensors, bank: ExitBank) -> Costs:
    """What a policy costs.

    Args:
        field: How many tables there are.
        policy: Its name.
        tensors: The file of points.
        bank: The exits.
    """
    powers, length = field.integer(low=1, high=POWERS), len(bank.widths)
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
        raise tensors.wrong(f"costs.{policy}.full", "expected a cost above 0, got 0")
    tables = [{column: values[power] for column, values in columns.items()} for power in range(powers)]
    return Costs(tuple(CostTable(**table, carries_state=bank.carries_state) for table in tables))


def read_points(
    field: Field, policy: str, tensors: Tensors, bank: ExitBank, costs: Costs | None
) -> list[OperatingPoint]:
    """A policy's points, each with all its numbers.

    Args:
        field: The list of them.
        policy: Its name.
        tensors: The file of points.
        bank: The exits.
        costs: What the policy costs, if the manifest says so.
    """
    rows = field.items()
    if not 0 < len(rows) <= MOST:
        raise field.wrong(f"1 to {MOST} points")
    rule, length = POLICIES.get(policy), len(bank.widths)
    sizes = {"num_exits": length, "num_classes": bank.num_classes}
    temperatures = tensors.read(f"{policy}.temperatures", (len(rows), length), within=TEMPERATURES)
    parameters = {
        name: tensors.read(f"{policy}.parameters.{name}", (len(rows), *rule.shape(name, **sizes)))
        for name in sorted(rule.parameters)
    }
    conformal = {
        level: _conformal(f"{policy}.conformal.{level!r}", tensors, (len(rows), length, bank.num_classes))
        for level in tensors.miscoverages(policy)
    }
    leaving: Sequence[Tensor | None] = [None] * len(rows)
    if costs is not None and f"{policy}.leaving" in tensors.named:
        leaving = list(_leaving(f"{policy}.leaving", tensors, (len(rows), len(costs.tables), length)))
    points: list[OperatingPoint] = []
    for index, row in enumerate(rows):
        figures = row.at("promised")
        figures.at("cost").number(low=1 / LARGEST)
        figures.at("accuracy").number(low=0, high=1)
        promised = {key: value.number() for key, value in figures.entries().items()}
        if points and promised["cost"] < points[-1].promised["cost"]:
            raise figures.wrong("a cost no lower than that of the point before")
        try:
            point = OperatingPoint(
                policy,
                {name: tensor[index] for name, tensor in parameters.items()},
                row.at("active").integers(high=length - 1),
                temperatures[index],
                row.at("classifier").integer(high=bank.stacked - 1),
                {level: tensor[index] for level, tensor in conformal.items()},
                promised,
                leaving[index],
            )
        except InputError as error:
            raise ArtifactError(f"{row.file}, field '{row.place}.active': {error}") from error
        points.append(point)
    return points


def _conformal(name: str, tensors: Tensors, most: tuple[int, int, int]) -> Tensor:
    """Thresholds of prediction sets: `points x exits`, or `points x exits x classes` where classes have their own."""
    return tensors.read(name, most if tensors.named[name].ndim == 3 else most[:2], within=THRESHOLDS)


def _leaving(name: str, tensors: Tensors, least: tuple[int, int, int]) -> Tensor:
    """Who leaves where: `points x powers x exits`, of as many powers of the sizes as costs have tables, or more.

    There are more where times were measured at one size, and the fit has counted samples of many.
    """
    points, tables, length = least
    found = tensors.named[name]
    powers = found.shape[1] if found.ndim == 3 and tables <= found.shape[1] <= POWERS else tables
    leaving = tensors.read(name, (points, powers, length), dtype=torch.float64, within=PRICES)
    everybody = leaving.sum(2)
    # By these sums a point's price is divided.
    if bool((everybody <= 0).any() | ((everybody[:, 0] - 1).abs() > 1e-6).any()):
        raise tensors.wrong(name, "expected shares that add up to 1 at each point, and sizes above 0, got others")
    return leaving
