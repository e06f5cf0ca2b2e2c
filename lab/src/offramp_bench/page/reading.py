"""The committed results as the page reads them: lab/results/tracks/*.json and lab/results/claims.json."""

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from offramp.errors import InputError
from offramp_bench.page.results import TITLES, Claim, Contestant, Footing, Gap, Lead, Measure, Results, Task
from offramp_bench.tracks.yardstick import FIGURES

__all__ = ["parse_claims", "parse_task", "read_results"]

Parsed = TypeVar("Parsed")

MEASURE = "offramp-bench run paper --task nci1"
"""Command that measures the smallest task."""


def read_results(folder: Path) -> Results:
    """Read the results of every task that was measured, and the claims if they are judged.

    Args:
        folder: Folder with `tracks/*.json` and perhaps `claims.json`.

    Raises:
        InputError: If there is no result, or a file holds something else.
    """
    files = sorted((folder / "tracks").glob("*.json"))
    if not files:
        raise InputError(
            expected=f"results in {folder / 'tracks'}", got="no file", hint=f"measure a task first: {MEASURE}"
        )
    order = list(TITLES)
    tasks = [_read(file, parse_task) for file in files]
    tasks.sort(key=lambda task: (order.index(task.name) if task.name in order else len(order), task.name))
    claims = folder / "claims.json"
    return Results(tuple(tasks), _read(claims, parse_claims) if claims.exists() else None)


def parse_task(content: Mapping[str, Any]) -> Task:
    """Return the results of a task from its JSON.

    Args:
        content: JSON as `offramp_bench.tracks.results.assemble` returns it.
    """
    contestants = {name: _contestant(name, row) for name, row in content["contestants"].items()}
    return Task(
        content["task"],
        content["about"],
        len(content["seeds"]),
        content["test"],
        content["full accuracy"],
        content["range"]["start"],
        tuple(_footings(contestants, content["leads"], content["footings"])),
    )


def parse_claims(content: Sequence[Mapping[str, Any]]) -> tuple[Claim, ...]:
    """Return the claims from their JSON.

    Args:
        content: One object per claim.
    """
    return tuple(
        Claim(
            claim["name"],
            claim["claim"],
            claim["verdict"],
            claim["why"],
            tuple(
                Measure(
                    measure["what"],
                    {task: Gap(gap["figure"], gap["noise"]) for task, gap in measure["by_task"].items()},
                    tuple(measure["against"]),
                    measure["verdict"],
                )
                for measure in claim["figures"]
            ),
        )
        for claim in content
    )


def _read(file: Path, parse: Callable[[Any], Parsed]) -> Parsed:
    try:
        return parse(json.loads(file.read_text(encoding="utf-8")))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InputError(
            str(file),
            expected="results of offramp_bench.tracks",
            got=f"{type(error).__name__}: {error}",
            hint="measure again, or remove the file",
        ) from error


def _contestant(name: str, row: Mapping[str, Any]) -> Contestant:
    figures = {figure: row["figures"].get(figure) for figure in FIGURES}
    return Contestant(
        name,
        row["track"],
        row["training"],
        row["policy"],
        row["kind"],
        {figure: value for figure, value in figures.items() if value is not None and math.isfinite(value)},
        tuple((float(cost), float(accuracy)) for cost, accuracy in row["curve"]),
        row["parameters"],
        row["share of exits"],
        row["CPU seconds"],
        row["settings"],
    )


def _footings(
    contestants: Mapping[str, Contestant], leads: Mapping[str, Mapping[str, Any]], defaults: Mapping[str, str]
) -> Iterator[Footing]:
    for name, others in ((name, leads[name]) for name in defaults if name in leads):
        default = contestants[name]
        leads_by_name = {
            other: {figure: Lead(figure, *bounds) for figure, bounds in rows.items() if all(map(math.isfinite, bounds))}
            for other, rows in others.items()
        }
        group = sorted(
            (contestants[other] for other in (name, *others)),
            key=lambda contestant: -contestant.figures.get(FIGURES[-1], -math.inf),
        )
        title = defaults.get(name, name).removeprefix(f"{default.track} track, ")
        yield Footing(default.track, title, default, tuple(group), leads_by_name)
