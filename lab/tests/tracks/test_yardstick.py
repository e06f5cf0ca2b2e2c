"""The yardstick against closed forms and a plain loop."""

import numpy as np
import pytest

from offramp_bench.tracks.yardstick import BUDGETS, FIGURES, LOST, Curve, Range, figures_of, is_cost, measure

COSTS = np.array([[0.2, 0.4, 0.8]])
ACCURACIES = np.array([[0.6, 0.8, 0.9]])
FULL = np.array([0.9])


def test_a_curve_by_hand() -> None:
    found = measure(COSTS, ACCURACIES, FULL, start=0.2)
    assert found["cost at 0 points lost"][0] == pytest.approx(0.8)
    assert found["cost at 0.5 points lost"][0] == pytest.approx(0.4 + 0.4 * 0.095 / 0.1)
    assert found["cost at 1 points lost"][0] == pytest.approx(0.4 + 0.4 * 0.09 / 0.1)
    assert found["accuracy at 25 % of the cost"][0] == pytest.approx(0.65)
    assert found["accuracy at 50 % of the cost"][0] == pytest.approx(0.825)
    assert found["accuracy at 75 % of the cost"][0] == pytest.approx(0.8875)
    area = 0.2 * 0.7 + 0.4 * 0.85 + 0.2 * 0.9
    assert found["mean accuracy"][0] == pytest.approx(area / 0.8)


def test_no_hull_is_taken() -> None:
    # The second point is dominated: whoever chose it on tune pays for it here.
    found = measure(np.array([[0.2, 0.5, 0.9]]), np.array([[0.9, 0.7, 0.9]]), FULL, start=0.2)
    assert found["cost at 0 points lost"][0] == pytest.approx(0.9)
    assert found["accuracy at 50 % of the cost"][0] == pytest.approx(0.7)


def test_points_beyond_the_full_network_are_the_full_network() -> None:
    inside = measure(COSTS, ACCURACIES, FULL, start=0.2)
    beyond = measure(np.append(COSTS, [[1.3]], 1), np.append(ACCURACIES, [[0.99]], 1), FULL, start=0.2)
    assert {name: float(values[0]) for name, values in beyond.items()} == pytest.approx(
        {name: float(values[0]) for name, values in inside.items()}
    )


def test_nothing_is_filled_in_below_the_first_point() -> None:
    found = measure(np.array([[0.6]]), np.array([[0.9]]), np.array([0.95]), start=0.6)
    assert np.isnan(found["accuracy at 25 % of the cost"][0])
    assert np.isnan(found["accuracy at 50 % of the cost"][0])
    assert found["accuracy at 75 % of the cost"][0] == pytest.approx(0.9 + 0.05 * 0.15 / 0.4)
    assert Range(start=0.6, first_exit=0.6).reported() == (*FIGURES[:3], *FIGURES[5:])
    assert Range(start=0.6, first_exit=0.1).reported() == FIGURES


def test_a_curve_that_is_never_below_costs_its_first_point() -> None:
    found = measure(np.array([[0.1, 0.5]]), np.array([[0.95, 0.96]]), np.array([0.95]), start=0.1)
    assert [found[name][0] for name in FIGURES[:3]] == pytest.approx([0.1] * 3)


def test_ties_in_cost_and_equal_accuracies_stay_finite() -> None:
    found = measure(np.array([[0.3, 0.3, 0.3]]), np.array([[0.5, 0.5, 0.5]]), np.array([0.5]), start=0.3)
    assert [found[name][0] for name in FIGURES if is_cost(name)] == pytest.approx([0.3] * 3)
    assert found["mean accuracy"][0] == pytest.approx(0.5)


def test_many_curves_equal_a_plain_loop() -> None:
    generator = np.random.default_rng(0)
    costs = generator.uniform(0.05, 1.2, (200, 7))
    accuracies = generator.uniform(0.4, 0.9, (200, 7))
    full = generator.uniform(0.6, 0.9, 200)
    found = measure(costs, accuracies, full, start=0.3)
    for row in range(200):
        kept = costs[row] < 1
        points = sorted(zip([*costs[row][kept], 1.0], [*accuracies[row][kept], full[row]], strict=True))
        x, y = np.array(points).T
        grid = np.linspace(0.3, 1, 20001)
        assert found["mean accuracy"][row] == pytest.approx(np.interp(grid, x, y).mean(), abs=1e-3)
        for budget, name in zip(BUDGETS, FIGURES[3:6], strict=True):
            if budget >= x[0]:
                assert found[name][row] == pytest.approx(np.interp(budget, x, y))
            else:
                assert np.isnan(found[name][row])
        fine = np.linspace(x[0], 1, 200001)
        line = np.interp(fine, x, y)
        for lost, name in zip(LOST, FIGURES[:3], strict=True):
            short = np.flatnonzero(line < full[row] - lost - 1e-9)
            expected = fine[min(short[-1] + 1, len(fine) - 1)] if len(short) else x[0]
            assert found[name][row] == pytest.approx(expected, abs=2e-4)


def test_weights_repeat_samples() -> None:
    generator = np.random.default_rng(1)
    spent = generator.uniform(1, 5, (3, 40)).astype(np.float32)
    correct = generator.random((3, 40)) < 0.7
    full, full_correct = np.full(40, 5, np.float32), generator.random(40) < 0.9
    picked = generator.integers(40, size=40)
    weights = np.bincount(picked, minlength=40).astype(np.float32)[None]
    weighted = figures_of(Curve(spent, correct, full, full_correct), 0.5, weights)
    repeated = figures_of(Curve(spent[:, picked], correct[:, picked], full[picked], full_correct[picked]), 0.5)
    for name in FIGURES:
        assert weighted[name][0] == pytest.approx(repeated[name][0], rel=1e-5, nan_ok=True)
