"""One fit: a training on one task, look and seed, and the curve of every policy on its exits."""

import inspect
import json
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from offramp.cost import Costs
from offramp.errors import InputError
from offramp.features._ids import stable_hash
from offramp.methods import METHODS, FittedExits
from offramp.methods._joint import EpochRecord, fit_joint
from offramp.methods._method import default_settings
from offramp.methods._settings import DEFAULT
from offramp.model._outcomes import Outcomes, compute_outcomes, simulate, tune_temperatures
from offramp.model._points import LEVELS, paying_exits, thin, tuning_of
from offramp.policy import POLICIES, OperatingPoint
from offramp.policy._threshold import threshold_candidates
from offramp.uncertainty import calibration_error, prediction_set
from offramp_bench import places
from offramp_bench.bars import say
from offramp_bench.conformal_variants import variant_thresholds
from offramp_bench.json_files import write_json
from offramp_bench.paper.tasks import TASKS, Task
from offramp_bench.tracks.choosing import NOISE, choose_points
from offramp_bench.tracks.contestants import (
    AGREEMENT,
    ONE_EXIT,
    OPEN,
    OTHER_NETWORKS,
    TRAININGS,
    VOTES,
    Training,
)
from offramp_bench.tracks.other_networks import TIERS, measure_agreement, with_full_network_of
from offramp_bench.tracks.samples import (
    Look,
    Splits,
    fingerprint_of,
    load_splits,
    pooling_of,
    prices_of,
    spacing_of,
    widest_ladder,
)
from offramp_bench.tracks.tuning import EPOCHS, SHORT, TUNING_SEED, VARIANTS, Variant, settings_of
from offramp_bench.tracks.yardstick import Curve, measure

__all__ = ["Cell", "Footing", "cell_files", "read_cell", "run_cell", "samples_key", "save_cell", "tuned_variant"]

CACHE = places.CACHE / "tracks"

VERSION = 2
"""Version of what a cell measures; cells of another version are computed again."""

BUDGETS = np.linspace(0, 1, 33)[1:]
"""Relative costs at which points are chosen on tune, besides the cheapest point."""

MISCOVERAGE = 0.05


@dataclass(frozen=True)
class Cell:
    """Figures and curves of one fit."""

    figures: dict[str, Any]
    """Settings, time, parameters, exits and points, as JSON holds them."""
    curves: dict[str, Curve]
    """The curve of each policy on test."""


def cell_files(task: Task, training: Training, look: Look, seed: int) -> tuple[Path, Path]:
    """Return the files of a cell: its figures and its curves."""
    folder, stem = CACHE / task.name, f"{_slug(training.name)}-{look}-{seed}"
    return folder / f"{stem}.json", folder / f"{stem}.npz"


def _slug(name: str) -> str:
    return name.replace(" ", "-").replace(":", "-")


def identity(task: Task, training: Training, look: Look) -> str:
    """Hash everything but the seed and the tuned settings that a cell depends on."""
    width = widest_ladder(task.name, look) if training.exits == "ladder" else 0
    spacing, network = _spacing(task, training, look), fingerprint_of(_network_task(task, training).name)
    parts: tuple[Any, ...] = (VERSION, training, pooling_of(task, look), task.shares, task.most_rows, width, spacing)
    parts = (*parts, network, BUDGETS.tolist(), NOISE, TIERS)
    if training.method == "default":
        parts = (*parts, DEFAULT)
    elif training.name not in TRAININGS:  # a reader's own: fitted again whenever its file changes
        module = inspect.getmodule(METHODS.get(training.method))
        parts = (*parts, "" if module is None else inspect.getsource(module))
    return f"{stable_hash(str((*parts, EPOCHS, SHORT, VARIANTS))):x}"


def _spacing(task: Task, training: Training, look: Look) -> int:
    """Return n: exits stand after every n-th stage, so that they keep within 2 %, unless on the open track."""
    return 1 if training.name in OPEN else spacing_of(task.name, look, training.exits)


def samples_key(task: Task, training: Training, look: Look) -> tuple[str, str, int]:
    """Return a key of the features that a training reads: trainings with the same key read the same ones."""
    return look, _network_task(task, training).name, _spacing(task, training, look)


def _network_task(task: Task, training: Training) -> Task:
    """Return the task of the network that a training uses."""
    other = OTHER_NETWORKS.get(training.name, {}).get(task.name)
    return task if other is None else TASKS[other]


