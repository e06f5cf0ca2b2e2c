"""Under overload the operating point is lowered to points with a guarantee, and restored after."""

import pytest

import offramp
from offramp.errors import BudgetError
from offramp.model._guarantees import Shortfall, list_guaranteed
from offramp.serve import Scheduler
from offramp.serve._overload import MOST_LEVELS, choose_levels
from tests.model.examples import images
from tests.serve.examples import model
from tests.serve.test_scheduler import Clock

DROP = 0.7


def dear() -> offramp.EarlyExitModel:
    """The model at its dearest point, so that there are cheaper ones."""
    given = model()
    return given.at(cost=max(point.tune_metrics["cost"] for point in given.points["threshold"]), policy="threshold")


def test_the_point_follows_the_waiting() -> None:
    clock = Clock()
    scheduler = Scheduler(dear(), overload_drop=DROP, slow_ms=100, clock=clock)
    inputs = images(1, seed=3)[0]

    def ask(waited_s: float, **settings: float) -> float:
        ticket = scheduler.submit(inputs, **settings)
        clock.now += waited_s
        assert scheduler.run_batch() == 1
        ticket.result(timeout=0)
        if not settings:
            assert ticket.point is scheduler.point
        return ticket.point.tune_metrics["cost"]

    normal = dear().point.tune_metrics["cost"]
    assert ask(0.01) == normal
    lowered = [ask(0.2) for _ in range(2 * MOST_LEVELS)]
    assert lowered == sorted(lowered, reverse=True)
    assert lowered[0] < normal
    floor = dear().at(max_drop=DROP, policy="threshold").point
    assert lowered[-1] == floor.tune_metrics["cost"]  # and never below
    assert scheduler.point.guarantee == floor.guarantee
    # A request that names its own point keeps it.
    assert ask(0.2, budget=dear().dial.most_expensive) == dear().dial.most_expensive
    assert ask(0.07) == lowered[-1]  # neither slow nor quick
    restored = [ask(0.0) for _ in range(2 * MOST_LEVELS)]
    assert restored == sorted(restored)
    assert restored[-1] == normal


def test_all_levels_have_the_guarantee() -> None:
    given = dear()
    passing = list_guaranteed(given.points["threshold"], max_drop=DROP, confidence=0.95, loss="accuracy", bound="ltt")
    assert not isinstance(passing, Shortfall)
    assert passing[-1].guarantee == given.at(max_drop=DROP, policy="threshold").point.guarantee
    costs = [point.tune_metrics["cost"] for point in passing]
    assert len(passing) > 1
    levels = choose_levels(given.point, passing)
    assert 1 <= len(levels) <= MOST_LEVELS
    assert levels[-1].tune_metrics["cost"] == min(costs)
    for point in passing:
        assert point.guarantee is not None
        assert point.guarantee.at_most == DROP
        assert point.guarantee.measured == pytest.approx(float(point.losses["accuracy"].samples.double().mean()))


def test_a_floor_that_is_no_floor_is_refused() -> None:
    cheapest = dear().at(max_drop=DROP, policy="threshold")
    with pytest.raises(BudgetError, match="cheaper than"):
        Scheduler(cheapest, overload_drop=DROP)
    with pytest.raises(BudgetError):
        Scheduler(dear(), overload_drop=1e-9)
