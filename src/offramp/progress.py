"""Progress of long work on stderr: a bar on a terminal, a line now and then elsewhere."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Protocol

__all__ = ["Advance", "progress_bar"]

LINE_EVERY_S = 30.0
"""Seconds between lines where there is no terminal; shorter work prints none."""


class Advance(Protocol):
    """Tells a progress bar how much more has been done."""

    def __call__(self, count: int, note: str = "") -> object:
        """Go on by `count`; `note` is shown beside it."""


@contextmanager
def progress_bar(
    description: str, total: int, *, done: int = 0, unit: str, show: bool, clock: Callable[[], float] = monotonic
) -> Iterator[Advance]:
    """Show how far long work has come, how fast it goes and how long it still takes.

    Args:
        description: What is being done.
        total: How much there is to do.
        done: How much of it was done before, in an earlier run.
        unit: What is counted, in the plural.
        show: Whether to show it at all: as a bar on a terminal, elsewhere as a line every 30 s, at the step after.
        clock: Gives the time in seconds.

    Yields:
        A function to be told how much more has been done.

    Example:
        >>> with progress_bar("counting", 3, unit="numbers", show=False) as advance:
        ...     advance(3)
    """
    if not show:
        yield lambda count, note="": None
        return
    if not sys.stderr.isatty():
        yield _lines(description, total, done, unit, clock)
        return
    # Here and not above: without a terminal, rich need not be imported.
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeRemainingColumn,
    )

    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TextColumn("{task.fields[note]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as progress:
        task = progress.add_task(description, total=total, completed=done, rate="", note="")

        def advance(count: int, note: str = "") -> None:
            progress.advance(task, count)
            speed = progress.tasks[0].speed
            progress.update(task, rate="" if speed is None else f"{speed:,.1f} {unit}/s", note=note)

        yield advance


def _lines(description: str, total: int, done: int, unit: str, clock: Callable[[], float]) -> Advance:
    """Return a function that prints a line where the last one is 30 s ago."""
    began = printed = clock()
    reached = done

    def advance(count: int, note: str = "") -> None:
        nonlocal printed, reached
        reached += count
        now = clock()
        if now - printed < LINE_EVERY_S:
            return
        printed = now
        rate = (reached - done) / (now - began)
        parts = [f"{reached:,} of {total:,} {unit}", f"{rate:,.3g} {unit}/s" if rate < 100 else f"{rate:,.0f} {unit}/s"]
        if rate > 0:
            parts.append(f"{_duration((total - reached) / rate)} left")
        sys.stderr.write(f"{description}: {', '.join([*parts, *([note] if note else [])])}\n")
        sys.stderr.flush()

    return advance


def _duration(seconds: float) -> str:
    """Write a time in the two units that matter.

    Example:
        >>> _duration(42), _duration(125), _duration(7260), _duration(200_000)
        ('42 s', '2 min 5 s', '2 h 1 min', '55 h 33 min')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