def tuned_variant(task: Task, training: Training, look: Look) -> Variant:
    """Return the best of the eight settings on the tune split of an extra seed, compared on first use.

    Args:
        task: The task.
        training: The way to train exits; one that inherits takes the settings of another.
        look: What exits see.
    """
    if training.tuned_as is not None:
        return tuned_variant(task, TRAININGS[training.tuned_as], look)
    file = CACHE / task.name / f"{_slug(training.name)}-{look}-tuning.json"
    current_identity = identity(task, training, look)
    if file.exists():
        record = json.loads(file.read_text())
        if record["identity"] == current_identity:
            return VARIANTS[int(np.argmax(record["scores"]))]
    splits = load_splits(task, look, TUNING_SEED, _spacing(task, training, look))
    scores = [_score(task, training, look, splits, variant) for variant in VARIANTS]
    write_json(file, {"identity": current_identity, "scores": scores})
    say(f"{task.name}, {training.name}, {look}: tuned, {[round(100 * score, 2) for score in scores]}")
    return VARIANTS[int(np.argmax(scores))]


def _score(task: Task, training: Training, look: Look, splits: Splits, variant: Variant) -> float:
    """Return the mean accuracy on tune of a short fit; 0 if it diverges."""
    settings = settings_of(task, training, look, variant, epochs=SHORT, seed=TUNING_SEED, gates=False)
    prices = prices_of(task.name, look, _spacing(task, training, look))
    try:
        fitted = METHODS.get(training.method)(splits.fit, splits.tune, prices, settings)
    except InputError as error:
        if error.expected != "a finite loss":
            raise
        say(f"{task.name}, {training.name}: {variant} diverges")
        return 0.0
    temperatures = tune_temperatures(fitted.exits, splits.tune)
    policy = training.policies(look)[0]
    reads_all = "probabilities" in POLICIES.get(policy).reads
    tune = compute_outcomes(fitted.exits, splits.tune, temperatures, probabilities=reads_all)
    costs = {name: prices.price(fitted.exits, POLICIES.get(name)) for name in ("threshold", policy)}
    points = Footing(fitted, tune, temperatures, costs, TUNING_SEED).points(policy)
    score = _mean_accuracy(points, tune)
    return 0.0 if math.isnan(score) else score


def run_cell(task: Task, training: Training, look: Look, seed: int) -> Cell:
    """Fit, choose points on tune, measure on test.

    Args:
        task: The task.
        training: The way to train exits.
        look: What exits see.
        seed: Seed of the fit and of the tune and calibrate splits.
    """
    if training.name == AGREEMENT:
        return _agreement_cell(task, training, look, seed)
    spacing = _spacing(task, training, look)
    network_task = _network_task(task, training)
    splits, prices = load_splits(network_task, look, seed, spacing), prices_of(network_task.name, look, spacing)
    method = METHODS.get(training.method)
    if training.method == "default":
        settings = replace(DEFAULT, seed=seed)
    elif training.name in TRAININGS:
        gates = "gates" in training.policies(look)
        variant = tuned_variant(task, training, look)
        settings = settings_of(task, training, look, variant, epochs=EPOCHS[task.kind], seed=seed, gates=gates)
    else:  # a method of a reader's own, with settings of its own
        settings = default_settings(method)
        if is_dataclass(settings) and any(field.name == "seed" for field in fields(settings)):
            settings = replace(settings, seed=seed)
    records: list[EpochRecord] = []
    start_s = time.process_time()
    if training.method == "paper":
        fitted = fit_joint(splits.fit, splits.tune, prices, settings, on_epoch=records.append)
    else:
        fitted = method(splits.fit, splits.tune, prices, settings)
    cpu_s = time.process_time() - start_s
    temperatures = tune_temperatures(fitted.exits, splits.tune)
    outcomes = {
        part: compute_outcomes(fitted.exits, getattr(splits, part), temperatures, probabilities=True)
        for part in ("tune", "calibrate", "test")
    }
    costs = {
        policy: prices.price(fitted.exits, POLICIES.get("threshold" if policy == ONE_EXIT else policy))
        for policy in dict.fromkeys(("threshold", *training.policies(look)))
    }
    curves, points = {}, {}
    footing = Footing(fitted, outcomes["tune"], temperatures, costs, seed)
    for policy in training.policies(look):
        chosen_points = footing.points(policy)
        curves[policy], exits = _curve(chosen_points, outcomes["test"], costs[policy])
        if network_task.name != task.name:
            curves[policy] = with_full_network_of(curves[policy], task, splits.test, seed)
        points[policy] = _describe_points(chosen_points, exits, outcomes)
    test = outcomes["test"]
    full_correct = next(iter(curves.values())).full_correct
    table = costs["threshold"].average(test.sizes)
    figures = {
        "identity": identity(task, training, look),
        "seed": seed,
        "settings": str(settings),
        "offramp": version("offramp"),
        "pooling": pooling_of(task, look),
        "CPU seconds": cpu_s,
        "parameters": _count_parameters(fitted),
        "share of exits": float(table.cumulative_costs()[-1] / table.full) - 1,
        "full accuracy": float(full_correct.mean()),
        "exit accuracy": [float(share) for share in test.correct.double().mean((0, 1))],
        "epochs": [[record.phase, record.loss, *record.tune_priced_loss] for record in records],
        "points": points,
    }
    return Cell(figures, curves)


