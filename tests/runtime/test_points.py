"""Operating points as tables."""

import torch

from offramp.errors import InputError
from offramp.policy import OperatingPoint
from offramp.runtime._points import PointTable
from tests.cases import refuses


def threshold(level: float, active: tuple[int, ...]) -> OperatingPoint:
    return OperatingPoint("threshold", {"threshold": torch.tensor(level)}, active, torch.ones(4))


def gates(offset: float, active: tuple[int, ...]) -> OperatingPoint:
    parameters = {"weight": torch.rand(4, 4), "bias": torch.rand(4), "offset": torch.tensor(offset)}
    return OperatingPoint("gates", parameters, active, torch.ones(4))


def test_parameters_have_one_row_per_sample() -> None:
    points = [threshold(0.5, (0, 3)), gates(1.0, (1, 2, 3)), gates(2.0, (3,))]
    table = PointTable(points)
    first, second = table.policies
    assert (first.name, second.name) == ("threshold", "gates")
    found = table.parameters(second, 1, torch.tensor([2, 1]))
    assert found["offset"].tolist() == [2.0, 1.0]
    torch.testing.assert_close(
        found["weight"], torch.stack([p.parameters["weight"][1] for p in (points[2], points[1])])
    )
    assert float(table.parameters(first, 0, 0)["threshold"]) == 0.5


def test_active_and_carried_exits() -> None:
    table = PointTable([threshold(0.5, (0, 3)), gates(1.0, (1, 2, 3)), threshold(0.9, (3,))])
    assert [table.is_active(exit, (0,)) for exit in range(4)] == [True, False, False, True]
    assert [table.is_active(exit, (0, 1)) for exit in range(4)] == [True] * 4
    for kept, carried in {
        (0,): [True, False, False, False],
        (0, 1): [True, True, True, False],
        (2,): [False] * 4,
    }.items():
        some = PointTable([table.points[row] for row in kept])
        assert [some.is_carried(exit) for exit in range(4)] == carried
    assert table.active_under(table.policies[0]).tolist() == [
        [True, False, False, True],
        [False] * 4,
        [False, False, False, True],
    ]


def test_points_of_several_networks_are_refused() -> None:
    other = OperatingPoint("threshold", {"threshold": torch.tensor(0.5)}, (0, 1), torch.ones(2))
    for points in ([], [threshold(0.5, (0, 3)), other]):
        with refuses(InputError, expected="at least one"):
            PointTable(points)
