"""Progress of long work on stderr: a bar on a terminal, a line every 30 s elsewhere."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Protocol

__all__ = ["Advance", "progress_bar"]

LINE_EVERY_S = 30.0
"""Seconds between lines without a terminal; shorter work prints none."""


class Advance(Protocol):
    """A function that advances a progress bar."""

    def __call__(self, count: int, note: str = "", /) -> object:
        """Advance by `count`; `note` is shown beside the bar."""


@contextmanager
def progress_bar(
    description: str, total: int, *, done: int = 0, unit: str, show: bool, clock: Callable[[], float] = monotonic
) -> Iterator[Advance]:
    """Show how far long work has come, how fast it is, and how long it still takes.

    Args:
        description: The work, as in "extracting cifar10".
        total: Units of work in all.
        done: Units done by an earlier run.
        unit: Plural noun for what is counted.
        show: False shows nothing.
        clock: Returns the time in seconds.

    Yields:
        A function to call with the number of units done since the last call.

    Example:
        >>> with progress_bar("counting", 3, unit="numbers", show=False) as advance:
        ...     advance(3)
    """
    if not show:
        yield lambda _count, _note="": None
        return
    if not sys.stderr.isatty():
        yield _print_lines(description, total, done, unit, clock)
        return
    # Imported here: without a terminal, rich is not needed.
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


def _print_lines(description: str, total: int, done: int, unit: str, clock: Callable[[], float]) -> Advance:
    """Return a function that prints a line if the last one is at least 30 s old."""
    start_s = printed_s = clock()
    reached = done

    def advance(count: int, note: str = "") -> None:
        nonlocal printed_s, reached
        reached += count
        now_s = clock()
        if now_s - printed_s < LINE_EVERY_S:
            return
        printed_s = now_s
        rate = (reached - done) / (now_s - start_s)
        parts = [f"{reached:,} of {total:,} {unit}", f"{rate:,.3g} {unit}/s" if rate < 100 else f"{rate:,.0f} {unit}/s"]
        if rate > 0:
            parts.append(f"{_format_duration((total - reached) / rate)} left")
        sys.stderr.write(f"{description}: {', '.join([*parts, *([note] if note else [])])}\n")
        sys.stderr.flush()

    return advance


def _format_duration(seconds: float) -> str:
    """Write a duration in its two largest units."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
