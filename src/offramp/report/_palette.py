"""The colours of figures and page, by name, in light and dark."""

from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["PALETTE", "SERIES", "Colour", "policy_colours"]


@dataclass(frozen=True)
class Colour:
    """One colour in its two shades, lower-case hex."""

    light: str
    """On white, used in figures. It is unique: the page identifies colours by it."""
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
    "gold": Colour("#7d6500", "#d9b93f"),
    "grey": Colour("#8b96a1", "#76818c"),
}
"""After [Okabe2008], safe for colour blindness, darkened so that text is readable on white.

Colours mean the same in all pictures of a report: ink is the full network, grey one exit for all samples, orange a
wrong answer or a loss. Each policy has a colour of its own, for its points, its exits and its answers.
"""

SERIES = ("blue", "green", "purple", "gold")
"""Colours of series, in this order; orange is not among them."""

POLICIES = ("threshold", "stopping", "gates")
"""The policies of a default fit, in the order of reports; others follow by name."""


def policy_colours(policies: Iterable[str]) -> dict[str, Colour]:
    """Assign a colour to each policy, independent of their order.

    Args:
        policies: Names of policies.

    Returns:
        Names to colours, in the order of reports.

    Example:
        >>> [colour.light for colour in policy_colours(["gates", "stopping"]).values()]
        ['#00795a', '#a3457f']
    """
    names = set(policies)
    others = sorted(names - set(POLICIES))
    indices = {name: index for index, name in enumerate((*POLICIES, *others)) if name in names}
    return {name: PALETTE[SERIES[index % len(SERIES)]] for name, index in indices.items()}
