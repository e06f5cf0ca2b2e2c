"""Output of commands: tables for people, JSON for programs, errors with the next step, and Ctrl-C."""

import json
import math
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import typer

from offramp.errors import GuessingError, OfframpError, OfframpWarning

__all__ = [
    "interval",
    "points",
    "print_error",
    "print_json",
    "print_table",
    "print_text",
    "resumable",
    "say",
    "show_warnings",
    "warn",
]

ARGUMENTS = ("classes", "column", "label", "loss", "split")
"""Arguments of the library that hints name and that are options here, under the same names."""


def say(text: str) -> None:
    """Print a line for people, on stderr: stdout is for results."""
    from rich.console import Console

    Console(stderr=True, highlight=False).print(text, soft_wrap=True, markup=False)


def warn(text: str) -> None:
    """Print a warning, on stderr."""
    from rich.console import Console
    from rich.markup import escape

    Console(stderr=True, highlight=False).print(f"[yellow]Careful[/yellow]: {escape(text)}", soft_wrap=True)


@contextmanager
def show_warnings() -> Iterator[None]:
    """Print every warning of the library as `warn` does; warnings of other libraries stay as they are."""
    with warnings.catch_warnings():
        warnings.simplefilter("always", OfframpWarning)
        show = warnings.showwarning

        def show_warning(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
            if issubclass(category, OfframpWarning):
                warn(str(message))
            else:
                show(message, category, *place, **more)

        warnings.showwarning = show_warning
        yield


@contextmanager
def resumable(advice: str) -> Iterator[None]:
    """Print how to continue if the work inside is interrupted; also a decorator.

    Args:
        advice: A sentence.
    """
    try:
        yield
    except KeyboardInterrupt:
        say(f"\nStopped. {advice}")
        raise typer.Exit(130) from None


def print_error(error: OfframpError | str) -> None:
    """Print an error, on stderr; for arguments of the library in its hint, name the options."""
    from rich.console import Console
    from rich.markup import escape
    from rich.panel import Panel

    options = _options_for(error) if isinstance(error, OfframpError) else []
    text = f"{error}\n\nOn the command line: {', '.join(options)}" if options else str(error)
    console = Console(stderr=True)
    console.print(Panel(escape(text), title="Error", title_align="left", border_style="red"))


def _options_for(error: OfframpError) -> list[str]:
    """Return the options to use where the hint of an error names arguments of Python functions."""
    if isinstance(error, GuessingError):
        return ["--anyway"]
    return [f"--{name}" for name in ARGUMENTS if f"{name}=" in error.hint]


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table on stdout; all columns but the first are aligned as numbers."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(title=escape(title), title_justify="left", title_style="bold")
    for index, column in enumerate(columns):
        table.add_column(escape(column), justify="left" if index == 0 else "right", overflow="fold")
    for row in rows:
        table.add_row(*map(escape, row))
    Console().print(table)


def print_json(content: Any) -> None:
    """Print one JSON object on stdout; NaN and infinity become null."""
    sys.stdout.write(json.dumps(_plain(content), indent=1) + "\n")


def print_text(text: str) -> None:
    """Print a text on stdout; characters that its encoding lacks become question marks."""
    encoding = sys.stdout.encoding or "utf-8"
    sys.stdout.write(text.rstrip("\n").encode(encoding, "replace").decode(encoding) + "\n")


def points(share: float) -> str:
    """Format a change of accuracy in points.

    Example:
        >>> points(-0.0123), points(-0.00001)
        ('-1.23', '+0.00')
    """
    return f"{round(100 * share, 2) + 0:+.2f}"  # adding 0 turns minus zero into zero


def interval(ends: tuple[float, float]) -> str:
    """Format an interval of changes in points."""
    return f"{points(ends[0])} to {points(ends[1])}"


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
