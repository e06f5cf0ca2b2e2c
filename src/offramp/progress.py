"""The one progress bar: on stderr, and only where somebody looks at it."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

__all__ = ["Advance", "progress_bar"]


class Advance(Protocol):
    """Tells a progress bar how much more has been done."""

    def __call__(self, count: int, note: str = "") -> object:
        """Go on by `count`; `note` is shown beside it."""


@contextmanager
def progress_bar(description: str, total: int, *, done: int = 0, unit: str, show: bool) -> Iterator[Advance]:
    """Show how far long work has come, how fast it goes and how long it still takes.

    Args:
        description: What is being done.
        total: How much there is to do.
        done: How much of it was done before, in an earlier run.
        unit: What is counted, in the plural.
        show: Whether to show it at all; without a terminal nothing is shown.

    Yields:
        A function to be told how much more has been done.

    Example:
        >>> with progress_bar("counting", 3, unit="numbers", show=False) as advance:
        ...     advance(3)
    """
    # Here and not above: without anybody to look, rich need not be imported, which takes longer than all of offramp.
    if not (show and sys.stderr.isatty()):
        yield lambda count, note="": None
        return
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
