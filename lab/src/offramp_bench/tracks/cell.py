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

from offramp._files import write_atomically
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
from offramp_bench.paper.tasks import Task
from offramp_bench.tracks.choosing import choose_points
from offramp_bench.tracks.contestants import SHIPPED, TRAININGS, Training
from offramp_bench.tracks.samples import Look, Splits, load_splits, pooling_of, prices_of, widest_ladder
from offramp_bench.tracks.tuning import EPOCHS, SHORT, TUNING_SEED, VARIANTS, Variant, settings_of
from offramp_bench.tracks.yardstick import Curve, measure

__all__ = ["Cell", "Footing", "cell_files", "read_cell", "run_cell", "save_cell", "tuned_variant"]

CACHE = places.CACHE / "tracks"

VERSION = 1
"""Version of what a cell measures; cells of another version are computed again."""

BUDGETS = np.linspace(0, 1, 33)[1:]
"""Relative costs at which points are chosen on tune, besides the cheapest point."""

MISCOVERAGE = 0.05

ONE_EXIT = "one_exit"
"""No policy: every sample leaves at the same exit."""


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
    width = widest_ladder(task.name, look) if training.settings.get("exits") == "ladder" else 0
    parts: tuple[Any, ...] = (VERSION, training, pooling_of(task, look), task.shares, task.most_rows, width)
    if training.name == SHIPPED:
        parts = (*parts, DEFAULT)
    elif training.name not in TRAININGS:  # a reader's own: fitted again whenever its file changes
        module = inspect.getmodule(METHODS.get(training.method))
        parts = (*parts, "" if module is None else inspect.getsource(module))
    return f"{stable_hash(str((*parts, EPOCHS, SHORT, VARIANTS))):x}"


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
    known = identity(task, training, look)
    if file.exists():
        saved = json.loads(file.read_text())
        if saved["identity"] == known:
            return VARIANTS[int(np.argmax(saved["scores"]))]
    splits = load_splits(task, look, TUNING_SEED)
    scores = [_score(task, training, look, splits, variant) for variant in VARIANTS]
    file.parent.mkdir(parents=True, exist_ok=True)
    with write_atomically(file) as temporary:
        temporary.write_text(json.dumps({"identity": known, "scores": scores}))
    say(f"{task.name}, {training.name}, {look}: tuned, {[round(100 * score, 2) for score in scores]}")
    return VARIANTS[int(np.argmax(scores))]


def _score(task: Task, training: Training, look: Look, splits: Splits, variant: Variant) -> float:
    """Return the mean accuracy on tune of a short fit; 0 if it diverges."""
    settings = settings_of(task, training, look, variant, epochs=SHORT, seed=TUNING_SEED, gates=False)
    prices = prices_of(task.name, look)
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
    splits, prices = load_splits(task, look, seed), prices_of(task.name, look)
    method = METHODS.get(training.method)
    if training.name == SHIPPED:
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
    started = time.process_time()
    if training.method == "paper":
        fitted = fit_joint(splits.fit, splits.tune, prices, settings, on_epoch=records.append)
    else:
        fitted = method(splits.fit, splits.tune, prices, settings)
    cpu_s = time.process_time() - started
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
        kept = footing.points(policy)
        curves[policy], exits = _curve(kept, outcomes["test"], costs[policy])
        points[policy] = _described(kept, exits, outcomes)
    test = outcomes["test"]
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
        "full accuracy": float(test.full_correct.double().mean()),
        "exit accuracy": [float(share) for share in test.correct.double().mean((0, 1))],
        "epochs": [[record.phase, record.loss, *record.tune_priced_loss] for record in records],
        "points": points,
    }
    return Cell(figures, curves)


