"""Accuracy of exits by the number of samples that they are fitted on."""

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
"""Samples that exits are fitted on; the largest number is all that the network itself was trained on."""

KINDS: dict[str, Look] = {"ladder": "grid", "linear": "means"}
"""Kinds of exits, and their features: the default's on rich features, the paper's linear ones on means."""

LINEAR = replace(PAPER, weight_decay=0.0, least_steps=DEFAULT.least_steps)
"""Settings of linear exits. Without the L2 penalty, which makes late exits on unnormed features worse; with few samples
they take as many steps as the default."""

SEEDS = 2
"""Number of seeds, each of the fit, of its samples and of the tune split."""

DEAR = 25_000
"""From this number of samples on, only one seed is used: few other samples are left to draw."""


def enough_rows(*, small: bool = False) -> tuple[dict[str, Any], list[Bar]]:
    """Measure tasks and kinds of exits at every number of samples.

    Args:
        small: Use one task, few samples and one seed.

    Returns:
        The figures, and no bars.
    """
    tasks = {"clinc150": ROWS["clinc150"][:2]} if small else ROWS
    figures: dict[str, Any] = {}
    for name, counts in tasks.items():
        for kind, look in KINDS.items():
            by_rows = {}
            for rows in counts:
                seeds = range(1 if small or rows >= DEAR else SEEDS)
                fits = [_fit_and_measure(TASKS[name], kind, look, rows, seed) for seed in seeds]
                by_rows[rows] = {
                    key: {"mean": mean(fit[key] for fit in fits), "each": [fit[key] for fit in fits]} for key in fits[0]
                }
                say(f"{name}, {kind}, {rows} rows: {by_rows[rows]['at_half']['each']} at half the cost")
            figures[f"{name}, {kind}"] = by_rows
    return figures, []


def _fit_and_measure(task: Task, kind: str, look: Look, rows: int, seed: int) -> dict[str, float]:
    """Fit exits on `rows` samples and measure them; with the same seed, fewer samples are a subset of more."""
    splits = open_splits(task, look, seed)
    seen = store_of(task.name, "seen", every_row=True)
    drawn = split_by_id(seen.ids(), [rows], seed=seed)[0]
    fit = StoreSource(seen, pooling=pooling_of(task, look), rows=drawn)
    prices = prices_of(task.name, look, 1)
    start_s = time.process_time()
    if kind == "ladder":
        fitted = fit_joint(fit, splits.tune, prices, replace(DEFAULT, seed=seed))
    else:
        fitted = fit_classifiers(fit, splits.tune, prices, replace(LINEAR, seed=seed))
    cpu_s = time.process_time() - start_s
    return {**asdict(accuracy_of(fitted.exits, splits.tune, splits.test, prices)), "cpu_s": cpu_s}
