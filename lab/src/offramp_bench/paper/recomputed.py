"""A cell of the committed results, computed again."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from offramp_bench.bars import Bar
from offramp_bench.paper.cell import run_cell
from offramp_bench.paper.contestants import CONTESTANTS, EXITS, Contestant
from offramp_bench.paper.results import ALIKE
from offramp_bench.paper.tasks import TASKS

__all__ = ["drawn", "recomputed"]


def drawn(
    tasks: Mapping[str, Any], exits: Sequence[str], generator: np.random.Generator
) -> tuple[str, str, int, Mapping[str, float]]:
    """A cell at random, each of the committed ones as likely.

    Args:
        tasks: As `assembled` gives them, read from the committed results.
        exits: Names of the ways to fit exits to draw from.
        generator: Of the draw.

    Returns:
        Names of its task and exits, its seed, and the areas that were committed, by rule.
    """
    cells: dict[tuple[str, str, int], dict[str, float]] = {}
    for task, name, contestant in _committed(tasks):
        for seed, area in enumerate(tasks[task]["contestants"][name]["areas"]):
            if contestant.exits in exits:
                cells.setdefault((task, contestant.exits, seed), {})[contestant.rule] = area
    at = list(cells)[int(generator.integers(len(cells)))]
    return *at, cells[at]


def recomputed(task: str, exits: str, seed: int, areas: Mapping[str, float]) -> list[Bar]:
    """Compute a cell again, and compare its areas.

    Args:
        task: Name of the task.
        exits: Name of the way to fit exits.
        seed: Of the fit.
        areas: What was committed, by rule.
    """
    found = run_cell(TASKS[task], EXITS[exits], seed).figures["rules"]
    return [
        Bar(
            f"{task}, {exits}, seed {seed}, {rule}: points by which the area differs when computed again",
            100 * abs(found[rule]["area"] - area),
            100 * ALIKE,
        )
        for rule, area in areas.items()
    ]


def _committed(tasks: Mapping[str, Any]) -> list[tuple[str, str, Contestant]]:
    """Tasks, names of contestants and contestants of which there are cells."""
    return [
        (task, name, CONTESTANTS[name])
        for task, found in tasks.items()
        for name in found["contestants"]
        if name in CONTESTANTS
    ]
