"""The redraws of the default's benchmark, on outcomes whose losses are known."""

import math

import pytest
import torch

from offramp.exits import LinearExits
from offramp.methods import FittedExits
from offramp.model._outcomes import Outcomes
from offramp_bench.guarantees.default import Redraw, draw_once, summary, take_rows
from tests.model.test_choose import costs


def outcomes(count: int, *, early: float) -> Outcomes:
    """Return outcomes of a network that is right on 90 %, and of two exits that agree except on a share `early`."""
    draw = torch.Generator().manual_seed(0)
    labels = torch.zeros(count, dtype=torch.long)
    full = (torch.rand(count, generator=draw) < 0.1).long()
    wrong = torch.rand(count, generator=draw) < early
    exits = torch.stack([torch.where(wrong, 1, full), torch.where(wrong, 1, full), full], -1)
    confidence = torch.full((1, count, 3), 0.8)
    return Outcomes(
        2,
        labels=labels,
        sizes=torch.ones(count),
        full=full,
        predictions=exits[None],
        confidence=confidence,
        margin=confidence,
        conformal_scores=1 - confidence,
        evidence=torch.zeros(1, count, 3, 4),
        brier_gaps=torch.zeros(1, count, 3),
    )


def redraw(early: float, *, size: int = 1000) -> Redraw:
    samples = outcomes(6000, early=early)
    fitted = FittedExits(LinearExits((3, 3, 3), (0, 1), 2))
    shared = fitted, torch.ones(1, 3), costs(), (0, 1, 2)
    return draw_once(samples, *shared, size=size, generator=torch.Generator().manual_seed(0))


def test_exits_as_good_as_the_network_are_taken_and_guaranteed() -> None:
    result = redraw(0.0)
    assert result.guaranteed
    assert result.drop == 0
    assert result.cost == result.least == pytest.approx(1 / 3)
    figures = summary([result])
    assert (figures["broken"], figures["ratio"], figures["guaranteed"]) == (0, 1, 1)


def test_exits_that_lose_two_points_are_not() -> None:
    result = redraw(0.022)
    assert result.drop == 0
    assert result.cost == pytest.approx(1)
    assert not result.guaranteed  # a point that costs as much as the network needs no guarantee
    assert result.half_cost == pytest.approx(1)


def test_what_redraws_come_to() -> None:
    kept = Redraw(True, 0.005, 0.4, 0.2, 0.0, 0.5, 0.02, 0.3)
    broken = Redraw(True, 0.011, 0.2, 0.2, 0.0, 0.5, 0.0, 0.3)
    none = Redraw(False, 0.02, 0.6, 0.2, 0.02, 0.6, 0.0, 0.3)
    figures = summary([kept, broken, none, none])
    assert (figures["broken"], figures["guaranteed"]) == (0.25, 0.5)
    assert figures["ratio"] == pytest.approx((2 + 1 + 3 + 3) / 4)
    assert figures["without a guarantee"]["more than one point lost"] == 0.5
    assert figures["within half a point on tune"]["more than one point lost"] == 0.25
    assert math.isfinite(figures["cost"])


def test_some_of_the_samples() -> None:
    samples = outcomes(10, early=0.3)
    some = take_rows(samples, torch.tensor([3, 3, 7]))
    assert some.labels.shape == (3,)
    assert torch.equal(some.predictions[0, 1], samples.predictions[0, 3])
    assert some.probabilities is None
    assert torch.equal(some.full, samples.full[[3, 3, 7]])
