"""The repository, and the options of the server that its images and manifests may name."""

from pathlib import Path

import typer

from offramp.cli.main import app

__all__ = ["ROOT", "server_options"]

ROOT = Path(__file__).parents[2]


def server_options() -> set[str]:
    """Return the options of `offramp serve`."""
    parameters = typer.main.get_command(app).commands["serve"].params  # type: ignore[attr-defined]
    return {option for parameter in parameters for option in parameter.opts}
