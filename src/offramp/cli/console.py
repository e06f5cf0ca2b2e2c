"""What is printed: tables for people, JSON for programs, and errors that say what to do."""

import json
import math
import re
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from offramp.errors import OfframpWarning

__all__ = [
    "interval",
    "points",
    "print_json",
    "print_table",
    "print_text",
    "say",
    "show_warnings",
    "tell_error",
    "warn",
]


def say(text: str) -> None:
    """A line for a person, on stderr: stdout is for results."""
    from rich.console import Console

    Console(stderr=True, highlight=False).print(text, soft_wrap=True, markup=False)


def warn(text: str) -> None:
    """A line that speaks against a result, on stderr."""
    from rich.console import Console
    from rich.markup import escape

    Console(stderr=True, highlight=False).print(f"[yellow]Careful[/yellow]: {escape(text)}", soft_wrap=True)


@contextmanager
def show_warnings() -> Iterator[None]:
    """Print the library's warnings as `warn` does, each time; those of other libraries stay as they are."""
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


def tell_error(text: str) -> None:
    """An error, on stderr."""
    from rich.console import Console
    from rich.markup import escape
    from rich.panel import Panel

    console = Console(stderr=True)
    console.print(Panel(escape(_in_options(text)), title="Error", title_align="left", border_style="red"))


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table on stdout; all columns but the first are numbers."""
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
    """One JSON object on stdout; numbers that are none become null."""
    sys.stdout.write(json.dumps(_plain(content), indent=1) + "\n")


def print_text(text: str) -> None:
    """A text on stdout, as it is; what the terminal or the file cannot hold becomes a question mark."""
    encoding = sys.stdout.encoding or "utf-8"
    sys.stdout.write(text.rstrip("\n").encode(encoding, "replace").decode(encoding) + "\n")


def points(share: float) -> str:
    """A change of accuracy in points.

    Example:
        >>> points(-0.0123), points(-0.00001)
        ('-1.23', '+0.00')
    """
    return f"{round(100 * share, 2) + 0:+.2f}"  # plus nothing, or what rounds to zero could be minus zero


def interval(ends: tuple[float, float]) -> str:
    """The ends of an interval of changes, in points."""
    return f"{points(ends[0])} to {points(ends[1])}"


def _in_options(text: str) -> str:
    """A message of the library, whose arguments are options here.

    Example:
        >>> _in_options("choose one: split='train', or name the column to read: column=...")
        'choose one: --split train, or name the column to read: --column ...'
    """
    options = re.sub(r"\b(classes|column|label|split)=(?:'([^']*)'|(\.\.\.))", r"--\1 \2\3", text)
    return options.replace("anyway=True", "--anyway")


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
