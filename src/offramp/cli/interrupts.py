"""Ctrl-C: what was done so far, and how to go on."""

from collections.abc import Iterator
from contextlib import contextmanager

import typer

from offramp.cli.console import say

__all__ = ["resumable"]


@contextmanager
def resumable(how: str) -> Iterator[None]:
    """Say how to go on where somebody interrupts the work inside; a function can be decorated with it too.

    Args:
        how: A sentence.
    """
    try:
        yield
    except KeyboardInterrupt:
        say(f"\nStopped. {how}")
        raise typer.Exit(130) from None
