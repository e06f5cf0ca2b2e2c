"""Help as plain text: importing rich to draw boxes would take longer than all the rest."""

import re
from collections.abc import Iterator
from typing import Any

from typer.core import TyperCommand, TyperGroup

__all__ = ["PlainCommand", "PlainGroup", "without_markup"]

_MARKUP = re.compile(r"\[/?(?:bold|dim)\]|\\(?=\[)")


def without_markup(text: str) -> str:
    r"""Remove rich's markup from a help text.

    Example:
        >>> without_markup("Give [bold]--store[/bold]. [dim]Without it: none.[/dim] pip install 'offramp\\[demo]'")
        "Give --store. Without it: none. pip install 'offramp[demo]'"
    """
    return _MARKUP.sub("", text)


class PlainCommand(TyperCommand):
    """A command whose help is plain text, its options under the titles of their panels."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write usage, description and options."""
        _write_help(self, ctx, formatter)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments after the command; completion needs no values, for which typer would import pydantic."""
        return [] if ctx.resilient_parsing else super().parse_args(ctx, args)


class PlainGroup(TyperGroup):
    """The whole command, whose help lists every command with the first paragraph of its help."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write usage, description, options and commands."""
        _write_help(self, ctx, formatter)
        commands = [
            (name, without_markup(command.help or "").split("\n\n")[0]) for name, command in self.commands.items()
        ]
        with formatter.section("Commands"):
            formatter.write_dl(commands)

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the options before the command."""
        parameters = super().get_params(ctx)
        for parameter in parameters:
            # None is the default of typer's own flags, and typer would import pydantic to make a bool of that.
            if getattr(parameter, "is_flag", False) and parameter.default is None:
                parameter.default = False
        return list(parameters)


def _write_help(command: TyperCommand | TyperGroup, ctx: Any, formatter: Any) -> None:
    command.format_usage(ctx, formatter)
    formatter.write_paragraph()
    with formatter.indentation():
        formatter.write_text(without_markup(command.help or ""))
    panels: dict[str, list[tuple[str, str]]] = {}
    for title, row in _described_parameters(command, ctx):
        panels.setdefault(title, []).append(row)
    for title, rows in panels.items():
        with formatter.section(title):
            formatter.write_dl(rows)


def _described_parameters(command: TyperCommand | TyperGroup, ctx: Any) -> Iterator[tuple[str, tuple[str, str]]]:
    """Yield the panel of each parameter, and its row: names and description."""
    for parameter in command.get_params(ctx):
        row = parameter.get_help_record(ctx)
        if row is not None:
            kind = "Arguments" if parameter.param_type_name == "argument" else "Options"
            title = getattr(parameter, "rich_help_panel", None) or kind
            yield title, (" ".join(row[0].split()), without_markup(row[1]))
