"""The results of one task: figures of every contestant, and the default's lead over each on the same footing."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from offramp.errors import InputError
from offramp.methods._settings import DEFAULT
from offramp.policy._policy import OFFERED_POLICIES
from offramp.pooling._rich import DEFAULT_POOLING
from offramp_bench import places
from offramp_bench.paper.tasks import TASKS, Task
from offramp_bench.tracks.cell import BUDGETS, VERSION, Cell, read_cell, tuned_variant
from offramp_bench.tracks.choosing import NOISE
from offramp_bench.tracks.contestants import (
    CONTESTANTS,
    DEFAULTS,
    OTHER_NETWORKS,
    TRAININGS,
    Contestant,
    cells_of,
    contestants_of,
)
from offramp_bench.tracks.intervals import Lead, bootstrap_figures, compare
from offramp_bench.tracks.other_networks import TIERS
from offramp_bench.tracks.samples import LADDER_WIDTHS, LARGEST_SHARE
from offramp_bench.tracks.tuning import EPOCHS, SHORT, VARIANTS
from offramp_bench.tracks.yardstick import FIGURES, Curve, Range, cost_of, figures_of

__all__ = [
    "RESULTS",
    "assemble",
    "describe_contestant",
    "describe_leads",
    "read_results",
    "result_file",
    "stamp",
]

RESULTS = places.RESULTS / "tracks"
"""Folder of committed results, one file per task."""

START_SHARE = 0.8
"""The mean accuracy begins where a threshold on the paper's exits has this share of the full network's accuracy, or at
the dearest first exit of a contestant, if that is later."""

ANCHOR = "linear"
"""Contestant that sets the range of costs: one threshold on the paper's exits."""

PAPER_METHOD = "JEI-DNN"
"""The paper's method, whose leads over the others its claims are judged by."""

CURVE_COSTS = 24
"""Costs at which a curve is written down."""


def result_file(task: str, folder: Path = RESULTS) -> Path:
    """Return the file of a task's results."""
    return folder / f"{task}.json"


def read_results(folder: Path = RESULTS) -> dict[str, dict[str, Any]]:
    """Return the results in a folder, by task; the committed ones if left out."""
    return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))}


def assemble(task: Task, seeds: Sequence[int]) -> dict[str, Any]:
    """Return the results of a task, from all contestants whose cells are there for every seed.

    Args:
        task: The task.
        seeds: Seeds of the cells.
    """
    cells = {
        name: seed_cells
        for name, contestant in contestants_of(task.name).items()
        if (seed_cells := _cells(task, contestant, seeds)) is not None
    }
    if ANCHOR not in cells:
        raise InputError(
            "training",
            expected=f"cells of '{ANCHOR}', which sets the range of costs",
            got=sorted(cells),
            hint=f"run with --training {ANCHOR} first",
        )
    curves = {
        name: [cell.curves[CONTESTANTS[name].policy] for cell in seed_cells] for name, seed_cells in cells.items()
    }
    # Other networks may begin anywhere: they do not decide which costs the exits of this one are compared at.
    of_this_network = {
        name: seed_curves for name, seed_curves in curves.items() if CONTESTANTS[name].training not in OTHER_NETWORKS
    }
    span = _range(of_this_network)
    figures_on_draws, figures_on_samples = bootstrap_figures(curves, span.start)
    # Where samples differ in size, a budget may lie below the first exit in some draws.
    task_figures = tuple(
        name
        for name in span.reported()
        if all(np.isfinite(figures_on_draws[contestant][name]).all() for contestant in of_this_network)
    )
    figures = {
        name: _reached_figures(task_figures, figures_on_draws[name], seed_curves, span.start)
        for name, seed_curves in curves.items()
    }
    rows = {}
    for name, seed_cells in cells.items():
        contestant = CONTESTANTS[name]
        training = TRAININGS[contestant.training]
        settings = asdict(tuned_variant(task, training, contestant.look)) if training.is_tuned else {}
        rows[name] = describe_contestant(contestant, seed_cells, span.start, figures[name], settings)
    comparisons = compare(figures_on_draws, figures_on_samples, _footings(cells), figures)
    leads = {
        default: {name: describe_leads(by_figure) for name, by_figure in by_name.items()}
        for default, by_name in comparisons.items()
    }
    example = next(iter(cells.values()))[0].figures
    return {
        "task": task.name,
        "kind": task.kind,
        "about": task.about,
        "seeds": list(seeds),
        "test": len(next(iter(curves.values()))[0].full),
        "full accuracy": example["full accuracy"],
        "range": asdict(span),
        "figures": list(task_figures),
        "footings": DEFAULTS,
        "measured with": stamp(task.name),
        "contestants": rows,
        "leads": leads,
    }


def describe_contestant(
    contestant: Contestant, cells: Sequence[Cell], start: float, figures: Sequence[str], settings: Mapping[str, Any]
) -> dict[str, Any]:
    """Return what is written down of a contestant.

    Args:
        contestant: The contestant.
        cells: Its cells, one per seed.
        start: Relative cost where the mean accuracy begins.
        figures: Figures that it has.
        settings: Settings that were tuned.
    """
    first, curves = cells[0].figures, [cell.curves[contestant.policy] for cell in cells]
    figures_by_seed = [figures_of(curve, start) for curve in curves]
    return {
        **asdict(contestant),
        "figures": {figure: float(np.mean([values[figure][0] for values in figures_by_seed])) for figure in figures},
        "mean accuracies": [float(values["mean accuracy"][0]) for values in figures_by_seed],
        "curve": _mean_curve(curves, start),
        "uncertainty": _mean_points([cell.figures["points"][contestant.policy] for cell in cells], curves),
        "exit accuracy": np.mean([cell.figures["exit accuracy"] for cell in cells], axis=0).round(5).tolist(),
        "parameters": first["parameters"],
        "share of exits": round(first["share of exits"], 5),
        "CPU seconds": round(float(np.mean([cell.figures["CPU seconds"] for cell in cells])), 2),
        "settings": dict(settings),
        "epochs": first["epochs"] if contestant.training.startswith("JEI-DNN") else [],
    }


