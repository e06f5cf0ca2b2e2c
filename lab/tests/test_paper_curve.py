import numpy as np
import pytest

from offramp_bench.paper.curve import Curve, accuracies_at, area_rows, axis, chosen, cost_of, weights_at


class TestChosen:
    BUDGETS = np.array([0.1, 0.25, 0.35, 1.0])

    def test_the_most_accurate_that_can_be_paid(self) -> None:
        assert chosen([0.3, 0.1, 0.2], [0.9, 0.5, 0.4], self.BUDGETS, samples=10_000) == [1, 0]

    def test_a_dearer_one_within_noise_is_taken(self) -> None:
        costs, accuracies = [0.1, 0.2, 0.3], [0.5, 0.901, 0.9]
        assert chosen(costs, accuracies, self.BUDGETS, samples=10_000) == [0, 1, 2]
        assert chosen(costs, accuracies, self.BUDGETS, samples=10_000_000) == [0, 1]

    def test_the_cheapest_is_always_there(self) -> None:
        assert chosen([0.01, 0.09], [0.5, 0.6], self.BUDGETS, samples=10_000) == [0, 1]

    def test_one_point_stays(self) -> None:
        assert chosen([1.4], [0.1], self.BUDGETS, samples=10) == [0]


class TestAxis:
    def test_runs_from_the_first_exit_to_the_whole_network(self) -> None:
        asked = axis(0.1)
        assert asked[[0, -1]] == pytest.approx([0.1, 1])
        assert np.allclose(np.diff(np.log(asked)), np.log(10) / (len(asked) - 1))

    def test_begins_no_lower_than_a_fiftieth(self) -> None:
        assert axis(0.001)[0] == pytest.approx(0.02)


class TestWeights:
    def test_mixtures_cost_what_is_asked(self) -> None:
        costs, asked = np.array([0.6, 0.2, 0.9]), np.array([0.25, 0.6, 0.89])
        assert np.allclose(weights_at(costs, asked) @ costs, asked)

    def test_no_more_than_two_neighbours_are_mixed(self) -> None:
        weights = weights_at(np.array([0.1, 0.2, 0.3, 0.4]), np.array([0.25]))
        assert weights.tolist() == [[0, pytest.approx(0.5), pytest.approx(0.5), 0]]

    def test_points_of_one_cost_do_not_divide_by_zero(self) -> None:
        assert np.isfinite(weights_at(np.array([0.2, 0.2, 0.5]), np.array([0.1, 0.2, 0.3]))).all()


class TestArea:
    def test_is_the_mean_of_the_interpolated_accuracies(self) -> None:
        rng = np.random.default_rng(0)
        curve = Curve(np.array([0.1, 0.5, 1.0]), rng.random((3, 200)) < np.array([[0.3], [0.6], [0.8]]))
        asked = np.geomspace(0.1, 1, 33)
        rows = area_rows(curve, asked, nothing=np.zeros(200, bool))
        assert rows.mean() == pytest.approx(np.interp(asked, curve.costs, curve.correct.mean(1)).mean())

    def test_the_commonest_class_answers_where_nothing_is_cheap_enough(self) -> None:
        curve = Curve(np.array([0.5]), np.array([[True, True, True, True]]))
        nothing = np.array([True, False, False, False])
        rows = area_rows(curve, np.array([0.1, 0.6]), nothing=nothing)
        assert rows.tolist() == [1, 0.5, 0.5, 0.5]


class TestCostOf:
    def test_where_the_curve_gets_there(self) -> None:
        asked = np.array([0.1, 0.2, 0.4, 0.6])
        found = accuracies_at(np.array([0.6, 0.2]), np.array([0.9, 0.8]), asked)
        assert np.isnan(found[0])
        assert found[1:] == pytest.approx([0.8, 0.85, 0.9])
        assert cost_of(asked, found, 0.849) == 0.4

    def test_never_reached(self) -> None:
        assert cost_of(np.array([0.2]), np.array([0.8]), 0.81) == np.inf
