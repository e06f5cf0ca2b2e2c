"""The command line: one file a verb."""

from offramp.cli.main import app, main

__all__ = ["app", "main"]
