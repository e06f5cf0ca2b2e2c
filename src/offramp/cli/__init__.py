"""The command line: one file per command."""

from offramp.cli.main import app, main

__all__ = ["app", "main"]
