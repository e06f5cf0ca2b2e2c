from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import Tensor

from offramp.errors import InputError
from offramp.policy import POLICIES, Observation, OperatingPoint, Policy, Tuning, check_points, check_policy
from tests.cases import each

SIZES = {"num_exits": 3, "num_classes": 4}


class Rule(Policy):
    name = "mine:rule"
    reads = frozenset({"confidence"})
    parameters = frozenset({"threshold"})
    per_exit = frozenset()

    def __init__(self, **changed: Any) -> None:
        for name, value in changed.items():
            setattr(self, name, value)

    def step(self, seen: Observation, carry: Any, parameters: Mapping[str, Tensor]) -> tuple[Tensor, Any]:
        assert seen.confidence is not None
        return seen.confidence >= parameters["threshold"], carry

    def candidates(self, tuning: Tuning) -> list[OperatingPoint]:
        return []

    def mul_adds(self, num_classes: int) -> int:
        return 0


def reads_margin(seen: Observation, carry: Any, parameters: Any) -> Any:
    return seen.margin > parameters["threshold"], carry


def test_every_policy_passes() -> None:
    for name in POLICIES:
        check_policy(POLICIES.get(name), **SIZES)
    check_policy(Rule(), **SIZES)
    check_policy(Rule(), num_exits=1, num_classes=2)


@each(
    ("policy", "told"),
    [
        (3, "expected a subclass of offramp.policy.Policy, got a int"),
        (Rule(reads=frozenset({"surprise"})), "'mine:rule' reads 'surprise', expected some of confidence"),
        (Rule(step=reads_margin), "policy 'mine:rule' failed with TypeError.*test_checking.py; add to `reads`"),
        (Rule(step=lambda seen, carry, parameters: (True, carry)), "for 2 samples it returned True"),
        (Rule(step=lambda seen, carry, parameters: (seen.confidence, carry)), "returned torch.float32"),
        (Rule(step=lambda seen, carry, parameters: (seen.confidence.mean() > 0, carry)), r"of shape \(\)"),
    ],
)
def test_what_is_wrong_with_a_policy_is_said(policy: Any, told: str) -> None:
    with pytest.raises(InputError, match=told):
        check_policy(policy, **SIZES)


def test_a_policy_without_a_part() -> None:
    class Unfinished(Policy):
        name = "mine:unfinished"
        step, candidates, mul_adds = Rule.step, Rule.candidates, Rule.mul_adds

    with pytest.raises(InputError, match="lacks reads, parameters, per_exit"):
        check_policy(Unfinished(), **SIZES)


def point(**parameters: Any) -> OperatingPoint:
    return OperatingPoint("threshold", parameters, (0, 1, 2), torch.ones(3))


@each(
    ("points", "told"),
    [
        ([], "'mine:rule' offered no points; let candidates return tuning.point"),
        ([point(level=torch.tensor(0.5))], r"\{'threshold': \(\)\}, got \{'level': \(\)\}"),
        ([point(threshold=0.5)], "got {'threshold': 'a float'}"),
        ([point(threshold=torch.ones(3))], r"got \{'threshold': \(3,\)\}"),
    ],
)
def test_what_is_wrong_with_points_is_said(points: list[OperatingPoint], told: str) -> None:
    with pytest.raises(InputError, match=told):
        check_points(Rule(), points, **SIZES)


def test_right_points_come_back() -> None:
    points = [point(threshold=torch.tensor(0.5))]
    assert check_points(Rule(), points, **SIZES) == points
