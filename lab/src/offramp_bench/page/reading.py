"""Results of the benchmark of the paper, read from its file: nothing but numbers and texts comes out."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

from offramp.errors import InputError
from offramp_bench.page.results import (
    VERDICTS,
    Bar,
    Contestant,
    CurvePoint,
    Decomposition,
    ExitFigures,
    Gap,
    Measure,
    Observation,
    PaperResults,
    Task,
)

__all__ = ["parse_results", "read_results"]


def read_results(path: str | Path) -> PaperResults:
    """Read what `python -m offramp_bench.paper` printed.

    Args:
        path: The file.

    Raises:
        InputError: If it is not there or not such a file.

    Example:
        >>> read_results("/nowhere/paper.json")
        Traceback (most recent call last):
        offramp.errors.InputError: expected results of offramp_bench.paper, /nowhere/paper.json cannot be read: ...
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(
            f"expected results of offramp_bench.paper, {path} cannot be read: {error.strerror}; give the file that "
            "'python -m offramp_bench.paper' printed"
        ) from error
    except UnicodeDecodeError as error:
        raise _not_results(path, error) from error
    try:
        return parse_results(json.loads(text))
    except (ValueError, RecursionError) as error:
        raise _not_results(path, error) from error


def parse_results(content: Any) -> PaperResults:
    """The same from what JSON gives.

    Args:
        content: Its one object.

    Raises:
        InputError: If something is missing or of another kind.

    Example:
        >>> parse_results({"tasks": {}, "bars": []})
        PaperResults(tasks={}, bars=(), observations={}, missing=())
    """
    try:
        observed = [_observation(one) for one in content.get("observations", ())]
        return PaperResults(
            tasks={str(name): _task(str(name), task) for name, task in content["tasks"].items()},
            bars=tuple(_bar(bar) for bar in content["bars"]),
            observations={one.name: one for one in observed},
            missing=tuple(str(name) for name in content.get("missing", ())),
        )
    except KeyError as error:
        raise InputError(f"expected {error} in results of offramp_bench.paper, it is not there") from error
    except (AttributeError, IndexError, TypeError, ValueError) as error:
        raise InputError(f"expected results of offramp_bench.paper, got something else: {error}") from error


def _not_results(path: str | Path, error: Exception) -> InputError:
    return InputError(f"{path} does not read: {error}; give the file that 'python -m offramp_bench.paper' printed")


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"expected a number, got {value!r}")
    return float(value)


def _maybe(value: Any) -> float | None:
    return None if value is None else _number(value)


def _task(name: str, task: Mapping[str, Any]) -> Task:
    return Task(
        name=name,
        kind=str(task["kind"]),
        alone=None if task["alone"] is None else str(task["alone"]),
        samples=int(_number(task["test"])),
        full_accuracy=_number(task["full accuracy"]),
        axis_from=_number(task["axis from"]),
        contestants={str(key): _contestant(str(key), row) for key, row in task["contestants"].items()},
        decomposition=tuple(_decomposition(one) for one in task.get("decomposition") or ()),
        priced_losses={str(key): _losses(rows) for key, rows in (task.get("epochs") or {}).items()},
        about=str(task.get("about", "")),
    )


def _contestant(name: str, row: Mapping[str, Any]) -> Contestant:
    low, high = (_number(end) for end in row["interval"])
    parameters = _maybe(row.get("parameters"))
    return Contestant(
        name=name,
        kind=str(row["kind"]),
        area=_number(row["area"]),
        below_default=_number(row["below default"]),
        interval=(low, high),
        curve=tuple(CurvePoint(*map(_number, point)) for point in sorted(row["curve"])),
        cost_at_full=_maybe(row.get("cost at full")),
        cost_at_half=_maybe(row.get("cost at full - .5")),
        cpu_seconds=_maybe(row.get("CPU seconds")),
        parameters=None if parameters is None else int(parameters),
    )


def _decomposition(one: Mapping[str, Any]) -> Decomposition:
    return Decomposition(
        cost_weight=_number(one["cost weight"]),
        cost=_number(one["cost"]),
        accuracy=_number(one["accuracy"]),
        exits=tuple(_exit(row) for row in one["exits"]),
        requested=tuple(_number(share) for share in one["requested"]),
        covered={str(key): tuple(_number(share) for share in row) for key, row in one["covered"].items()},
    )


def _exit(row: Mapping[str, Any]) -> ExitFigures:
    return ExitFigures(
        leave=int(_number(row["leave"])),
        accuracy=_maybe(row["accuracy"]),
        accuracy_of_all=_number(row["accuracy of all"]),
        accuracy_at_end=_maybe(row["accuracy at the end"]),
        ece=_maybe(row["ece"]),
    )


def _losses(rows: Any) -> tuple[float, ...]:
    """Of rows `phase, loss, priced loss of each cost weight`; warm-up has none of the last."""
    return tuple(fmean(map(_number, row[2:])) for row in rows or () if len(row) > 2)


def _bar(bar: Mapping[str, Any]) -> Bar:
    figure = bar["figure"] if isinstance(bar["figure"], int | float) and math.isfinite(bar["figure"]) else None
    return Bar(str(bar["name"]), figure, _number(bar["at_most"]), bool(bar["held"]))


def _observation(one: Mapping[str, Any]) -> Observation:
    figures = tuple(
        Measure(
            str(measure["what"]),
            {str(name): Gap(_number(gap["figure"]), _number(gap["noise"])) for name, gap in measure["by_task"].items()},
            tuple(str(name) for name in measure["against"]),
            _verdict(measure["verdict"]),
        )
        for measure in one["figures"]
    )
    return Observation(str(one["name"]), str(one["claim"]), _verdict(one["verdict"]), figures, str(one["why"]))


def _verdict(value: Any) -> str:
    if value not in VERDICTS:
        raise ValueError(f"expected one of {', '.join(VERDICTS)}, got {value!r}")
    return str(value)
