"""All cells put together: areas, paired differences, costs at an accuracy, curves on a common axis."""

import json
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from offramp.features import StoreSource
from offramp.uncertainty._intervals import bootstrap_ratio_interval
from offramp_bench.cifar import cached
from offramp_bench.paper.cell import axis_of, identity
from offramp_bench.paper.contestants import CONTESTANTS, EXITS, Contestant
from offramp_bench.paper.curve import Curve, accuracies_at, area_rows, cost_of
from offramp_bench.paper.tasks import CACHE, TASKS, Task, splits_of

__all__ = ["ALIKE", "ALLOWED", "assembled", "cell_files", "merged"]

ALLOWED = 0.005
"""Accuracy that may be lost where costs are compared: half a point."""

ALIKE = 0.002
"""By how much an area may differ when computed again: another machine, or another number of threads, sums in another
order."""

SHOWN = ("accuracy", "ece", "set size", "coverage", "early")
"""What a curve tells at each cost; "early": the share that leaves in the first third of the exits."""

STATIC = {"cifar10": (20, 32, 44)}
"""Smaller networks that could be taken instead."""

Floats = npt.NDArray[np.float64]


def cell_files(task: str, exits: str, seed: int) -> tuple[Path, Path]:
    """Where a cell is kept: its figures, and its areas sample by sample."""
    stem = CACHE / "cells" / task / f"{exits.replace(' ', '-')}-{seed}"
    return stem.with_suffix(".json"), stem.with_suffix(".npz")


def assembled(tasks: Iterable[str], exits: Collection[str], seeds: Iterable[int]) -> dict[str, Any]:
    """Everything that the page shows, of the cells that are there for all seeds.

    Args:
        tasks: Which.
        exits: Names of the ways to fit exits, the default's among them.
        seeds: Which.
    """
    found: dict[str, Any] = {}
    for task in (TASKS[name] for name in tasks):
        rows: dict[str, Any] = {}
        areas: dict[str, Floats] = {}
        for contestant in CONTESTANTS.values():
            read = _read(task, contestant, seeds) if contestant.exits in exits else None
            if read is not None:
                rows[contestant.name], areas[contestant.name] = read
        first = json.loads(cell_files(task.name, "ladder", 0)[0].read_text())
        for name, row in _static(task).items():
            rows[name], areas[name] = row
        ours = areas["offramp"]
        for name, row in rows.items():
            row |= _paired(ours - areas[name])
        found[task.name] = {
            "kind": task.kind,
            "alone": task.alone,
            "about": task.about,
            **{key: first[key] for key in ("test", "full accuracy", "oracle", "axis from", "exit accuracy")},
            "contestants": rows,
            "decomposition": _kept(task, "weighted", "decomposition", exits),
            "epochs": {name: _kept(task, name, "epochs", exits) for name in ("weighted", "full")},
        }
    return found


def merged(committed: Mapping[str, Any], found: Mapping[str, Any], exits: Collection[str]) -> dict[str, Any]:
    """What was found, and as it was committed what was not asked for.

    Args:
        committed: Tasks of the committed results.
        found: Tasks as `assembled` gives them.
        exits: Ways to fit exits that were asked for: of the tasks found, contestants on others are kept as committed.

    Raises:
        ValueError: If contestants that would be kept were measured beside another default.
    """
    told = {**committed, **found}
    for name in found.keys() & committed.keys():
        before, now = committed[name], found[name]
        kept = {
            one: row
            for one, row in before["contestants"].items()
            if one in CONTESTANTS and CONTESTANTS[one].exits not in exits
        }
        if kept and not _beside_each_other(before, now):
            raise ValueError(
                f"expected the default of {name} as it was committed, for {', '.join(kept)} were measured beside it; "
                "another was found: run all exits of this task (leave --exits out)"
            )
        rows = kept | now["contestants"]
        told[name] = {
            **now,
            "contestants": {one: rows[one] for one in (*CONTESTANTS, *now["contestants"]) if one in rows},
            "decomposition": now["decomposition"] or before["decomposition"],
            "epochs": {one: now["epochs"][one] or before["epochs"][one] for one in now["epochs"]},
        }
    return {name: told[name] for name in TASKS if name in told}


