from dataclasses import FrozenInstanceError

import pytest
import torch

from offramp.errors import InputError, UnknownNameError
from offramp.policy import POLICIES, Guarantee, OperatingPoint
from offramp.policy._threshold import ThresholdPolicy
from tests.cases import each, refuses


def made(active: tuple[int, ...], *, num_exits: int = 4, policy: str = "threshold") -> OperatingPoint:
    return OperatingPoint(policy, {"threshold": torch.tensor(0.9)}, active, torch.ones(num_exits))


class TestOperatingPoint:
    @each("active", [(3,), (0, 3), (0, 1, 2, 3)])
    def test_exits_in_force(self, active: tuple[int, ...]) -> None:
        assert made(active).active == active

    @each("active", [(), (0,), (0, 1, 2), (1, 0, 3), (0, 0, 3), (3, 3), (0, 3, 4), (4,), (3, 0)])
    def test_refuses_other_exits(self, active: tuple[int, ...]) -> None:
        with refuses(InputError, expected="end with the final one, 3", got=repr(active)):
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
        assert made((3,)).tune_metrics == {}
        assert made((3,)).classifier == 0


@each(
    ("loss", "at_most", "told"),
    [
        (
            "accuracy",
            0.01,
            "with 95 % confidence it loses at most 1 point of accuracy to the full network (0.5 lost on 2,000",
        ),
        ("accuracy", 0.005, "at most 0.5 points of accuracy"),
        ("disagreement", 0.02, "it answers at most 2 % of the samples otherwise than the full network (0.5 % on 2,000"),
        ("brier", 0.02, "it has a Brier score at most 0.02 above the full network's (0.005 on 2,000"),
    ],
)
def test_told_in_one_line(loss: str, at_most: float, told: str) -> None:
    made = Guarantee(loss, at_most, confidence=0.95, bound="ltt", samples=2000, measured=0.005)
    assert told in str(made)
    assert "drawn as those of the calibrate split" in made.assumes