def save_cell(cell: Cell, files: tuple[Path, Path]) -> None:
    """Write a cell; the figures last, so that a cell with figures is whole."""
    figures, curves = files
    figures.parent.mkdir(parents=True, exist_ok=True)
    arrays: dict[str, Any] = {}
    for policy, curve in cell.curves.items():
        arrays[f"{policy}.spent"], arrays[f"{policy}.correct"] = curve.spent, np.packbits(curve.correct, axis=1)
        arrays["full"], arrays["full_correct"] = curve.full, curve.full_correct
    np.savez_compressed(curves, **arrays)
    with write_atomically(figures) as temporary:
        temporary.write_text(json.dumps(cell.figures))


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
        needed = self.fitted.exits.averaging.read
        return paying_exits(self.tune, self.temperatures, self.best, self.costs["threshold"], needed=needed)[0]

    def points(self, policy: str) -> list[OperatingPoint]:
        """Return the points of a policy that somebody would choose on tune, in ascending order of cost."""
        every = tuple(range(self.tune.predictions.shape[-1]))
        if policy == ONE_EXIT:
            return self._one_exit_for_all(every)
        costs, best = self.costs[policy], self.best
        candidates: list[OperatingPoint] = []
        for active in dict.fromkeys((self.paying, every)):
            view = tuning_of(
                self.fitted, self.tune, self.temperatures, costs, classifier=best, active=active, seed=self.seed
            )
            candidates += POLICIES.get(policy).candidates(view)
            # Everybody leaves at the first exit, and nobody leaves early: both can be had without any policy.
            candidates += [
                OperatingPoint("threshold", {"threshold": torch.tensor(level)}, active, self.temperatures[best], best)
                for level in (0.0, 2.0)
            ]
        points = thin(candidates, self.tune, costs)
        spent, right = ([point.tune_metrics[name] for point in points] for name in ("cost", "accuracy"))
        return [points[index] for index in choose_points(spent, right, BUDGETS, samples=len(self.tune.labels))]

    def _one_exit_for_all(self, every: tuple[int, ...]) -> list[OperatingPoint]:
        """Return one point per exit at which every sample leaves: the network cut there, with a trained head."""
        points = [
            OperatingPoint("threshold", {"threshold": torch.tensor(0.0)}, (exit, every[-1]), self.temperatures[0])
            for exit in every[:-1]
        ]
        return thin(points, self.tune, self.costs["threshold"])


def _mean_accuracy(points: Sequence[OperatingPoint], tune: Outcomes) -> float:
    found = [np.array([[point.tune_metrics[name] for point in points]]) for name in ("cost", "accuracy")]
    full = tune.full_correct.double().mean().numpy()[None]
    return float(measure(found[0], found[1], full, start=float(found[0].min()))["mean accuracy"][0])


def _curve(points: Sequence[OperatingPoint], test: Outcomes, costs: Costs) -> tuple[Curve, Tensor]:
    exits, rows, table = simulate(points, test), torch.arange(len(test.labels)), costs.of(test.sizes)
    spent = [table.spent(left, point.active) for point, left in zip(points, exits, strict=True)]
    correct = [test.correct[point.classifier, rows, left] for point, left in zip(points, exits, strict=True)]
    full = table.full.float().expand(len(rows)).numpy()
    curve = Curve(torch.stack(spent).float().numpy(), torch.stack(correct).numpy(), full, test.full_correct.numpy())
    return curve, exits


def _described(
    points: Sequence[OperatingPoint], exits: Tensor, outcomes: Mapping[str, Outcomes]
) -> list[dict[str, float]]:
    """Return calibration error, prediction sets and the share that leaves in the first third of the exits."""
    test, calibrate = outcomes["test"], outcomes["calibrate"]
    rows, described = torch.arange(len(test.labels)), []
    assert test.probabilities is not None
    for point, left, before in zip(points, exits, simulate(points, calibrate), strict=True):
        scores = calibrate.conformal_scores[point.classifier]
        thresholds = variant_thresholds("gated", scores, before, miscoverage=MISCOVERAGE)
        answers = test.probabilities[point.classifier, rows, left]
        sets = prediction_set(answers, thresholds[left])
        correct = test.correct[point.classifier, rows, left]
        described.append(
            {
                "ece": float(calibration_error(answers.amax(1).clamp_max(1), correct)),
                "set size": float(sets.double().sum(1).mean()),
                "coverage": float(sets[rows, test.labels].double().mean()),
                "early": float((left < test.predictions.shape[-1] / 3).double().mean()),
            }
        )
    return described