def _agreement_cell(task: Task, training: Training, look: Look, seed: int) -> Cell:
    """Return the cell of agreement-based cascading, which trains nothing."""
    curve = measure_agreement(task, seed, BUDGETS)
    figures = {
        "identity": identity(task, training, look),
        "seed": seed,
        "settings": "",
        "offramp": version("offramp"),
        "pooling": pooling_of(task, look),
        "CPU seconds": 0.0,
        "parameters": 0,
        "share of exits": 0.0,
        "full accuracy": float(curve.full_correct.mean()),
        "exit accuracy": [],
        "epochs": [],
        "points": {VOTES: []},
    }
    return Cell(figures, {VOTES: curve})


def save_cell(cell: Cell, files: tuple[Path, Path]) -> None:
    """Write a cell; the figures last, so that a cell with figures is whole."""
    figures, curves = files
    figures.parent.mkdir(parents=True, exist_ok=True)
    arrays: dict[str, Any] = {}
    for policy, curve in cell.curves.items():
        arrays[f"{policy}.spent"], arrays[f"{policy}.correct"] = curve.spent, np.packbits(curve.correct, axis=1)
        arrays["full"], arrays["full_correct"] = curve.full, curve.full_correct
    np.savez_compressed(curves, **arrays)
    write_json(figures, cell.figures)


def read_cell(task: Task, training: Training, look: Look, seed: int) -> Cell | None:
    """Read a cell; None if there is none, or one that was measured in another way."""
    figures_file, curves_file = cell_files(task, training, look, seed)
    if not figures_file.exists():
        return None
    figures = json.loads(figures_file.read_text())
    if (figures["identity"], figures["seed"]) != (identity(task, training, look), seed):
        return None
    with np.load(curves_file) as arrays:
        full, full_correct = arrays["full"], arrays["full_correct"]
        curves = {}
        for policy in training.policies(look):
            correct = np.unpackbits(arrays[f"{policy}.correct"], axis=1, count=len(full)).astype(bool)
            curves[policy] = Curve(arrays[f"{policy}.spent"], correct, full, full_correct)
    return Cell(figures, curves)


def _count_parameters(fitted: FittedExits) -> int:
    """Count the parameters of exits and gates for one cost weight."""
    exits = sum(parameter.numel() for parameter in fitted.exits.take(0).parameters())
    return exits + (0 if fitted.gates is None else fitted.gates.weight[0].numel() + fitted.gates.bias[0].numel())


