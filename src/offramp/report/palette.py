"""The colours of pictures and page, by name: light and dark."""

from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["PALETTE", "SERIES", "Colour", "policy_colours"]


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

POLICIES = ("stopping", "threshold", "gates")
"""The policies that a fit offers, in the order in which reports show them; others follow by their names."""


def policy_colours(policies: Iterable[str]) -> dict[str, Colour]:
    """Give each policy its colour, whatever order the policies come in.

    Args:
        policies: Names of policies.

    Returns:
        Names to colours, in the order in which reports show the policies.

    Example:
        >>> [colour.light for colour in policy_colours(["gates", "stopping"]).values()]
        ['#0072b2', '#00795a']
    """
    names = set(policies)
    others = sorted(names - set(POLICIES))
    places = {name: place for place, name in enumerate((*POLICIES, *others)) if name in names}
    return {name: PALETTE[SERIES[place % len(SERIES)]] for name, place in places.items()}
