from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import Tensor

from offramp.errors import InputError
from offramp.policy import POLICIES, Observation, OperatingPoint, Policy, Tuning
from offramp.policy._checking import check_points, check_policy
from tests.cases import each, refuses

SIZES = {"num_exits": 3, "num_classes": 4}


class Rule(Policy):
    name = "mine:rule"
    reads = frozenset({"confidence"})
    parameters = frozenset({"threshold"})
    per_exit = frozenset()

    def __init__(self, **changed: Any) -> None:
        for name, value in changed.items():
            setattr(self, name, value)

    def step(self, observation: Observation, carry: Any, parameters: Mapping[str, Tensor]) -> tuple[Tensor, Any]:
        assert observation.confidence is not None
        return observation.confidence >= parameters["threshold"], carry

    def candidates(self, tuning: Tuning) -> list[OperatingPoint]:
        return []

    def mul_adds(self, num_classes: int) -> int:
        return 0


def reads_margin(observation: Observation, carry: Any, parameters: Any) -> Any:
    return observation.margin > parameters["threshold"], carry


def test_every_policy_passes() -> None:
    for name in POLICIES:
        check_policy(POLICIES.get(name), **SIZES)
    check_policy(Rule(), **SIZES)
    check_policy(Rule(), num_exits=1, num_classes=2)


@each(
    ("policy", "got"),
    [
        (3, "a int"),
        (Rule(reads=frozenset({"surprise"})), "'surprise'"),
        (Rule(step=lambda observation, carry, parameters: (True, carry)), "True for 2 samples"),
        (Rule(step=lambda observation, carry, parameters: (observation.confidence, carry)), "torch.float32"),
        (Rule(step=lambda observation, carry, parameters: (observation.confidence.mean() > 0, carry)), "of shape ()"),
    ],
)
def test_refuses_a_wrong_policy(policy: Any, got: str) -> None:
    with refuses(InputError, got=got):
        check_policy(policy, **SIZES)


def test_refuses_a_policy_that_reads_more_than_it_declares() -> None:
    with pytest.raises(InputError, match=r"policy 'mine:rule' failed with TypeError.*test_checking.py; add to `reads`"):
        check_policy(Rule(step=reads_margin), **SIZES)


def test_a_policy_without_a_part() -> None:
    class Unfinished(Policy):
        name = "mine:unfinished"
        step, candidates, mul_adds = Rule.step, Rule.candidates, Rule.mul_adds

    with refuses(InputError, got="reads, parameters, per_exit"):
        check_policy(Unfinished(), **SIZES)


def point(**parameters: Any) -> OperatingPoint:
    return OperatingPoint("threshold", parameters, (0, 1, 2), torch.ones(3))


@each(
    ("points", "got"),
    [
        ([], "none"),
        ([point(level=torch.tensor(0.5))], "{'level': ()}"),
        ([point(threshold=0.5)], "{'threshold': 'a float'}"),
        ([point(threshold=torch.ones(3))], "{'threshold': (3,)}"),
    ],
)
def test_refuses_wrong_points(points: list[OperatingPoint], got: str) -> None:
    with refuses(InputError, got=got):
        check_points(Rule(), points, **SIZES)


def test_right_points_come_back() -> None:
    points = [point(threshold=torch.tensor(0.5))]
    assert check_points(Rule(), points, **SIZES) == points