@dataclass(frozen=True)
class Footing:
    """Trained exits with their answers on tune: what every policy chooses its points from."""

    fitted: FittedExits
    tune: Outcomes
    temperatures: Tensor
    costs: Mapping[str, Costs]
    """Costs by policy, the threshold's among them."""
    seed: int

    @cached_property
    def best(self) -> int:
        """Index of the set of classifiers whose curve with one threshold is best."""
        if self.fitted.exits.stacked == 1:
            return 0
        curves = [
            threshold_candidates(self.tune.confidence[place], self.temperatures[place], place, levels=LEVELS)
            for place in range(self.fitted.exits.stacked)
        ]
        return int(
            np.argmax([_mean_accuracy(thin(curve, self.tune, self.costs["threshold"]), self.tune) for curve in curves])
        )

    @cached_property
    def paying(self) -> tuple[int, ...]:
        """The exits that pay under one threshold."""
        exits_read = self.fitted.exits.averaging.read
        return paying_exits(self.tune, self.temperatures, self.best, self.costs["threshold"], needed=exits_read)[0]

    def points(self, policy: str) -> list[OperatingPoint]:
        """Return the points of a policy that are chosen on tune, in ascending order of cost."""
        all_exits = tuple(range(self.tune.predictions.shape[-1]))
        if policy == ONE_EXIT:
            return self._one_exit_for_all(all_exits)
        costs, best = self.costs[policy], self.best
        candidates: list[OperatingPoint] = []
        for active in dict.fromkeys((self.paying, all_exits)):
            view = tuning_of(
                self.fitted, self.tune, self.temperatures, costs, classifier=best, active=active, seed=self.seed
            )
            # All samples leave at the first exit, or none leaves early: both can be had without any policy. They come
            # first, as of points alike on tune the first is kept, and only these are sure to be the same on test.
            candidates += [
                OperatingPoint("threshold", {"threshold": torch.tensor(level)}, active, self.temperatures[best], best)
                for level in (0.0, 2.0)
            ]
            candidates += POLICIES.get(policy).candidates(view)
        points = thin(candidates, self.tune, costs)
        tune_costs, tune_accuracies = ([point.tune_metrics[name] for point in points] for name in ("cost", "accuracy"))
        return [
            points[index]
            for index in choose_points(tune_costs, tune_accuracies, BUDGETS, samples=len(self.tune.labels))
        ]

    def _one_exit_for_all(self, all_exits: tuple[int, ...]) -> list[OperatingPoint]:
        """Return one point per exit at which every sample leaves: the network cut there, with a trained head."""
        points = [
            OperatingPoint("threshold", {"threshold": torch.tensor(0.0)}, (exit, all_exits[-1]), self.temperatures[0])
            for exit in all_exits[:-1]
        ]
        whole = OperatingPoint("threshold", {"threshold": torch.tensor(0.0)}, all_exits[-1:], self.temperatures[0])
        return thin([*points, whole], self.tune, self.costs["threshold"])


def _mean_accuracy(points: Sequence[OperatingPoint], tune: Outcomes) -> float:
    costs, accuracies = (np.array([[point.tune_metrics[name] for point in points]]) for name in ("cost", "accuracy"))
    full = tune.full_correct.double().mean().numpy()[None]
    return float(measure(costs, accuracies, full, start=float(costs.min()))["mean accuracy"][0])


def _curve(points: Sequence[OperatingPoint], test: Outcomes, costs: Costs) -> tuple[Curve, Tensor]:
    exits, rows, table = simulate(points, test), torch.arange(len(test.labels)), costs.of(test.sizes)
    sample_costs = [table.spent(left, point.active) for point, left in zip(points, exits, strict=True)]
    correct = [test.correct[point.classifier, rows, left] for point, left in zip(points, exits, strict=True)]
    full = table.full.float().expand(len(rows)).numpy()
    curve = Curve(
        torch.stack(sample_costs).float().numpy(), torch.stack(correct).numpy(), full, test.full_correct.numpy()
    )
    return curve, exits


def _describe_points(
    points: Sequence[OperatingPoint], exits: Tensor, outcomes: Mapping[str, Outcomes]
) -> list[dict[str, float]]:
    """Return calibration error, prediction sets and the share that leaves in the first third of the exits."""
    test, calibrate = outcomes["test"], outcomes["calibrate"]
    rows, descriptions = torch.arange(len(test.labels)), []
    assert test.probabilities is not None
    for point, left, calibrate_exits in zip(points, exits, simulate(points, calibrate), strict=True):
        scores = calibrate.conformal_scores[point.classifier]
        thresholds = variant_thresholds("gated", scores, calibrate_exits, miscoverage=MISCOVERAGE)
        answers = test.probabilities[point.classifier, rows, left]
        sets = prediction_set(answers, thresholds[left])
        correct = test.correct[point.classifier, rows, left]
        descriptions.append(
            {
                "ece": float(calibration_error(answers.amax(1).clamp_max(1), correct)),
                "set size": float(sets.double().sum(1).mean()),
                "coverage": float(sets[rows, test.labels].double().mean()),
                "early": float((left < test.predictions.shape[-1] / 3).double().mean()),
            }
        )
    return descriptions
