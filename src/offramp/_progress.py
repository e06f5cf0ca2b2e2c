"""Progress of long work: a bar on a terminal and in a notebook, a line on stderr every 30 s elsewhere."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html import escape
from time import monotonic
from typing import Protocol

from offramp._notebook import show_in_notebook

__all__ = ["Advance", "progress_bar"]

LINE_EVERY_S = 30.0
"""Seconds between lines without a terminal; shorter work prints none."""

UPDATE_EVERY_S = 0.2
"""Seconds between changes of a bar in a notebook, each of which is a message to the browser."""


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
    work = _Work(description, total, done, unit, clock)
    replace = show_in_notebook(*work.in_notebook())
    if replace is not None:
        advance = _update_notebook(work, replace)
        try:
            yield advance
        finally:
            replace(*work.in_notebook())
        return
    if not sys.stderr.isatty():
        yield _print_lines(work)
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

        def move(count: int, note: str = "") -> None:
            progress.advance(task, count)
            speed = progress.tasks[0].speed
            progress.update(task, rate="" if speed is None else f"{speed:,.1f} {unit}/s", note=note)

        yield move


class _Work:
    """Long work, as far as it has come."""

    def __init__(self, description: str, total: int, done: int, unit: str, clock: Callable[[], float]) -> None:
        self.description, self.total, self.unit, self.clock = description, total, unit, clock
        self.done = self.reached = done
        self.start_s = clock()
        self.note = ""

    def advance(self, count: int, note: str) -> float:
        """Count units; return the time."""
        self.reached += count
        self.note = note
        return self.clock()

    def __str__(self) -> str:
        """Return a line with the share done, the rate and the time left."""
        parts = [f"{self.reached:,} of {self.total:,} {self.unit}"]
        passed_s = self.clock() - self.start_s
        if passed_s > 0:
            rate = (self.reached - self.done) / passed_s
            parts.append(f"{rate:,.3g} {self.unit}/s" if rate < 100 else f"{rate:,.0f} {self.unit}/s")
            if rate > 0:
                parts.append(f"{_format_duration((self.total - self.reached) / rate)} left")
        return f"{self.description}: {', '.join([*parts, *([self.note] if self.note else [])])}"

    def in_notebook(self) -> tuple[str, str]:
        """Return a bar beside the line, as HTML and as plain text."""
        line = str(self)
        bar = f'<progress value="{self.reached}" max="{self.total}"></progress>'
        return f"<p>{bar} {escape(line)}</p>", line


def _update_notebook(work: _Work, replace: Callable[[str, str], object]) -> Advance:
    """Return a function that changes the bar of a notebook if its last change is at least 0.2 s old."""
    updated_s = work.start_s

    def advance(count: int, note: str = "") -> None:
        nonlocal updated_s
        now_s = work.advance(count, note)
        if now_s - updated_s >= UPDATE_EVERY_S:
            updated_s = now_s
            replace(*work.in_notebook())

    return advance


def _print_lines(work: _Work) -> Advance:
    """Return a function that prints a line if the last one is at least 30 s old."""
    printed_s = work.start_s

    def advance(count: int, note: str = "") -> None:
        nonlocal printed_s
        now_s = work.advance(count, note)
        if now_s - printed_s < LINE_EVERY_S:
            return
        printed_s = now_s
        sys.stderr.write(f"{work}\n")
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
