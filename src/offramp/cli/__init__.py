"""The command line: one file per verb."""

from offramp.cli.main import app, main

__all__ = ["app", "main"]
