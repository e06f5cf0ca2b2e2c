"""The walk from safe to cheap: what it tests, where it stops, and how often it goes too far."""

import math

import pytest
import torch
from torch import Tensor

from offramp.uncertainty._risk import (
    LOSSES,
    RiskBound,
    last_passing,
    order_candidates,
    passes,
    samples_needed,
    smooth_variances,
)
from tests.cases import each

BOUNDS: tuple[RiskBound, ...] = ("ltt", "wsr")


def flips(shares: Tensor, samples: int, *, seed: int = 0) -> Tensor:
    """`P x N` zeros and ones, nested: who fails at a share fails at all larger ones."""
    noise = torch.rand(samples, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return (noise < shares[:, None]).to(torch.int8)


def test_ranges_are_mapped_to_the_unit_interval() -> None:
    for loss, ends in (("accuracy", [-1.0, 1.0]), ("brier", [-2.0, 2.0]), ("disagreement", [0.0, 1.0])):
        assert LOSSES[loss].to_unit(torch.tensor(ends)).tolist() == [0, 1]
        assert [LOSSES[loss].limit_to_unit(end) for end in ends] == [0, 1]
    kept = torch.tensor([0.5], dtype=torch.float64)
    LOSSES["accuracy"].to_unit(kept)
    assert kept.tolist() == [0.5]  # not changed in place
    assert [name for name, loss in LOSSES.items() if not loss.labelled] == ["disagreement"]


class TestWalk:
    COSTS = torch.tensor([0.2, 0.4, 0.6, 0.8, 1.0])

    def order(self, means: list[float], *, samples: int = 2000, loss: str = "accuracy", **more: float) -> list[int]:
        variances = torch.full((5,), 1e-3)
        asked = {"max_loss": 0.01, "confidence": 0.95, **more}
        found = order_candidates(self.COSTS, torch.tensor(means), variances, LOSSES[loss], samples=samples, **asked)
        return [int(place) for place in found]

    def test_from_the_dearest_to_the_cheapest(self) -> None:
        assert self.order([0.05, 0.02, 0.005, 0.0, 0.0]) == [4, 3, 2, 1, 0]

    def test_what_is_bound_to_fail_does_not_stand_in_the_way(self) -> None:
        assert self.order([0.05, -0.002, 0.02, 0.0, 0.03]) == [3, 1, 0]

    def test_where_the_dearest_cannot_pass_it_begins_at_what_gains(self) -> None:
        assert self.order([0.0, -0.02, 0.0, 0.0, 0.0], samples=300) == [1, 0]

    def test_one_candidate(self) -> None:
        one = torch.tensor([0.5])
        assert order_candidates(one, one, one, LOSSES["brier"], max_loss=0.1, samples=10, confidence=0.9).tolist() == [
            0
        ]

    def test_no_samples_still_have_an_order(self) -> None:
        assert self.order([0.05, 0.02, 0.005, 0.0, 0.0], samples=0) == [0]


@each("bound", BOUNDS)
@each("loss", list(LOSSES))
def test_zero_losses_pass_from_some_number_of_samples_on(loss: str, bound: RiskBound) -> None:
    asked, variances = {"max_loss": 0.02, "confidence": 0.95}, torch.full((1,), 1e-4)
    needed = samples_needed(0.0, 0.0, LOSSES[loss], **asked)
    assert needed is not None
    for samples, expected in ((int(0.5 * needed), False), (2 * needed, True)):
        values = torch.zeros(1, samples)
        found = passes(values, LOSSES[loss], **asked, bound=bound, variances=variances)
        assert found.tolist() == [expected], samples


def reached(losses: Tensor, bound: RiskBound) -> int | None:
    variances = torch.ones(len(losses))
    return last_passing(losses, LOSSES["disagreement"], max_loss=0.1, confidence=0.9, bound=bound, variances=variances)


@each("bound", BOUNDS)
def test_the_walk_stops_before_the_first_that_fails(bound: RiskBound) -> None:
    shares = torch.cat([torch.linspace(0, 0.3, 40), torch.zeros(3)])  # safe ones behind the wall are out of reach
    losses = flips(shares, 400)
    alone = [reached(losses[place : place + 1], bound) == 0 for place in range(43)]
    assert alone[-1]
    assert reached(losses, bound) == alone.index(False) - 1 > 0
    assert reached(losses[-3:], bound) == 2
    assert reached(losses[38:], bound) is None
    assert reached(losses[:0], bound) is None


@each("bound", BOUNDS)
def test_promises_are_broken_no_more_often_than_allowed(bound: RiskBound) -> None:
    shares, draws, risk = torch.linspace(0, 0.2, 41), 600, 0.1
    steps = [reached(flips(shares, 300, seed=seed), bound) for seed in range(draws)]
    assert all(step is not None for step in steps)
    broken = sum(float(shares[step]) >= 0.1 for step in steps if step is not None) / draws
    assert 0 < broken <= risk + 2 * math.sqrt(risk * (1 - risk) / draws)


@each(("plus", "minus"), [(0.004, 0.002), (0.02, 0.012), (0.0, 0.0)])
def test_so_many_samples_as_are_told_do_half_the_time(plus: float, minus: float) -> None:
    mean, loss, asked = plus - minus, LOSSES["accuracy"], {"max_loss": 0.02, "confidence": 0.95}
    variance = (plus + minus - mean**2) / 4
    needed = samples_needed(mean, variance, loss, **asked)
    assert needed is not None

    def share(samples: int) -> float:
        noise = torch.rand(200, samples, generator=torch.Generator().manual_seed(1))
        gaps = (noise < plus).to(torch.int8) - (noise > 1 - minus).to(torch.int8)
        variances = smooth_variances(torch.full((200,), variance), 2000)
        return float(passes(gaps, loss, **asked, bound="ltt", variances=variances).double().mean())

    assert share(needed // 2) < 0.5
    assert share(2 * needed) > 0.8


def test_no_number_of_samples_promises_what_is_not_so() -> None:
    for mean in (0.02, 0.5):
        assert samples_needed(mean, 0.01, LOSSES["accuracy"], max_loss=0.02, confidence=0.9) is None
    assert (
        samples_needed(0.0199999, 0.2, LOSSES["accuracy"], max_loss=0.02, confidence=0.9) is None
    )  # more than there are


def test_smoothing_leaves_no_variance_at_nothing() -> None:
    assert smooth_variances(torch.zeros(1), 0).tolist() == [0.25]
    assert float(smooth_variances(torch.tensor([0.1]), 10**9)) == pytest.approx(0.1)