def _beside_each_other(before: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    """Whether both were measured on one axis with one default, as far as another sum of the same numbers can tell."""
    one, other = (task["contestants"]["offramp"]["areas"] for task in (before, now))
    same = len(one) == len(other) and np.allclose(one, other, rtol=0, atol=ALIKE)
    return bool(same and np.isclose(before["axis from"], now["axis from"]))


def _read(task: Task, contestant: Contestant, seeds: Iterable[int]) -> tuple[dict[str, Any], Floats] | None:
    """One contestant on one task, over all seeds; None if cells are missing."""
    files = [cell_files(task.name, contestant.exits, seed) for seed in seeds]
    if not all(path.exists() for pair in files for path in pair):
        return None
    cells = [json.loads(figures.read_text()) for figures, _ in files]
    if any(cell["identity"] != identity(task, EXITS[contestant.exits]) for cell in cells):
        return None
    if contestant.rule not in cells[0]["rules"]:
        return None
    rules = [cell["rules"][contestant.rule] for cell in cells]
    full = [cell["full accuracy"] for cell in cells]
    samples = np.mean([np.load(areas)[contestant.rule] for _, areas in files], axis=0)
    return {
        "kind": contestant.kind,
        "area": float(np.mean([rule["area"] for rule in rules])),
        "areas": [rule["area"] for rule in rules],
        "cost at full": _least_cost(rules, float(np.mean(full))),
        "cost at full - .5": _least_cost(rules, float(np.mean(full)) - ALLOWED),
        "curve": _mean_curve(rules),
        "exit accuracy": cells[0]["exit accuracy"],
        "CPU seconds": float(np.mean([cell["CPU seconds"] for cell in cells])),
        "parameters": cells[0]["parameters"],
    }, samples


def _least_cost(rules: list[dict[str, Any]], wanted: float) -> float | None:
    """The least cost at which the mean over seeds reaches an accuracy; None if it never does."""
    curves = [np.array(rule["curve"]) for rule in rules]
    costs = np.geomspace(0.01, max(float(curve[:, 0].max()) for curve in curves), 1000)
    mean = np.mean([accuracies_at(curve[:, 0], curve[:, 1], costs) for curve in curves], axis=0)
    cost = cost_of(costs, mean, wanted)
    return cost if np.isfinite(cost) else None


def _mean_curve(rules: list[dict[str, Any]]) -> list[list[float]]:
    """Cost and what is SHOWN, means over seeds at common costs."""
    least = max(rule["points"][0]["cost"] for rule in rules)
    most = min(max(point["cost"] for point in rule["points"]) for rule in rules)
    costs = np.geomspace(least, max(most, least), 24)
    columns = []
    for shown in SHOWN:
        lines = []
        for rule in rules:
            points = sorted((point["cost"], point[shown]) for point in rule["points"])
            lines.append(np.interp(costs, *np.array(points).T))
        columns.append(np.mean(lines, axis=0))
    return np.stack([costs, *columns], 1).round(4).tolist()  # type: ignore[no-any-return]


def _paired(differences: Floats) -> dict[str, Any]:
    """How far the default's area lies above, with its interval over test samples."""
    generator = torch.Generator().manual_seed(0)
    every = torch.ones(len(differences))
    low, high = bootstrap_ratio_interval(torch.from_numpy(differences)[:, None], every, generator=generator)
    return {"below default": float(differences.mean()), "interval": [float(low), float(high)]}


def _static(task: Task) -> dict[str, tuple[dict[str, Any], Floats]]:
    """The smaller networks as curves of one point each."""
    from offramp_bench.cascade import static_networks

    found: dict[str, tuple[dict[str, Any], Floats]] = {}
    if task.name not in STATIC:
        return found
    splits = splits_of(task, "paper", 0)
    test = splits.test
    tuned = torch.cat([batch.labels for batch in splits.tune.in_order(batch_size=1000)])
    commonest, asked = int(torch.bincount(tuned).argmax()), axis_of(task)
    costs = {row["layers"]: row["cost"] for row in static_networks(test)}  # type: ignore[arg-type]
    for layers in STATIC[task.name]:
        store = cached(layers, "test", "mean")
        rows = np.flatnonzero(np.isin(store.ids(), test.ids()))
        batches = list(StoreSource(store, pooling="mean", rows=rows).in_order(batch_size=1000))
        correct = torch.cat([b.own_logits[store.own_heads[-1]].argmax(1) == b.labels for b in batches]).numpy()
        labels = torch.cat([batch.labels for batch in batches]).numpy()
        curve = Curve(np.array([costs[layers]]), correct[None])
        samples = area_rows(curve, asked, nothing=labels == commonest)
        point = [costs[layers], float(correct.mean())]
        found[f"ResNet-{layers}"] = (
            {"kind": "static", "area": float(samples.mean()), "curve": [point], "parameters": 0},
            samples,
        )
    return found


def _kept(task: Task, exits: str, key: str, asked: Collection[str]) -> Any:
    """A part of the first seed's cell, if it was asked for and there is one."""
    path, _ = cell_files(task.name, exits, 0)
    return json.loads(path.read_text()).get(key) if exits in asked and path.exists() else None
