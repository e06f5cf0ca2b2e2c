"""The colours of pictures and page, by name: light and dark."""

from dataclasses import dataclass

__all__ = ["PALETTE", "SERIES", "Colour"]


@dataclass(frozen=True)
class Colour:
    """One colour in its two shades, lower-case hex."""

    light: str
    """On white; what pictures are drawn in. No two colours share it: it is how the page finds them again."""
    dark: str
    """On nearly black."""


PALETTE = {
    "paper": Colour("#ffffff", "#16191d"),
    "ink": Colour("#1b1f24", "#e8eaed"),
    "muted": Colour("#59636e", "#a3adb8"),
    "line": Colour("#d5dae0", "#3a4149"),
    "blue": Colour("#0072b2", "#5bb4ee"),
    "orange": Colour("#c25700", "#ff9b52"),
    "green": Colour("#00795a", "#3fcf9f"),
    "purple": Colour("#a3457f", "#e48fc0"),
    "grey": Colour("#8b96a1", "#76818c"),
}
"""After [Okabe2008], which those who see fewer colours can tell apart, darkened until text in them reads on white."""

SERIES = ("blue", "orange", "green", "purple")
"""Colours of things of the same kind, in this order."""
