"""The lines of a picture: who is drawn, and how they are told apart by colour, dashes and marker."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from offramp.report._palette import PALETTE
from offramp_bench.page.results import Contestant, Footing, Task
from offramp_bench.tracks.yardstick import FIGURES

__all__ = ["MOST", "Line", "choose_lines"]

MOST = 7
"""Lines of a picture; with more, they cannot be told apart."""

_Style = tuple[str, tuple[float, ...], str]

_DEFAULT: _Style = ("blue", (), "o")

_ROLES: dict[str, _Style] = {
    "gates": ("purple", (5, 2), "s"),
    "stopping": ("green", (1.5, 1.5), "^"),
    "one threshold": ("gold", (1.5, 1.5), "<"),
}
"""Styles of contestants that stand in several pictures; colours of policies are those of reports."""

_OTHERS: tuple[_Style, ...] = (
    ("orange", (7, 2, 1.5, 2), "D"),
    ("ink", (3, 1.5), "v"),
    ("grey", (), "X"),
    ("muted", (9, 3), "P"),
)
"""Styles of the rest, in this order, then those of roles that no contestant has."""


@dataclass(frozen=True)
class Line:
    """A contestant's line, the same in every panel of a picture."""

    name: str
    """Name of the contestant."""
    label: str
    """Its text in the legend."""
    colour: str
    """Light shade of a colour of the palette."""
    dashes: tuple[float, ...]
    """Lengths of dashes and gaps in line widths; empty for a solid line."""
    marker: str
    width: float


def choose_lines(footings: Sequence[tuple[Task, Footing]]) -> list[Line]:
    """Choose the lines of a picture: the default, the paper's method, one threshold, and the strongest of the others.

    Contestants of more tasks come first, because a line in one panel cannot be compared across tasks. Among these, the
    strongest come first: those with the largest mean accuracy relative to the default's, a mean over the tasks. Of
    contestants with the same training, only the best is drawn where policies are not compared.

    Args:
        footings: The same footing on several tasks.
    """
    footing = footings[0][1]
    distances: dict[str, list[float]] = {}
    contestants: dict[str, Contestant] = {}
    for _, task_footing in footings:
        for contestant in task_footing.contestants:
            lead = task_footing.leads.get(contestant.name, {}).get(FIGURES[-1])
            contestants[contestant.name] = contestant
            distances.setdefault(contestant.name, []).append(0.0 if lead is None else lead.lead)
    names = [footing.default.name]
    fixed_names = [
        name for name, contestant in contestants.items() if _is_always_drawn(contestant) and name not in names
    ]
    names += sorted(fixed_names, key=lambda name: contestants[name].policy != "gates")
    for name in sorted(distances, key=lambda name: (-len(distances[name]), fmean(distances[name]))):
        is_drawn = footing.track != "policy" and contestants[name].training in {
            contestants[other].training for other in names
        }
        if name not in names and not is_drawn:
            names.append(name)
    styles = _assign_styles([contestants[name] for name in names[:MOST]])
    return [
        Line(
            name,
            f"default: {contestants[name].label}" if name == footing.default.name else _label(contestants[name]),
            PALETTE[colour].light,
            dashes,
            marker,
            # Wide and below the others, so that a line on top of it is seen.
            3.4 if name == footing.default.name else 1.5,
        )
        for name, (colour, dashes, marker) in zip(names[:MOST], styles, strict=True)
    ]


def _assign_styles(contestants: Sequence[Contestant]) -> list[_Style]:
    """Return the style of each contestant; the first is the default."""
    roles: list[str | None] = []
    for contestant in contestants[1:]:
        role = _find_role(contestant)
        roles.append(None if role in roles else role)
    rest = iter([*_OTHERS, *(style for role, style in _ROLES.items() if role not in roles)])
    return [_DEFAULT, *(next(rest) if role is None else _ROLES[role] for role in roles)]


def _find_role(contestant: Contestant) -> str | None:
    if contestant.track == "policy":
        return contestant.policy if contestant.policy in ("gates", "stopping") else None
    if contestant.track == "exits":
        return {"JEI-DNN": "gates", "linear": "one threshold"}.get(contestant.training)
    return None


def _label(contestant: Contestant) -> str:
    if contestant.track == "policy" and contestant.policy == "gates":
        return f"{contestant.label} (as in JEI-DNN)"
    return "linear exits, one threshold" if contestant.label == "linear" else contestant.label


def _is_always_drawn(contestant: Contestant) -> bool:
    if contestant.track == "policy":
        return contestant.policy in ("gates", "threshold")
    return contestant.policy == ("gates" if contestant.training == "JEI-DNN" else "threshold") and (
        contestant.training in ("JEI-DNN", "linear")
    )
