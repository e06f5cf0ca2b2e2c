"""Many trials, each of them once: in this process or on the workers of a cluster, with the same file of results."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from offramp.errors import InputError
from offramp.progress import progress_bar
from offramp.scale.cluster import Workers, check_portable

__all__ = ["Trial", "grid", "sweep"]

Trial = dict[str, Any]
"""Parameters by name, of what JSON can hold: `{"method": "joint", "seed": 0, "fold": 3}`."""


def grid(**axes: Iterable[Any]) -> list[Trial]:
    """Every combination of some parameters, the last varying fastest.

    Args:
        axes: The values of each parameter.

    Example:
        >>> grid(method=["joint", "boosted"], seed=range(2))[1:3]
        [{'method': 'joint', 'seed': 1}, {'method': 'boosted', 'seed': 0}]
    """
    values = [list(axis) for axis in axes.values()]
    return [dict(zip(axes, combination, strict=True)) for combination in product(*values)]


def sweep(
    trials: Sequence[Trial],
    work: Callable[[Trial], Any],
    file: str | Path,
    *,
    depends_on: str,
    workers: Workers | None = None,
    progress: bool = True,
) -> list[Any]:
    """Do every trial that the file of results does not have yet, and give the results of all.

    A line is added to the file as each trial ends, by this process alone. Interrupted or killed at any moment, the same
    call goes on with what is missing; with more trials than before, it does the new ones. On workers, features are read
    by each from the same store, which nobody writes: open it in `work`, and not before.

    Args:
        trials: What to try; no two the same.
        work: Does one trial; its result is of what JSON can hold. An error in it ends the sweep, and what was done
            stays.
        file: The results, one JSON object a line, the first of them `depends_on`.
        depends_on: What all results depend on besides the trial's parameters: of stores `fingerprint` and
            `plan.source`, a version of `work`. A file of something else is refused.
        workers: Those of `cluster`; in this process, without starting any, if left out.
        progress: Whether to show a bar.

    Returns:
        The results, in the order of the trials.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     file = Path(folder, "results.jsonl")
        ...     first = sweep(grid(seed=[0, 1]), lambda trial: trial["seed"] + 1, file, depends_on="squares")
        ...     more = sweep(grid(seed=[1, 2]), lambda trial: trial["seed"] ** 2, file, depends_on="squares")
        >>> first, more
        ([1, 2], [2, 4])
    """
    file = Path(file)
    keys = [_key(trial) for trial in trials]
    if len(set(keys)) < len(keys):
        twice = next(key for place, key in enumerate(keys) if key in keys[:place])
        raise InputError(f"expected different trials, {twice} is there twice; leave one out")
    if workers is not None:
        check_portable(work=work)
    results = _read(file, depends_on)
    missing = [trial for trial, key in zip(trials, keys, strict=True) if key not in results]
    done = len(trials) - len(missing)
    with progress_bar("sweeping", len(trials), done=done, unit="trials", show=progress) as advance:
        for trial, result in _do(missing, work) if workers is None else workers.run(missing, work):
            results[_key(trial)] = _write(file, "a", {"trial": trial, "result": result})["result"]
            advance(1)
    return [results[key] for key in keys]


def _do(trials: Iterable[Trial], work: Callable[[Trial], Any]) -> Iterator[tuple[Trial, Any]]:
    for trial in trials:
        yield trial, work(trial)


def _key(trial: Trial) -> str:
    try:
        return json.dumps(trial, sort_keys=True)
    except TypeError as error:
        raise InputError(f"expected parameters that JSON can hold, got {trial}: {error}; give names instead") from error


def _read(file: Path, depends_on: str) -> dict[str, Any]:
    """Results by the key of their trial. A line that was being written when its writer was killed is taken away."""
    try:
        content = file.read_bytes() if file.exists() else b""
    except OSError as error:
        raise InputError(f"cannot read {file}: {error.strerror}; choose another file for the results") from error
    first_line = {"depends_on": depends_on}
    if json.dumps(first_line).encode().startswith(content):
        _write(file, "w", first_line)
        return {}
    whole, _, rest = content.rpartition(b"\n")
    try:
        first, *lines = [json.loads(line) for line in whole.split(b"\n")]
        found = {_key(line["trial"]): line["result"] for line in lines}
        recorded = first["depends_on"]
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{file} is not a file of results: {error}; choose another, or delete it") from error
    if recorded != depends_on:
        raise InputError(
            f"the results in {file} depend on '{recorded}', these on '{depends_on}'; choose another file, or delete it"
        )
    if rest:
        with file.open("r+b") as opened:
            opened.truncate(len(whole) + 1)
    return found


def _write(file: Path, mode: str, line: dict[str, Any]) -> dict[str, Any]:
    """Write a line, and give it as it will be read."""
    try:
        text = json.dumps(line) + "\n"
    except TypeError as error:
        raise InputError(f"expected a result that JSON can hold, got {line['result']!r}: {error}") from error
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open(mode, encoding="utf-8") as opened:
            opened.write(text)
    except OSError as error:
        raise InputError(
            f"cannot write {file}: {error.strerror}; make room, or choose another file, and run the same again"
        ) from error
    read: dict[str, Any] = json.loads(text)
    return read
