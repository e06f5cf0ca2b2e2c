"""One way to fit exits on one task with one seed, and every rule for leaving that is tried on it."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from offramp.cost import Costs
from offramp.features._ids import stable_hash
from offramp.methods import METHODS, FittedExits
from offramp.methods._initialization import create_exits
from offramp.methods._joint import EpochRecord, fit_joint
from offramp.methods._settings import JointSettings
from offramp.model._frontier import area
from offramp.model._outcomes import Outcomes, compute_outcomes, simulate, tune_temperatures
from offramp.model._points import LEVELS, paying_exits, thin, tuning_of
from offramp.policy import POLICIES, OperatingPoint
from offramp.policy._threshold import threshold_candidates
from offramp.uncertainty import calibration_error, prediction_set
from offramp_bench.conformal_variants import variant_thresholds
from offramp_bench.paper.contestants import Exits
from offramp_bench.paper.curve import Curve, area_rows, axis, chosen
from offramp_bench.paper.decomposition import decomposition
from offramp_bench.paper.tasks import TASKS, Look, Task, prices_of, splits_of

__all__ = ["Cell", "axis_of", "identity", "run_cell"]

POLICY_OF = {"geometric": "exit_thresholds", "ends": "threshold"}
"""Rules whose policy has another name."""

REPORTED = 24
"""Points of a curve that are written down."""

MISCOVERAGE = 0.05

VERSION = 3
"""Of what a cell measures: raised where the same fit would be measured in another way."""

DEARER = 1.02
"""Some rules cost a little more than a threshold does: where the axis begins, all can pay for the first exit."""


@dataclass(frozen=True)
class Cell:
    """What was measured."""

    figures: dict[str, Any]
    """As JSON can hold it."""
    areas: dict[str, npt.NDArray[np.float64]]
    """`N` numbers of each rule: what each test sample adds to the area."""


def axis_of(task: Task) -> npt.NDArray[np.float64]:
    """The costs that curves of a task are averaged over: from what the first exit costs, whichever is dearer.

    Args:
        task: The task; a cascade is averaged over the axis of its last network alone.
    """
    if task.alone is not None:
        return axis_of(TASKS[task.alone])
    first = []
    looks: tuple[tuple[Look, JointSettings], ...] = (("paper", task.paper), ("default", task.default))
    for look, settings in looks:
        test = splits_of(task, look, 0).test
        exits = create_exits(test.widths, test.own_heads, test.num_classes, settings=settings)
        table = prices_of(task.name, look).price(exits, POLICIES.get("threshold")).average(test.sizes())
        first.append(float(table.cumulative_costs()[0] / table.full))
    return axis(DEARER * max(first))


def identity(task: Task, exits: Exits) -> str:
    """All that a cell depends on but its seed: a cell of another identity is computed again.

    Args:
        task: The task.
        exits: How exits are fitted.
    """
    # Where the axis begins, in every cell, follows from what the default's first exit costs.
    width = task.default.state_width(task.num_classes)
    how = (exits.settings(task), exits.method, exits.rules, task.pooling(exits.look))
    about = (VERSION, *how, width, task.shares, task.most)
    return f"{stable_hash(str(about)):x}"


def run_cell(task: Task, exits: Exits, seed: int) -> Cell:
    """Fit, choose on tune, measure on test.

    Args:
        task: The task.
        exits: How exits are fitted.
        seed: Of the fit, and of which samples tune.
    """
    splits = splits_of(task, exits.look, seed)
    settings = replace(exits.settings(task), seed=seed)
    prices = prices_of(task.name, exits.look)
    records: list[EpochRecord] = []
    started = time.process_time()
    if exits.method == "joint":
        fitted = fit_joint(splits.fit, splits.tune, prices, settings, on_epoch=records.append)
    else:
        fitted = METHODS.get(exits.method)(splits.fit, splits.tune, prices, settings)
    took = time.process_time() - started
    temperatures = tune_temperatures(fitted.exits, splits.tune)
    seen = {
        part: compute_outcomes(fitted.exits, getattr(splits, part), temperatures, probabilities=True)
        for part in ("tune", "calibrate", "test")
    }
    costs = {rule: prices.price(fitted.exits, POLICIES.get(POLICY_OF.get(rule, rule))) for rule in exits.rules}
    asked = axis_of(task)
    offered = _offered(fitted, seen["tune"], temperatures, costs, exits, seed, splits.test.own_heads)
    points = {rule: _chosen(listed, asked, seen["tune"]) for rule, listed in offered.items()}
    labels = seen["test"].labels
    commonest = int(torch.bincount(seen["tune"].labels).argmax())
    rules, areas = {}, {}
    for rule, listed in points.items():
        curve, reported = _curve(listed, seen, costs[rule], asked)
        areas[rule] = area_rows(curve, asked, nothing=(labels == commonest).numpy())
        drawn = np.stack([curve.costs, curve.correct.mean(1)], 1).round(5).tolist()
        rules[rule] = {"area": float(areas[rule].mean()), "curve": drawn, "points": reported}
    figures = {
        "identity": identity(task, exits),
        "task": task.name,
        "exits": exits.name,
        "seed": seed,
        "test": len(labels),
        "full accuracy": float(seen["test"].full_correct.double().mean()),
        "oracle": _oracle(seen["test"], next(iter(costs.values()))),
        "CPU seconds": took,
        "parameters": _trained(fitted),
        "axis from": float(asked[0]),
        "epochs": [[record.phase, record.loss, *record.tune_priced_loss] for record in records],
        "exit accuracy": [float(share) for share in seen["test"].correct.double().mean((0, 1))],
        "rules": rules,
    }
    if "gates" in exits.rules:
        weights, (calibrate, test) = settings.cost_weights, (seen["calibrate"], seen["test"])
        figures["decomposition"] = decomposition(fitted, weights, temperatures, calibrate, test, costs["gates"])
    return Cell(figures, areas)


def _trained(fitted: FittedExits) -> int:
    """Parameters of the exits, and of the gates if there are any, for one cost weight."""
    exits = sum(parameter.numel() for parameter in fitted.exits.take(0).parameters())
    return exits + (0 if fitted.gates is None else fitted.gates.weight[0].numel() + fitted.gates.bias[0].numel())


def _offered(
    fitted: FittedExits,
    seen: Outcomes,
    temperatures: Tensor,
    costs: Mapping[str, Costs],
    exits: Exits,
    seed: int,
    ends: tuple[int, ...],
) -> dict[str, list[OperatingPoint]]:
    """What each rule offers, the best of every step of cost on tune."""
    everywhere = tuple(range(seen.predictions.shape[-1]))
    best, active = 0, everywhere
    if "threshold" in exits.rules:
        coarse = [
            threshold_candidates(seen.confidence[one], temperatures[one], one, levels=LEVELS)
            for one in range(fitted.exits.stacked)
        ]
        best = max(range(len(coarse)), key=lambda one: area(thin(coarse[one], seen, costs["threshold"])))
        if "gates" not in exits.rules or exits.look == "default":  # the paper's gates have all exits in force
            needed = fitted.exits.averaging.read
            active, _ = paying_exits(seen, temperatures, best, costs["threshold"], needed=needed)

    def extremes(active: tuple[int, ...]) -> list[OperatingPoint]:
        """Everybody leaves at the first exit, and nobody leaves early: what can be had without any rule."""
        levels = [{"threshold": torch.tensor(level)} for level in (0.0, 2.0)]
        return [OperatingPoint("threshold", level, active, temperatures[best], best) for level in levels]

    found = {}
    for rule in exits.rules:
        if rule == "ends":  # the networks of a cascade as they are, nobody leaves inside them
            found[rule] = thin(
                threshold_candidates(seen.confidence[best], temperatures[best], best, active=ends), seen, costs[rule]
            )
            continue
        offered: list[OperatingPoint] = []
        for force in dict.fromkeys((active, everywhere) if rule == "gates" else (active,)):
            view = tuning_of(fitted, seen, temperatures, costs[rule], classifier=best, active=force, seed=seed)
            offered += POLICIES.get(POLICY_OF.get(rule, rule)).candidates(view)
        found[rule] = thin([*offered, *extremes(active)], seen, costs[rule])
    return found


def _chosen(points: Sequence[OperatingPoint], asked: npt.NDArray[np.float64], seen: Outcomes) -> list[OperatingPoint]:
    """Points for all budgets."""
    costs, accuracies = ([point.tune_metrics[name] for point in points] for name in ("cost", "accuracy"))
    return [points[index] for index in chosen(costs, accuracies, asked, samples=len(seen.labels))]


def _measured(points: Sequence[OperatingPoint], seen: Outcomes, costs: Costs) -> tuple[Curve, Tensor]:
    exits = simulate(points, seen)
    table, rows = costs.of(seen.sizes), torch.arange(len(seen.labels))
    spent = [float(table.relative_cost(left, point.active)) for point, left in zip(points, exits, strict=True)]
    correct = [seen.correct[point.classifier, rows, left] for point, left in zip(points, exits, strict=True)]
    return Curve(np.array(spent), torch.stack(correct).numpy()), exits


def _curve(
    points: Sequence[OperatingPoint], seen: Mapping[str, Outcomes], costs: Costs, asked: npt.NDArray[np.float64]
) -> tuple[Curve, list[dict[str, float]]]:
    """The curve on test, and some of its points in full: calibration and prediction sets too."""
    test = seen["test"]
    curve, exits = _measured(points, test, costs)
    tune_costs = np.array([point.tune_metrics["cost"] for point in points])
    budgets = np.geomspace(asked[0], max(1.0, tune_costs[-1]), REPORTED)
    kept = sorted({max(0, int(np.searchsorted(tune_costs, budget, side="right")) - 1) for budget in budgets})
    left_before = simulate([points[index] for index in kept], seen["calibrate"])
    rows, reported = torch.arange(len(test.labels)), []
    for index, before in zip(kept, left_before, strict=True):
        point, left = points[index], exits[index]
        scores = seen["calibrate"].conformal_scores[point.classifier]
        thresholds = variant_thresholds("gated", scores, before, miscoverage=MISCOVERAGE)
        assert test.probabilities is not None
        answers = test.probabilities[point.classifier, rows, left]
        sets = prediction_set(answers, thresholds[left])
        correct = torch.from_numpy(curve.correct[index])
        reported.append(
            {
                "cost": float(curve.costs[index]),
                "accuracy": float(correct.double().mean()),
                "ece": float(calibration_error(answers.amax(1).clamp_max(1), correct)),
                "set size": float(sets.double().sum(1).mean()),
                "coverage": float(sets[rows, test.labels].double().mean()),
                "early": float((left < test.predictions.shape[-1] / 3).double().mean()),
            }
        )
    return curve, reported


def _oracle(seen: Outcomes, costs: Costs) -> dict[str, float]:
    """What leaving at the first exit that is right would bring, at the end if none is: nothing can know it."""
    correct = seen.correct[0]
    first = torch.where(correct.any(1), correct.double().argmax(1), correct.shape[1] - 1)
    cost = float(costs.of(seen.sizes).relative_cost(first))
    return {"accuracy": float(correct.any(1).double().mean()), "cost": cost}
