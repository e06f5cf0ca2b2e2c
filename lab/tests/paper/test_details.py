"""Figures of single exits on a small made-up source."""

import json
from dataclasses import replace
from typing import Any

import pytest
import torch

from offramp.methods._joint import fit_joint
from offramp.model._outcomes import Outcomes, compute_outcomes, tune_temperatures
from offramp.policy import POLICIES, OperatingPoint
from offramp_bench.paper.claims import judge_claims
from offramp_bench.paper.details import BASELINE, FULL, JEI, identity, measure_details
from offramp_bench.paper.exit_figures import (
    REQUESTED,
    VARIANTS,
    accuracy_after_success,
    calibration_by_exit,
    gated_accuracy,
    prediction_sets,
    trained_gate_points,
    use_of_exits,
)
from offramp_bench.paper.tasks import TASKS
from offramp_bench.tracks.samples import Splits
from tests.methods.examples import COSTS, QUICK, clusters

SETTINGS = {
    JEI: replace(QUICK, epochs=3),
    FULL: replace(QUICK, epochs=3, classifier_loss="full"),
    BASELINE: replace(QUICK, epochs=3),
}


@pytest.fixture(scope="module")
def splits() -> Splits:
    # Ids from 0 in every source: only `load_splits` needs them apart.
    return Splits(clusters(200), clusters(90, seed=1), clusters(80, seed=2), clusters(120, seed=3))


@pytest.fixture(scope="module")
def measured(splits: Splits) -> dict[str, Any]:
    return measure_details(splits, COSTS, SETTINGS)


@pytest.fixture(scope="module")
def outcomes(splits: Splits) -> tuple[list[OperatingPoint], Outcomes, Outcomes]:
    fitted = fit_joint(splits.fit, splits.tune, COSTS, SETTINGS[JEI])
    temperatures = tune_temperatures(fitted.exits, splits.tune)
    calibrate, test = (
        compute_outcomes(fitted.exits, part, temperatures, probabilities=True)
        for part in (splits.calibrate, splits.test)
    )
    costs = COSTS.price(fitted.exits, POLICIES.get("gates"))
    return trained_gate_points(fitted, calibrate, temperatures, costs), calibrate, test


class TestDetails:
    def test_one_row_per_cost_weight_and_exit(self, measured: dict[str, Any]) -> None:
        assert [found["cost weight"] for found in measured["cost weights"]] == list(QUICK.cost_weights)
        for found in measured["cost weights"]:
            assert sum(exit["leave"] for exit in found["exits"]) == measured["test"] == 120
            right = sum(exit["leave"] * exit["accuracy"] for exit in found["exits"] if exit["leave"])
            assert right / 120 == pytest.approx(found["accuracy"])
            assert set(found["sets"]) == set(VARIANTS)
            assert len(found["sets"]["gated"]["coverage"]) == len(measured["requested"]) == len(REQUESTED)
            assert sum(exit["leave"] for exit in found["baseline"]["exits"]) == 120

    def test_accuracy_after_every_epoch_of_joint_training(self, measured: dict[str, Any]) -> None:
        for name in (JEI, FULL):
            epochs = measured["convergence"][name]
            assert [len(epoch["accuracy"]) for epoch in epochs] == [3, 3, 3]
            assert all(0 < cost <= 1.1 for epoch in epochs for cost in epoch["cost"])
        assert measured["convergence"][JEI] != measured["convergence"][FULL]

    def test_figures_are_those_of_the_fit(
        self, measured: dict[str, Any], outcomes: tuple[list[OperatingPoint], Outcomes, Outcomes]
    ) -> None:
        """Watching a fit does not change it."""
        _, _, test = outcomes
        assert measured["calibration by depth"][JEI]["after"] == pytest.approx(calibration_by_exit(test))
        assert measured["accuracy after success"][JEI] == accuracy_after_success(test)

    def test_claims_can_be_judged_on_them(self, measured: dict[str, Any]) -> None:
        stored = json.loads(json.dumps(measured, allow_nan=False))
        verdicts = {claim["name"]: claim["verdict"] for claim in judge_claims({}, {"tiny": stored})}
        for name in ("Conformal variants", "Calibration by depth", "Full gradient", "Easy stays easy", "Coverage"):
            assert verdicts[name] != "not tested"

    def test_other_settings_are_other_details(self) -> None:
        other = {**SETTINGS, BASELINE: replace(SETTINGS[BASELINE], learning_rate=0.5)}
        assert identity(TASKS["nci1"], SETTINGS) == identity(TASKS["nci1"], dict(reversed(SETTINGS.items())))
        assert identity(TASKS["nci1"], SETTINGS) != identity(TASKS["nci1"], other)


def test_accuracy_of_the_gates_is_that_of_the_simulation(splits: Splits) -> None:
    fitted = fit_joint(splits.fit, splits.tune, COSTS, SETTINGS[JEI])
    temperatures = torch.ones(3, 3)
    test = compute_outcomes(fitted.exits, splits.test, temperatures)
    costs = COSTS.price(fitted.exits, POLICIES.get("gates"))
    points = trained_gate_points(fitted, test, temperatures, costs)
    expected = [use_of_exits(point, test, costs) for point in points]
    found = gated_accuracy(fitted, splits.test, costs)
    for key in ("accuracy", "cost"):
        assert found[key] == pytest.approx([figures[key] for figures in expected])


def test_sets_cover_what_they_are_asked_to(outcomes: tuple[list[OperatingPoint], Outcomes, Outcomes]) -> None:
    """On the samples that thresholds come from, at least the requested share is covered."""
    points, calibrate, _ = outcomes
    for point in points:
        for figures in prediction_sets(point, calibrate, calibrate, variants=("general", "strict")).values():
            assert all(got >= 1 - asked for got, asked in zip(figures["coverage"], REQUESTED, strict=True))
            assert figures["size"] == sorted(figures["size"], reverse=True)


def test_accuracy_after_success_by_hand(outcomes: tuple[list[OperatingPoint], Outcomes, Outcomes]) -> None:
    _, _, test = outcomes
    labels = torch.zeros(4, dtype=torch.long)
    predictions = torch.tensor([[[0, 0, 0], [0, 1, 0], [1, 0, 0], [1, 1, 1]]])
    found = accuracy_after_success(replace(test, labels=labels, predictions=predictions))
    assert found == {"all": [0.5, 0.75], "right before": [0.5, 1.0]}
    nobody = accuracy_after_success(replace(test, labels=labels + 2, predictions=predictions))
    assert nobody["right before"] == [None, None]
