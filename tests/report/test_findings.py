import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from offramp.cost._unit import CostUnit
from offramp.errors import InputError
from offramp.report import find
from offramp.report._findings import VERSION
from tests.cases import refuses
from tests.report.examples import at, drawn, found, toy, with_gates


def numbers(value: Any) -> Iterator[Any]:
    """All that a JSON value holds."""
    if isinstance(value, dict | list):
        for one in value.values() if isinstance(value, dict) else value:
            yield from numbers(one)
    else:
        yield value


def test_points_are_measured_as_the_frontier_does() -> None:
    frontier, source = toy(*drawn(200, 4, 3))
    frontier = with_gates(frontier)
    point = at(frontier, 0.8)
    findings = find(frontier, source, point=point, seed=3)
    assert list(findings.curves) == ["threshold", "gates"]
    for policy, curve in findings.curves.items():
        points = frontier.points[policy]
        assert len(curve) >= min(24, len(points))
        known = {(row.accuracy, row.relative_cost) for row in curve}
        for expected in frontier.evaluate(source, points=[points[0], points[-1]]).rows:
            assert (expected.accuracy, expected.relative_cost) in known
    expected = frontier.evaluate(source, points=[point], seed=3).rows[0]
    assert findings.chosen.exit_shares == expected.exit_shares
    assert [use.share for use in findings.exits] == pytest.approx(expected.exit_shares)
    assert findings.chosen.calibration_error == expected.calibration_error
    assert findings.full.accuracy == pytest.approx(findings.chosen.accuracy - findings.chosen.change)
    changes = {one.label: one.change for one in findings.by_class}
    assert tuple(changes[label] for label in range(3)) == pytest.approx(expected.class_change)


def test_only_the_exits_in_force_are_told() -> None:
    frontier, source = toy(*drawn(100, 4, 3))
    findings = find(frontier, source, point=at(frontier, 0.8, active=(1, 3)))
    assert [use.exit for use in findings.exits] == [1, 3]
    assert sum(use.samples for use in findings.exits) == 100


def test_json_is_plain_and_has_no_nan() -> None:
    logits, labels = drawn(60, 3, 4)
    labels[labels == 2] = 1  # a class without samples
    frontier, source = toy(logits, labels)
    findings = find(frontier, source, point=at(frontier, 2.0))
    content = findings.to_json()
    assert json.loads(json.dumps(content, allow_nan=False)) == content
    assert content["version"] == VERSION
    assert all(isinstance(one, str | int | float | bool | None) for one in numbers(content))
    assert content["by_class"][-1] == {
        "label": 2,
        "name": "2",
        "samples": 0,
        "accuracy": None,
        "change": None,
        "change_interval": None,
    }
    assert content["exits"][0]["accuracy"] is None


def test_better_are_those_cheaper_and_no_worse() -> None:
    findings = found()
    first, *_, last = findings.alternatives
    cheap = findings.chosen.relative_cost

    def better(cost: float, lead: float) -> bool:
        changed = replace(last, relative_cost=cost, lead=lead)
        return changed in replace(findings, alternatives=(replace(first, lead=-1), changed)).better

    assert better(cheap / 2, 0.1)
    assert better(cheap / 2, 0.0)
    assert better(cheap, 0.1)
    assert not better(cheap, 0.0)
    assert not better(cheap / 2, -0.1)
    assert not better(cheap * 2, 0.1)


def test_costs_are_counted_or_measured() -> None:
    frontier, source = toy(*drawn(40, 3, 3))
    point = at(frontier, 0.9)
    assert find(frontier, source, point=point).cost_kind == "counted Mul-Adds"
    assert find(replace(frontier, unit=CostUnit("ms", 2.0)), source, point=point).cost_kind == "measured time"


def test_names_come_from_the_caller_then_from_the_frontier() -> None:
    frontier, source = toy(*drawn(40, 3, 3))
    point = at(frontier, 0.8)
    assert find(frontier, source, point=point).classes == ("0", "1", "2")
    named = replace(frontier, classes=("a", "b", "c"))
    assert find(named, source, point=point).classes == ("a", "b", "c")
    assert find(named, source, point=point, classes=["x", "y", "z"], name="mine").classes == ("x", "y", "z")
    with refuses(InputError, expected="3 names", got="2: "):
        find(frontier, source, point=point, classes=["x", "y"])


def test_what_is_not_of_the_frontier_is_refused() -> None:
    frontier, source = toy(*drawn(40, 3, 3))
    point = at(frontier, 0.8)
    with pytest.raises(InputError, match="cached features, got list"):
        find(frontier, [], point=point)  # type: ignore[arg-type]
    with refuses(InputError, expected="an operating point of this model"):
        find(frontier, source, point=replace(point, classifier=3))
    with refuses(InputError, expected="an operating point of this model"):
        find(frontier, source, point=replace(point, policy="gates"))
    source.backbone_fingerprint = "other"  # type: ignore[attr-defined]
    with pytest.raises(InputError, match="another network"):
        find(frontier, source, point=point)
