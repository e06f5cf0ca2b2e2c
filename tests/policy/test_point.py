from dataclasses import FrozenInstanceError

import pytest
import torch

from offramp.errors import InputError, UnknownNameError
from offramp.policy import POLICIES, OperatingPoint, ThresholdPolicy
from tests.cases import each


def made(active: tuple[int, ...], *, num_exits: int = 4, policy: str = "threshold") -> OperatingPoint:
    return OperatingPoint(policy, {"threshold": torch.tensor(0.9)}, active, torch.ones(num_exits))


class TestOperatingPoint:
    @each("active", [(3,), (0, 3), (0, 1, 2, 3)])
    def test_exits_in_force(self, active: tuple[int, ...]) -> None:
        assert made(active).active == active

    @each("active", [(), (0,), (0, 1, 2), (1, 0, 3), (0, 0, 3), (3, 3), (0, 3, 4), (4,), (3, 0)])
    def test_refuses_other_exits(self, active: tuple[int, ...]) -> None:
        with pytest.raises(InputError, match="must ascend and end with the final one, 3"):
            made(active)

    @each("active", [(-1, 3), (-4, 0, 3)])
    def test_refuses_to_count_from_the_end(self, active: tuple[int, ...]) -> None:
        with pytest.raises(InputError):
            made(active)

    def test_one_exit(self) -> None:
        assert made((0,), num_exits=1).active == (0,)

    def test_its_rule(self) -> None:
        assert isinstance(made((3,)).rule, ThresholdPolicy)
        for name in POLICIES:
            assert made((3,), policy=name).rule is POLICIES.get(name)
        with pytest.raises(UnknownNameError, match="unknown policy 'treshold'; did you mean 'threshold'"):
            made((3,), policy="treshold").rule  # noqa: B018

    def test_is_frozen(self) -> None:
        with pytest.raises(FrozenInstanceError):
            made((3,)).classifier = 1  # type: ignore[misc]

    def test_starts_without_guarantees(self) -> None:
        assert made((3,)).conformal_thresholds == {}
        assert made((3,)).promised == {}
        assert made((3,)).classifier == 0
