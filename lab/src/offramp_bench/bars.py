"""Bars of a benchmark, and their report: figures as JSON on stdout, one line per bar on stderr."""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["Bar", "parser", "report", "say"]


@dataclass(frozen=True)
class Bar:
    """A figure and its upper limit."""

    name: str
    figure: float
    at_most: float

    @property
    def held(self) -> bool:
        """True if the figure is at most the limit; false for NaN."""
        return bool(self.figure <= self.at_most)


def say(text: str) -> None:
    """Report the progress of a benchmark."""
    print(text, file=sys.stderr, flush=True)


def parser(description: str | None) -> argparse.ArgumentParser:
    """Return a parser with the options that every benchmark has."""
    options = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--check", action="store_true", help="exit with 1 if a bar is missed")
    return options


def report(figures: Mapping[str, Any], bars: Sequence[Bar], *, check: bool) -> int:
    """Print figures and bars.

    Returns:
        The exit code: 1 if a bar was missed and `check` is set.
    """
    for bar in bars:
        say(f"{'holds ' if bar.held else 'MISSED'}  {bar.name}: {bar.figure:.4f} (at most {bar.at_most:g})")
    held = all(bar.held for bar in bars)
    rows = [{"name": bar.name, "figure": bar.figure, "at_most": bar.at_most, "held": bar.held} for bar in bars]
    print(json.dumps({**figures, "bars": rows, "held": held}, indent=2))
    return 1 if check and not held else 0
