"""Figures about the paper's method that the comparison of the tracks does not hold, measured on one more fit."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from offramp.cost._table import Prices
from offramp.features._ids import stable_hash
from offramp.methods import METHODS, FittedExits
from offramp.methods._joint import fit_joint
from offramp.methods._settings import JointSettings
from offramp.model._outcomes import Outcomes, compute_outcomes, simulate, tune_temperatures
from offramp.policy import POLICIES
from offramp_bench import places
from offramp_bench.paper.exit_figures import (
    REQUESTED,
    accuracy_after_success,
    calibration_by_exit,
    gated_accuracy,
    prediction_sets,
    trained_gate_points,
    use_of_exits,
)
from offramp_bench.paper.tasks import Task
from offramp_bench.tracks.cell import Footing, tuned_variant
from offramp_bench.tracks.contestants import TRAININGS
from offramp_bench.tracks.samples import Look, Splits, load_splits, pooling_of, prices_of, spacing_of
from offramp_bench.tracks.tuning import EPOCHS, settings_of

__all__ = [
    "BASELINE",
    "FULL",
    "JEI",
    "detail_file",
    "identity",
    "measure_details",
    "read_details",
    "run_details",
    "tuned_settings",
]

JEI, FULL, BASELINE = "JEI-DNN", "JEI-DNN, full gradient", "BoostedNet"
"""Trainings that are fitted again."""

RESULTS = places.RESULTS / "paper"
"""Folder of committed details, one file per task."""

VERSION = 1
"""Version of what is measured; details of another version are measured again."""

LOOK: Look = "means"
SEED = 0


def detail_file(task: str) -> Path:
    """Return the file of a task's details."""
    return RESULTS / f"{task}.json"


def read_details() -> dict[str, dict[str, Any]]:
    """Return the committed details, by task."""
    return {path.stem: json.loads(path.read_text()) for path in sorted(RESULTS.glob("*.json"))}


def tuned_settings(task: Task) -> dict[str, JointSettings]:
    """Return the settings of the fits, tuned like those of the tracks, by training."""
    settings = {}
    for name in (JEI, FULL, BASELINE):
        training = TRAININGS[name]
        variant = tuned_variant(task, training, LOOK)
        settings[name] = settings_of(task, training, LOOK, variant, epochs=EPOCHS[task.kind], seed=SEED, gates=True)
    return settings


def identity(task: Task, settings: Mapping[str, JointSettings]) -> str:
    """Hash everything that the details of a task depend on.

    Args:
        task: The task.
        settings: Settings by training.
    """
    parts = (VERSION, sorted(settings.items()), pooling_of(task, LOOK), task.shares, task.most_rows)
    return f"{stable_hash(str(parts)):x}"


def run_details(task: Task, settings: Mapping[str, JointSettings]) -> dict[str, Any]:
    """Fit with one seed and measure.

    Args:
        task: The task.
        settings: Settings by training, as `tuned_settings` gives them.
    """
    about = {
        "task": task.name,
        "kind": task.kind,
        "seed": SEED,
        "identity": identity(task, settings),
        "offramp": version("offramp"),
        "pooling": pooling_of(task, LOOK),
        "settings": {name: json.loads(json.dumps(asdict(joint_settings))) for name, joint_settings in settings.items()},
    }
    spacing = spacing_of(task.name, LOOK, "linear")
    splits, prices = load_splits(task, LOOK, SEED, spacing), prices_of(task.name, LOOK, spacing)
    figures = measure_details(splits, prices, settings)
    return {**about, **_round_figures(figures)}


