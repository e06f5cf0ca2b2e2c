"""How many rows exits need: accuracy against the number of samples they learn from."""

import time
from dataclasses import asdict, replace
from statistics import mean
from typing import Any

from offramp.features import StoreSource, split_by_id
from offramp.methods._joint import fit_classifiers, fit_joint
from offramp.methods._settings import DEFAULT, PAPER
from offramp_bench.bars import Bar, say
from offramp_bench.paper.tasks import TASKS, Task
from offramp_bench.scale.accuracy import accuracy_of
from offramp_bench.tracks.samples import Look, open_splits, pooling_of, prices_of, store_of

__all__ = ["enough_rows"]

ROWS = {"clinc150": (1_000, 3_000, 10_000), "cifar10": (1_000, 3_000, 10_000, 25_000, 50_000)}
"""Rows that exits learn from; the last are all that the network itself was trained on."""

KINDS: dict[str, Look] = {"ladder": "grid", "linear": "means"}
"""Exits, and what they see: the default's on rich features, and the paper's linear ones on means."""

LINEAR = replace(PAPER, weight_decay=0.0, least_steps=DEFAULT.least_steps)
"""Settings of linear exits. An L2 penalty holds late exits on unnormed features down; with few samples they take as
many steps as the default does."""

SEEDS = 2
"""Of the fit, of which rows it gets, and of which samples tune."""

DEAR = 25_000
"""Rows from which on one seed has to do: there are few other samples to draw then."""


def enough_rows(*, small: bool = False) -> tuple[dict[str, Any], list[Bar]]:
    """Measure tasks and kinds of exits at every number of rows.

    Args:
        small: One task, few rows, one seed.

    Returns:
        The figures; no bars, as they are no promise.
    """
    tasks = {"clinc150": ROWS["clinc150"][:2]} if small else ROWS
    figures: dict[str, Any] = {}
    for name, counts in tasks.items():
        for kind, look in KINDS.items():
            found = {}
            for rows in counts:
                seeds = range(1 if small or rows >= DEAR else SEEDS)
                measured = [_measured(TASKS[name], kind, look, rows, seed) for seed in seeds]
                found[rows] = {
                    key: {"mean": mean(one[key] for one in measured), "each": [one[key] for one in measured]}
                    for key in measured[0]
                }
                say(f"{name}, {kind}, {rows} rows: {found[rows]['at_half']['each']} at half the cost")
            figures[f"{name}, {kind}"] = found
    return figures, []


def _measured(task: Task, kind: str, look: Look, rows: int, seed: int) -> dict[str, float]:
    """Fit on so many rows, fewer ones being among more, and measure."""
    splits = open_splits(task, look, seed)
    seen = store_of(task.name, "seen", every_row=True)
    drawn = split_by_id(seen.ids(), [rows], seed=seed)[0]
    fit = StoreSource(seen, pooling=pooling_of(task, look), rows=drawn)
    prices = prices_of(task.name, look, 1)
    started = time.process_time()
    if kind == "ladder":
        fitted = fit_joint(fit, splits.tune, prices, replace(DEFAULT, seed=seed))
    else:
        fitted = fit_classifiers(fit, splits.tune, prices, replace(LINEAR, seed=seed))
    took_s = time.process_time() - started
    return {**asdict(accuracy_of(fitted.exits, splits.tune, splits.test, prices)), "cpu_s": took_s}
