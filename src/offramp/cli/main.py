"""The command `offramp`.

A verb imports what needs torch inside its function: torch takes seconds, and `--help` need not wait for it.
"""

import inspect as python_inspect
import sys
from collections.abc import Callable
from typing import Annotated, Any

import typer

from offramp.cli.console import print_text, show_warnings, tell_error
from offramp.cli.demo import demo
from offramp.cli.estimate import estimate
from offramp.cli.evaluate import evaluate
from offramp.cli.export import export
from offramp.cli.fit import fit
from offramp.cli.help import PlainCommand, PlainGroup
from offramp.cli.inspect import inspect
from offramp.cli.interrupts import resumable
from offramp.cli.monitor import monitor
from offramp.cli.predict import predict
from offramp.cli.recalibrate import recalibrate
from offramp.errors import OfframpError

__all__ = ["VERBS", "app", "main"]

VERBS: tuple[Callable[..., None], ...] = (
    demo,
    estimate,
    inspect,
    fit,
    evaluate,
    predict,
    monitor,
    recalibrate,
    export,
)
"""In the order a new user meets them."""

app = typer.Typer(
    name="offramp",
    cls=PlainGroup,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _help(function: Callable[..., Any]) -> str:
    """What a docstring says, a paragraph a line: its line breaks are those of the source."""
    paragraphs = python_inspect.cleandoc(function.__doc__ or "").split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


for verb in VERBS:
    app.command(cls=PlainCommand, help=_help(verb))(resumable("Run the same command again.")(verb))


def _print_version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version  # not above: only this option needs it

        print_text(f"offramp {version('offramp')}")
        raise typer.Exit


def offramp(
    show_version: Annotated[
        bool,
        typer.Option("--version", metavar="", callback=_print_version, is_eager=True, help="Show the version."),
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", metavar="", help="Show the whole traceback of an error; anywhere on the line.")
    ] = False,
) -> None:
    """Off-ramps for neural networks: a classifier you have, frozen, answering easy inputs early.

    See it: [bold]offramp demo[/bold]. With a network of yours: [bold]estimate[/bold] whether it is worth it,
    [bold]fit[/bold] the exits, [bold]evaluate[/bold] them on data they have not seen, [bold]predict[/bold].
    """


app.callback(help=_help(offramp))(offramp)


def main(arguments: list[str] | None = None) -> int:
    """Run a command; the exit status is 0, 1 for an error, 2 for wrong usage, 130 when interrupted; monitor has more.

    Args:
        arguments: What comes after `offramp`; of the process if left out.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in given
    given = [argument for argument in given if argument != "--debug"]
    try:
        with show_warnings():
            app(args=given or ["--help"], prog_name="offramp")
    except SystemExit as end:  # so typer ends, what is wrong with the usage told
        return end.code if isinstance(end.code, int) else 0
    except OfframpError as error:
        if debug:
            raise
        tell_error(str(error))
        return 1
    except Exception as error:
        if debug:
            raise
        if isinstance(error, OSError) and error.strerror:  # a full disk, a place without permission
            where = f": {error.filename}" if error.filename else ""
            tell_error(f"{error.strerror}{where}; mend that, or choose another place, then run the same command again")
            return 1
        tell_error(
            f"{type(error).__name__}: {error}\n\nThis was not foreseen. Run the same command with --debug to see where "
            "it happened, and report it, please."
        )
        return 1
    return 0