def stamp(task: str) -> dict[str, Any]:
    """Return what results depend on besides the data: the default as it is shipped, trainings and tuning.

    Results whose stamp differs from the current one are out of date.

    Args:
        task: Name of the task.
    """
    return {
        "version": VERSION,
        "default settings": json.loads(json.dumps(asdict(DEFAULT))),
        "default pooling": DEFAULT_POOLING,
        "default policies": list(OFFERED_POLICIES),
        "trainings": {training.name: str(training) for training, _ in cells_of(task)},
        "other networks": {name: tasks[task] for name, tasks in OTHER_NETWORKS.items() if task in tasks},
        "tuning": str((EPOCHS, SHORT, VARIANTS)),
        "points": str((BUDGETS.tolist(), NOISE, TIERS)),
        "samples": str((TASKS[task].shares, TASKS[task].most_rows, TASKS[task].look)),
        "exits": str((LARGEST_SHARE, LADDER_WIDTHS)),
    }


def _cells(task: Task, contestant: Contestant, seeds: Sequence[int]) -> list[Cell] | None:
    optional_cells = [read_cell(task, TRAININGS[contestant.training], contestant.look, seed) for seed in seeds]
    cells = [cell for cell in optional_cells if cell is not None]
    return cells if len(cells) == len(seeds) else None


def _range(curves: Mapping[str, Sequence[Curve]]) -> Range:
    """Return the range of costs of the task, the same for every contestant."""
    first_exit = max(float(curve.costs().min()) for seed_curves in curves.values() for curve in seed_curves)
    starts = []
    for curve in curves[ANCHOR]:
        costs, full = curve.costs(), float(curve.full_correct.mean())
        order = np.argsort(costs)
        line = np.append(costs[order], max(1.0, costs.max()))[None], np.append(curve.accuracies()[order], full)[None]
        starts.append(float(cost_of(*line, np.array([START_SHARE * full]))[0]))
    return Range(_round_up(max(first_exit, float(np.mean(starts)))), _round_up(first_exit))


def _reached_figures(
    figures: Sequence[str], on_draws: Mapping[str, Any], curves: Sequence[Curve], start: float
) -> tuple[str, ...]:
    """Return the figures of a contestant: no accuracy below its first point, nor a mean that begins there."""
    is_late = max(float(curve.costs().min()) for curve in curves) > start
    return tuple(
        figure for figure in figures if np.isfinite(on_draws[figure]).all() and not (is_late and figure == FIGURES[-1])
    )


def _round_up(cost: float) -> float:
    return math.ceil(cost * 1e4) / 1e4


def _footings(names: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the contestants on each footing, by the one that they are compared with: the default, or JEI-DNN."""
    footings = {}
    for default in (name for name in (*DEFAULTS, PAPER_METHOD) if name in names):
        track, training, look = (getattr(CONTESTANTS[default], part) for part in ("track", "training", "look"))
        footings[default] = [
            name
            for name in names
            if (contestant := CONTESTANTS[name]).track == track
            and (contestant.look == look if track != "open" else name == default or contestant.kind != "default")
            and (track != "policy" or contestant.training == training)
        ]
    return footings


def describe_leads(leads: Sequence[Lead]) -> dict[str, list[float]]:
    """Return lead, lower and upper end by figure, rounded, as results hold them."""
    return {lead.figure: [round(number, 5) for number in (lead.lead, lead.low, lead.high)] for lead in leads}


def _mean_curve(curves: Sequence[Curve], start: float) -> list[list[float]]:
    """Return accuracies at common costs, means over seeds."""
    first = max(float(curve.costs().min()) for curve in curves)
    costs = np.unique(
        np.concatenate([np.geomspace(max(first, 0.002), 1, CURVE_COSTS), np.linspace(start, 1, CURVE_COSTS)])
    )
    lines = []
    for curve in curves:
        is_cheaper = curve.costs() < 1
        points = (
            np.append(curve.costs()[is_cheaper], 1.0),
            np.append(curve.accuracies()[is_cheaper], curve.full_correct.mean()),
        )
        order = np.argsort(points[0])
        lines.append(np.interp(costs, points[0][order], points[1][order]))
    return np.stack([costs, np.mean(lines, axis=0)], 1)[costs >= first].round(5).tolist()  # type: ignore[no-any-return]


def _mean_points(points: Sequence[Sequence[Mapping[str, float]]], curves: Sequence[Curve]) -> list[dict[str, float]]:
    """Return calibration error, set size, coverage and early leavers at common costs, means over seeds."""
    if not points[0]:  # answers without probabilities
        return []
    costs = np.linspace(max(float(curve.costs().min()) for curve in curves), 1, 12)
    rows = []
    names = list(points[0][0])
    lines = {name: [] for name in names}  # type: dict[str, list[Any]]
    for seed_points, curve in zip(points, curves, strict=True):
        order = np.argsort(curve.costs())
        for name in names:
            values = np.array([point[name] for point in seed_points])[order]
            lines[name].append(np.interp(costs, curve.costs()[order], values))
    for place, cost in enumerate(costs):
        row = {name: round(float(np.mean([line[place] for line in lines[name]])), 5) for name in names}
        rows.append({"cost": round(float(cost), 5), **row})
    return rows