def measure_details(splits: Splits, prices: Prices, settings: Mapping[str, JointSettings]) -> dict[str, Any]:
    """Fit the paper's method, its variant with the full gradient and the baseline, and measure them on test.

    Args:
        splits: The samples.
        prices: Costs of the network.
        settings: Settings by training.

    Returns:
        Figures by cost weight and exit, prediction sets at all levels, calibration error by depth, accuracy after
        success, and accuracy on test after every epoch.
    """
    fitted, convergence = {}, {}
    for name in (JEI, FULL):
        fitted[name], convergence[name] = _fit_watched(splits, prices, settings[name])
    baseline = METHODS.get(TRAININGS[BASELINE].method)(splits.fit, splits.tune, prices, settings[BASELINE])
    ours, theirs = (_FitOutcomes(fitted_exits, splits) for fitted_exits in (fitted[JEI], baseline))
    costs = prices.price(ours.fitted.exits, POLICIES.get("gates"))
    rival = _Baseline(theirs, prices, seed=settings[BASELINE].seed)
    rows = []
    for weight, point in zip(
        settings[JEI].cost_weights,
        trained_gate_points(ours.fitted, ours.outcomes["tune"], ours.temperatures, costs),
        strict=True,
    ):
        left = simulate([point], ours.outcomes["tune"])[0]
        tune_cost = float(costs.of(ours.outcomes["tune"].sizes).relative_cost(left, point.active))
        rows.append(
            {
                "cost weight": weight,
                **use_of_exits(point, ours.outcomes["test"], costs),
                "sets": prediction_sets(point, ours.outcomes["calibrate"], ours.outcomes["test"]),
                "baseline": rival.nearest(tune_cost),
            }
        )
    test = ours.outcomes["test"]
    return {
        "test": len(test.labels),
        "calibrate": splits.calibrate.num_samples,
        "full accuracy": float(test.full_correct.double().mean()),
        "requested": [1 - miscoverage for miscoverage in REQUESTED],
        "cost weights": rows,
        "calibration by depth": {JEI: ours.calibration(splits), BASELINE: theirs.calibration(splits)},
        "accuracy after success": {
            JEI: accuracy_after_success(test),
            BASELINE: accuracy_after_success(theirs.outcomes["test"]),
        },
        "convergence": convergence,
    }


def _round_figures(value: Any) -> Any:
    """Return figures with five digits, whatever holds them."""
    if isinstance(value, float):
        return round(value, 5)
    if isinstance(value, dict):
        return {key: _round_figures(part) for key, part in value.items()}
    return [_round_figures(part) for part in value] if isinstance(value, list) else value


class _FitOutcomes:
    """Fitted exits with their temperatures and outcomes."""

    def __init__(self, fitted: FittedExits, splits: Splits) -> None:
        self.fitted, self.temperatures = fitted, tune_temperatures(fitted.exits, splits.tune)
        self.outcomes: dict[str, Outcomes] = {
            part: compute_outcomes(fitted.exits, getattr(splits, part), self.temperatures, probabilities=part == "test")
            for part in ("tune", "calibrate", "test")
        }

    def calibration(self, splits: Splits) -> dict[str, list[float]]:
        """Return the calibration error of each exit on test, before and after temperature scaling."""
        before = compute_outcomes(self.fitted.exits, splits.test, torch.ones_like(self.temperatures))
        return {"before": calibration_by_exit(before), "after": calibration_by_exit(self.outcomes["test"])}


def _fit_watched(
    splits: Splits, prices: Prices, settings: JointSettings
) -> tuple[FittedExits, list[dict[str, list[float]]]]:
    """Fit jointly; return accuracy and cost on test after every epoch that trains gates, too."""
    records: list[dict[str, list[float]]] = []
    epoch = 0

    def measure(fitted: FittedExits) -> None:
        nonlocal epoch
        epoch += 1
        if epoch > settings.warmup_epochs:
            costs = prices.price(fitted.exits, POLICIES.get("gates"))
            records.append(gated_accuracy(fitted, splits.test, costs))

    return fit_joint(splits.fit, splits.tune, prices, settings, on_exits=measure), records


class _Baseline:
    """The baseline's figures at the cost of another point.

    Args:
        baseline: Outcomes of the baseline's exits.
        prices: Costs of the network.
        seed: Seed of random draws.
    """

    def __init__(self, baseline: _FitOutcomes, prices: Prices, *, seed: int) -> None:
        policy, exits = TRAININGS[BASELINE].own_policies[0], baseline.fitted.exits
        costs = {name: prices.price(exits, POLICIES.get(name)) for name in ("threshold", policy)}
        tune, temperatures = baseline.outcomes["tune"], baseline.temperatures
        self.points = Footing(baseline.fitted, tune, temperatures, costs, seed).points(policy)
        self.outcomes, self.costs = baseline.outcomes, costs[policy]

    def nearest(self, tune_cost: float) -> dict[str, Any]:
        """Return the figures of the point whose cost on tune is nearest."""
        point = min(self.points, key=lambda candidate: abs(candidate.tune_metrics["cost"] - tune_cost))
        calibrate, test = self.outcomes["calibrate"], self.outcomes["test"]
        sets = prediction_sets(point, calibrate, test, variants=("gated",))
        return {**use_of_exits(point, test, self.costs), "sets": sets}
