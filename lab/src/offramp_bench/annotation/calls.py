"""All calls to the expensive model, beside those of BARGAIN with the same cheap member, and broken guarantees."""

import json
import time
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from offramp.annotation._job import Job
from offramp.annotation._sampling import Scope
from offramp.model._model import EarlyExitModel
from offramp_bench import places
from offramp_bench.annotation.bargain import THRESHOLD_COUNTS, count_calls
from offramp_bench.annotation.jobs import Redraw, learn
from offramp_bench.annotation.rows import AnnotationRows, load_rows
from offramp_bench.bars import Bar, say
from offramp_bench.json_files import write_json

__all__ = ["SEEDS", "cached_fit", "calls"]

SEEDS = 8
"""Fits per dataset and scope, each with its own random samples."""

REDRAWS = 125
"""Draws of the guarantee's sample per fit: a thousand per dataset and scope."""

LEVELS = (0.05, 0.02, 0.01)
"""Shares of answers that may differ."""

SCOPES: tuple[Scope, ...] = ("inputs", "future")
"""Scopes of a guarantee."""

MOST_SHARE = {"banking77": 0.44}
"""Share of the rows that may go to the expensive model at 5 %."""

FEWER_THAN_PEER = {"banking77": 0.8, "clinc150": 1.0}
"""Calls divided by BARGAIN's, at most."""

MOST_CPU_S = 60.0
"""CPU seconds of learning, at most."""


def calls(task: str) -> tuple[dict[str, Any], list[Bar]]:
    """Measure a dataset, with both scopes and all levels.

    Args:
        task: "banking77" or "clinc150".
    """
    cells = [cached_fit(task, seed, scope) for seed in range(SEEDS) for scope in SCOPES]
    figures: dict[str, Any] = {"rows": len(load_rows(task).texts), "cpu_s": [cell["cpu_s"] for cell in cells]}
    for scope in SCOPES:
        figures[scope] = _summarise([cell for cell in cells if cell["scope"] == scope])
    return figures, _bars(task, figures)


def cached_fit(task: str, seed: int, scope: Scope) -> dict[str, Any]:
    """Return the figures of a fit, measured or read from the file of an earlier run; delete the files to measure again.

    Args:
        task: "banking77" or "clinc150".
        seed: Seed of the job.
        scope: Scope of the guarantee.
    """
    file = places.CACHE / "annotation" / "fits" / f"{task}-{seed}-{scope}.json"
    if not file.exists():
        write_json(file, measure_fit(load_rows(task), seed, scope))
    figures: dict[str, Any] = json.loads(file.read_text())
    return figures


def measure_fit(rows: AnnotationRows, seed: int, scope: Scope) -> dict[str, Any]:
    """Learn once, then draw the guarantee's sample many times; measure BARGAIN too if these inputs are the scope.

    Args:
        rows: The rows.
        seed: Seed of the job.
        scope: Scope of the guarantee.
    """
    with TemporaryDirectory() as folder:
        start = time.process_time()
        job, model = learn(rows, Path(folder), seed=seed, scope=scope)
        cpu_s = time.process_time() - start
        redraw = Redraw(job, model, rows.answers)
    levels: dict[str, dict[str, Any]] = {}
    for max_drop in LEVELS:
        draws = [_draw(redraw, model, REDRAWS * seed + number, max_drop) for number in range(REDRAWS)]
        levels[str(max_drop)] = {"draws": draws}
        if scope == "inputs" and max_drop in LEVELS[:2]:
            levels[str(max_drop)]["peer"] = _peer(redraw, job, model, seed, max_drop)
    say(f"{rows.num_classes} classes, seed {seed}, {scope}: learned in {cpu_s:.0f} s of CPU")
    return {"scope": scope, "cpu_s": cpu_s, "levels": levels}


def _draw(redraw: Redraw, model: EarlyExitModel, seed: int, max_drop: float) -> dict[str, Any]:
    """Return the share of inputs that are asked, and the disagreement, of one draw; both None without a guarantee."""
    redraw.draw(seed, max_drop=max_drop)
    chosen, guarantee = redraw.guarantee(model)
    if guarantee is None:
        return {"asked": None, "loss": None}
    loss, asked = redraw.loss(chosen)
    return {"asked": asked, "loss": loss}


def _peer(redraw: Redraw, job: Job, model: EarlyExitModel, seed: int, max_drop: float) -> dict[str, float]:
    """Return BARGAIN's share of calls by its number of thresholds, the label budget included.

    The inputs outside the label budget may have all the errors that are allowed for all inputs.
    """
    redraw.draw(0, max_drop=max_drop)
    rows = np.flatnonzero(redraw._unasked())
    ((_, answers),) = redraw._outcomes(model, rows)
    predictions, confidence = answers.predictions[0, :, -2].numpy(), answers.confidence[0, :, -2].double().numpy()
    total = len(redraw.contents)
    allowed_drop = max_drop * total / len(rows)
    shares = {}
    for thresholds in THRESHOLD_COUNTS:
        num_calls, _ = count_calls(
            predictions, confidence, redraw.truth[rows], max_drop=allowed_drop, thresholds=thresholds, seed=seed
        )
        shares[str(thresholds)] = (job.learning + num_calls) / total
    return shares


def _summarise(cells: list[dict[str, Any]]) -> dict[str, Any]:
    """Summarise the draws of all fits, by level."""
    rows = {}
    for max_drop in map(str, LEVELS):
        draws = [draw for cell in cells for draw in cell["levels"][max_drop]["draws"]]
        committed = [draw for draw in draws if draw["asked"] is not None]
        asked = [draw["asked"] for draw in committed] or [1.0]
        by_fit = [
            fmean(1.0 if draw["asked"] is None else draw["asked"] for draw in cell["levels"][max_drop]["draws"])
            for cell in cells
        ]
        peers = [cell["levels"][max_drop]["peer"] for cell in cells if "peer" in cell["levels"][max_drop]]
        by_thresholds = {count: fmean(peer[count] for peer in peers) for count in peers[0]} if peers else {}
        rows[max_drop] = {
            "committed": len(committed) / len(draws),
            "broken": sum(draw["loss"] > float(max_drop) for draw in committed) / len(draws),
            "asked": fmean(1.0 if draw["asked"] is None else draw["asked"] for draw in draws),
            "asked_by_fit": [min(by_fit), max(by_fit)],
            "asked_quantiles": np.quantile(asked, [0.05, 0.5, 0.95]).tolist(),
            "loss": fmean(draw["loss"] for draw in committed) if committed else None,
            "bargain": by_thresholds,
        }
    return rows


def _bars(task: str, figures: dict[str, Any]) -> list[Bar]:
    at_five = figures["inputs"]["0.05"]
    ratio = at_five["asked"] / min(at_five["bargain"].values())
    bars = [Bar("5 %: calls over BARGAIN's", ratio, FEWER_THAN_PEER[task])]
    if task in MOST_SHARE:
        bars.append(Bar("5 %: share of rows asked, everything counted", at_five["asked"], MOST_SHARE[task]))
    bound = 0.05 + 2 * (0.05 * 0.95 / (SEEDS * REDRAWS)) ** 0.5
    for scope in SCOPES:
        for max_drop in LEVELS:
            bars.append(Bar(f"{scope}, {100 * max_drop:g} %: broken", figures[scope][str(max_drop)]["broken"], bound))
        bars.append(Bar(f"{scope}, 5 %: no saving committed to", 1 - figures[scope]["0.05"]["committed"], 0.1))
    return [*bars, Bar("CPU seconds to learn", max(figures["cpu_s"]), MOST_CPU_S)]
