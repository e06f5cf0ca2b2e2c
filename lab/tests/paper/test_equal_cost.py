"""Differences at equal cost, and their noise, on curves that are known."""

import math

import numpy as np
import pytest

from lab.tests.paper.examples import HALF, row, task
from offramp_bench.paper.equal_cost import accuracy_gaps, at_equal_cost, mean_lead, mean_level, noise_of_lead


def test_mean_over_costs_on_a_linear_axis_from_where_the_range_begins() -> None:
    rising = {**row(0.9), "uncertainty": [{"cost": cost, "ece": cost} for cost in (0.1, 1.0)]}
    flat = {**row(0.9), "uncertainty": [{"cost": cost, "ece": 0.0} for cost in (0.1, 1.0)]}
    found = task(JEI=rising, BoostedNet=flat)
    assert at_equal_cost(found, "JEI-DNN", "BoostedNet", "ece") == pytest.approx(0.6)
    found["range"]["start"] = 0.5
    assert at_equal_cost(found, "JEI-DNN", "BoostedNet", "ece") == pytest.approx(0.75)
    assert mean_level({"a": found}, "JEI-DNN", "ece", transform=lambda errors: 2 * errors) == pytest.approx(1.5)


def test_begins_where_both_curves_do() -> None:
    late = {**row(0.9), "uncertainty": [{"cost": cost, "ece": cost} for cost in (0.6, 1.0)]}
    flat = {**row(0.9), "uncertainty": [{"cost": cost, "ece": 0.0} for cost in (0.1, 1.0)]}
    found = task(JEI=late, BoostedNet=flat)
    assert at_equal_cost(found, "JEI-DNN", "BoostedNet", "ece") == pytest.approx(0.8)


def test_missing_contestants_give_nothing() -> None:
    found = task(JEI=row(0.9))
    assert at_equal_cost(found, "JEI-DNN", "BoostedNet", "ece") is None
    assert noise_of_lead(found, "JEI-DNN", "BoostedNet") is None
    assert accuracy_gaps({"a": found}, "JEI-DNN", "BoostedNet") == {}
    assert mean_lead({"a": found}, "JEI-DNN", "BoostedNet") is None
    assert mean_level({"a": found}, "BoostedNet", "ece") is None
    found["range"]["start"] = 1.0
    assert mean_level({"a": found}, "JEI-DNN", "ece") is None


class TestNoise:
    def test_variances_add_for_two_that_are_compared_with_a_third(self) -> None:
        found = task(JEI=row(0.9), BoostedNet=row(0.87))
        assert noise_of_lead(found, "JEI-DNN", "BoostedNet") == pytest.approx(math.sqrt(2) * HALF)
        gap = accuracy_gaps({"a": found}, "JEI-DNN", "BoostedNet")["a"]
        assert (gap.figure, gap.noise) == pytest.approx((3.0, 100 * math.sqrt(2) * HALF), abs=1e-3)

    def test_an_interval_of_the_two_themselves_goes_first(self) -> None:
        found = task(JEI=row(0.9), BoostedNet=row(0.87))
        found["leads"]["JEI-DNN"] = {"BoostedNet": {"mean accuracy": [0.03, 0.02, 0.04]}}
        for pair in (("JEI-DNN", "BoostedNet"), ("BoostedNet", "JEI-DNN")):
            assert noise_of_lead(found, *pair) == pytest.approx(0.01)

    def test_is_never_nothing(self) -> None:
        found = task(JEI=row(0.9), ladder=row(0.9))
        found["leads"]["ladder"]["JEI-DNN"] = {"mean accuracy": [0.0, 0.0, 0.0]}
        assert noise_of_lead(found, "JEI-DNN", "ladder") == 0.002

    def test_of_different_tracks_is_unknown(self) -> None:
        assert noise_of_lead(task(JEI=row(0.9), gates=row(0.8)), "JEI-DNN", "linear exits: learned gates") is None


def test_points_in_any_order() -> None:
    found = task(JEI=row(0.9), BoostedNet=row(0.9))
    curve = [{"cost": float(cost), "ece": float(cost)} for cost in np.linspace(0.1, 1, 7)]
    found["contestants"]["JEI-DNN"]["uncertainty"] = curve[::-1]
    found["contestants"]["BoostedNet"]["uncertainty"] = curve
    assert at_equal_cost(found, "JEI-DNN", "BoostedNet", "ece") == pytest.approx(0.0)
