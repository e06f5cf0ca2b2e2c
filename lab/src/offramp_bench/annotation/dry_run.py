"""Bills estimated from the first 300 answers, beside the bills of whole jobs."""

import json
from pathlib import Path
from statistics import fmean, median
from tempfile import TemporaryDirectory
from typing import Any

from offramp.annotation._estimate import estimate_from_start
from offramp_bench import places
from offramp_bench.annotation.calls import SEEDS, cached_fit
from offramp_bench.annotation.jobs import make_job
from offramp_bench.annotation.rows import load_rows
from offramp_bench.bars import Bar, say
from offramp_bench.json_files import write_json

__all__ = ["dry_run"]

REDRAWS = {"banking77": 200, "clinc150": 25}
"""Dry runs per dataset, each on its own first answers."""

FIRST_SEED = 1000
"""First seed of the dry runs; no job of the other parts has such a seed."""

MAX_DROP = 0.05
"""Share of answers that may differ."""


def dry_run() -> tuple[dict[str, Any], list[Bar]]:
    """Estimate many bills, and compare them with the jobs of the parts banking77 and clinc150.

    Estimates and jobs have different seeds, so that they buy different answers.
    """
    figures = {task: _measure(task, count) for task, count in REDRAWS.items()}
    banking77 = figures["banking77"]
    return figures, [
        Bar("banking77: bills outside the 90 % interval", 1 - banking77["covered"], 0.15),
        Bar("banking77: median half-width of the interval over the bill", banking77["half_width"], 0.25),
    ]


def _measure(task: str, count: int) -> dict[str, Any]:
    fits = [cached_fit(task, seed, "inputs") for seed in range(SEEDS)]
    bills = [draw["asked"] for fit in fits for draw in fit["levels"][str(MAX_DROP)]["draws"]]
    covered, widths, errors = [], [], []
    for number in range(count):
        estimate = cached_estimate(task, number)
        share = bills[number * len(bills) // count]
        bill = estimate["inputs"] if share is None else round(share * estimate["inputs"])
        low, high = estimate["interval"]
        covered.append(low <= bill <= high)
        widths.append((high - low) / 2 / bill)
        errors.append(estimate["asked"] / bill - 1)
        if number % 10 == 9:
            say(f"{task}: {number + 1} dry runs, {100 * fmean(covered):.0f} % covered")
    return {
        "dry_runs": count,
        "covered": fmean(covered),
        "half_width": median(widths),
        "error": {"mean": fmean(errors), "median_size": median(map(abs, errors))},
    }


def cached_estimate(task: str, number: int) -> dict[str, Any]:
    """Return an estimated bill, computed or read from the file of an earlier run; delete the files to estimate again.

    Args:
        task: "banking77" or "clinc150".
        number: Number of the dry run.
    """
    file = places.CACHE / "annotation" / "estimates" / f"{task}-{number}.json"
    if not file.exists():
        with (
            TemporaryDirectory() as folder,
            make_job(load_rows(task), Path(folder), seed=FIRST_SEED + number, scope="inputs", max_drop=MAX_DROP) as job,
        ):
            estimate = estimate_from_start(job, 1000)
        write_json(file, {name: getattr(estimate, name) for name in ("inputs", "asked", "interval")})
    figures: dict[str, Any] = json.loads(file.read_text())
    return figures
