"""The command `offramp`.

A command imports what needs torch inside its function: torch takes seconds, and `--help` need not wait for it.
"""

import inspect as python_inspect
import os
import sys
from collections.abc import Callable
from typing import Annotated, Any

import typer

from offramp.cli.annotate import annotate
from offramp.cli.console import print_error, print_text, resumable, show_warnings
from offramp.cli.demo import demo
from offramp.cli.doctor import doctor
from offramp.cli.estimate import estimate
from offramp.cli.evaluate import evaluate
from offramp.cli.export import export
from offramp.cli.fit import fit
from offramp.cli.help import PlainCommand, PlainGroup
from offramp.cli.inspect import inspect
from offramp.cli.monitor import monitor
from offramp.cli.predict import predict
from offramp.cli.recalibrate import recalibrate
from offramp.cli.serve import serve
from offramp.errors import OfframpError

__all__ = ["COMMANDS", "app", "main"]

COMMANDS: tuple[Callable[..., None], ...] = (
    demo,
    estimate,
    inspect,
    fit,
    evaluate,
    predict,
    annotate,
    monitor,
    recalibrate,
    export,
    serve,
    doctor,
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
    """Return a docstring with one line per paragraph, without the line breaks of the source."""
    paragraphs = python_inspect.cleandoc(function.__doc__ or "").split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


for command in COMMANDS:
    app.command(cls=PlainCommand, help=_help(command))(resumable("Run the same command again.")(command))


def _print_version(requested: bool) -> None:
    if requested:
        from importlib.metadata import version  # not above: only this option needs it

        print_text(f"offramp {version('offramp')}")
        raise typer.Exit


FIRST_STEPS = """\
Early exits for your classifier: easy inputs are answered early. Begin with

  offramp demo
      a complete example in a minute, nothing downloaded
  offramp estimate --model hf:./my-model --data validation.csv
      what exits would save in your network
  offramp fit --model hf:./my-model --train train.csv --validation validation.csv --out my-offramp
      attach exits to it

offramp --help lists all commands; offramp doctor checks this installation."""
"""Text of the command without arguments."""

COMPLETION = "_OFFRAMP_COMPLETE"
"""Environment variable with which the shell asks for completion, without arguments."""


def offramp(
    show_version: Annotated[
        bool,
        typer.Option("--version", metavar="", callback=_print_version, is_eager=True, help="Show the version."),
    ] = False,
    debug: Annotated[
        bool,
        typer.Option(
            "--debug", metavar="", help="Show the whole traceback of an error. It may stand anywhere in the command."
        ),
    ] = False,
) -> None:
    """Early exits for neural networks: your classifier, frozen, answers easy inputs early.

    For an example: [bold]offramp demo[/bold]. With your network: [bold]estimate[/bold] the gain, [bold]fit[/bold] the
    exits, [bold]evaluate[/bold] them on held-out data, [bold]predict[/bold].
    """


app.callback(help=_help(offramp))(offramp)


def main(arguments: list[str] | None = None) -> int:
    """Run a command and return its exit status: 0, 1 for an error, 2 for wrong usage, 130 for Ctrl-C; monitor has more.

    Args:
        arguments: Arguments after `offramp`; those of the process if left out.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in words
    words = [word for word in words if word != "--debug"]
    if not words and COMPLETION not in os.environ:
        print_text(FIRST_STEPS)
        return 0
    try:
        with show_warnings():
            app(args=words, prog_name="offramp")
    except SystemExit as end:  # typer ends so, after a message on wrong usage
        return end.code if isinstance(end.code, int) else 0
    except OfframpError as error:
        if debug:
            raise
        print_error(error)
        return 1
    except Exception as error:
        if debug:
            raise
        if isinstance(error, OSError) and error.strerror:  # a full disk, or no permission
            file = f": {error.filename}" if error.filename else ""
            print_error(f"{error.strerror}{file}; free space or choose another folder, then run the same command again")
            return 1
        print_error(
            f"{type(error).__name__}: {error}\n\nThis is an unexpected error. Run the same command with --debug to see "
            "the traceback, and please report it."
        )
        return 1
    return 0
