"""The point that is taken where nothing is asked for: a guarantee, or else what the tune split says, and told so."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from offramp.model._choose import default_point, tune_interval
from offramp.policy import OperatingPoint
from offramp.policy._point import PointLosses
from tests.cases import each
from tests.model.test_choose import frontier_of

TUNE = 1000


def losses(lost: int, gained: int, *, count: int = TUNE, samples: int = 0) -> PointLosses:
    """Of a point that is wrong alone so often, and right alone so often, on `count` tune samples, and as often on
    calibrate."""
    share = [1] * lost + [-1] * gained + [0] * (count - lost - gained)
    spread = float(np.var((np.array(share) + 1) / 2))
    calibrate = np.random.default_rng(0).permutation(np.resize(share, samples)).astype(np.int8)
    return PointLosses(torch.from_numpy(calibrate), (lost - gained) / count, (spread * count + 0.25) / (count + 1))


def point(cost: float, lost: int, gained: int = 0, *, samples: int = 0, loss: str = "accuracy") -> OperatingPoint:
    known = {"accuracy": losses(lost, gained), "disagreement": losses(lost + gained, 0)}
    known[loss] = losses(lost, gained if loss == "accuracy" else 0, samples=samples)
    made = OperatingPoint("threshold", {"threshold": torch.tensor(cost)}, (0, 1, 2), torch.ones(3))
    return replace(made, tune_metrics={"cost": cost, "accuracy": 0.9 - (lost - gained) / TUNE}, losses=known)


def test_a_guarantee_where_the_calibrate_split_allows_one() -> None:
    points = [point(0.2, 30, samples=5000), point(0.4, 2, samples=5000), point(0.8, 0, samples=5000)]
    found = default_point(points, full_accuracy=0.9, tune_samples=TUNE)
    assert found.point.tune_metrics["cost"] == 0.4
    told = found.point.guarantee
    assert told is not None
    assert (told.loss, told.at_most, told.confidence, told.samples) == ("accuracy", 0.01, 0.95, 5000)
    assert found.caution == ""


def test_a_dominated_point_is_not_guaranteed() -> None:
    points = [point(0.4, 2, samples=5000), point(0.5, 3, samples=5000), point(0.6, 2, samples=5000)]
    assert default_point(points, full_accuracy=0.9, tune_samples=TUNE).point.tune_metrics["cost"] == 0.4


def test_else_the_cheapest_that_is_not_below_the_full_network_on_tune() -> None:
    points = [point(0.2, 30, samples=100), point(0.4, 10, 10, samples=100), point(0.8, 0, 1, samples=100)]
    found = default_point(points, full_accuracy=0.9, tune_samples=TUNE)
    assert found.point is points[1]
    assert found.caution.startswith("no guarantee: 100 calibrate samples are too few")
    assert "took the cheapest point that is not below the full network on the tune split (+0.0 points" in found.caution
    low, high = tune_interval(points[1], TUNE)
    assert f"95 % interval {100 * low:+.1f} to {100 * high:+.1f}" in found.caution
    unknown = default_point(points, full_accuracy=0.9, tune_samples=None)
    assert unknown.point is points[1]
    assert "interval" not in unknown.caution


def test_a_guarantee_that_saves_nothing_is_none() -> None:
    points = [point(0.5, 50, samples=5000), point(1.02, 0, samples=5000)]
    found = default_point(points, full_accuracy=0.9, tune_samples=TUNE)
    assert found.point is points[1]
    assert "no point cheaper than the full network keeps" in found.caution
    assert "took the cheapest that does, at relative cost 1.02" in found.caution


def test_else_the_most_accurate() -> None:
    points = [point(0.5, 50, samples=100), point(0.9, 3, samples=100), point(1.02, 4, samples=100)]
    found = default_point(points, full_accuracy=0.9, tune_samples=TUNE)
    assert found.point is points[1]
    assert "no point reaches the full network on the tune split; took the most accurate point (-0.3" in found.caution


def test_without_labels_agreement_is_guaranteed() -> None:
    points = [
        point(0.2, 30, samples=5000, loss="disagreement"),
        point(0.4, 2, samples=5000, loss="disagreement"),
    ]
    told = default_point(points, full_accuracy=0.9, tune_samples=TUNE).point.guarantee
    assert told is not None
    assert (told.loss, told.at_most) == ("disagreement", 0.01)


def test_points_that_were_never_calibrated() -> None:
    found = default_point([point(0.4, 0), point(0.9, 0)], full_accuracy=0.9, tune_samples=TUNE)
    assert found.point.tune_metrics["cost"] == 0.4
    assert "offramp recalibrate" in found.caution


def test_choose_warns_unless_there_is_a_guarantee() -> None:
    frontier = frontier_of([(0.4, 0.9), (0.9, 0.95)])
    with pytest.warns(UserWarning, match=r"no guarantee: .*; took the cheapest point .*\(\+0\.0 points\)"):
        assert frontier.at().point.tune_metrics["cost"] == 0.4
    for splits, known in (
        ({"tune": {"samples": TUNE}}, True),
        ({"tune": {"samples": -5}}, False),
        ({"tune": 3}, False),
        (5, False),
    ):
        told = replace(
            frontier, points={"threshold": [point(0.4, 0)]}, provenance={"splits": splits}, full_accuracy=0.9
        )
        with pytest.warns(UserWarning, match="no guarantee") as caught:
            told.at()
        assert ("95 % interval -0.2 to +0.2" in str(caught[0].message)) == known
    sure = replace(frontier, points={"threshold": [point(0.4, 0, samples=5000)]})
    assert sure.at().point.guarantee is not None  # and no warning, which would be an error here
    assert sure.at(policy="threshold").point.guarantee is not None


class TestInterval:
    @each(("lost", "gained"), [(0, 0), (3, 0), (20, 5), (5, 20), (0, 40)])
    def test_against_the_adjusted_wald_interval(self, lost: int, gained: int) -> None:
        low, high = tune_interval(point(0.4, lost, gained), TUNE)
        # Agresti and Min: half a pair more of each of the four kinds.
        more, count = (lost + 0.5, gained + 0.5), TUNE + 2
        middle = (more[1] - more[0]) / count
        half = 1.959964 * (sum(more) - (more[0] - more[1]) ** 2 / count) ** 0.5 / count
        assert (low, high) == pytest.approx((middle - half, middle + half), abs=2e-4)
        assert high - low > 2e-3

    @each(("lost", "gained"), [(0.002, 0.002), (0.01, 0.005), (0.05, 0.04)])
    def test_it_holds_the_true_change_as_often_as_it_says(self, lost: float, gained: float) -> None:
        draw = np.random.default_rng(0)
        covered = 0
        for _ in range(1000):
            wrong, right, _ = draw.multinomial(TUNE, [lost, gained, 1 - lost - gained])
            low, high = tune_interval(point(0.4, int(wrong), int(right)), TUNE)
            covered += low <= gained - lost <= high
        assert covered >= 930
