"""Standing of the default: ahead, level or behind, with simultaneous intervals."""

from collections.abc import Iterator
from typing import Literal

from offramp.report._words import cost
from offramp_bench.page.results import Contestant, Footing, Lead, Results, Task
from offramp_bench.tracks.yardstick import HALF, is_cost

__all__ = [
    "Standing",
    "best_rival",
    "describe_first",
    "figure_text",
    "headline",
    "lead_text",
    "mark",
    "near_misses",
    "rivals",
    "shortfalls",
    "standing",
]

Standing = Literal["ahead", "level", "behind"]

SIMPLE = ("threshold", "entropy", "margin")
"""Policies of one line of code."""


def rivals(footing: Footing) -> list[Contestant]:
    """Return all contestants but the default and, where training is compared, its own variants."""
    return [
        contestant
        for contestant in footing.contestants
        if contestant != footing.default and (footing.track == "policy" or contestant.kind != "variant")
    ]


def best_rival(footing: Footing, figure: str = HALF) -> Contestant | None:
    """Return the rival with the best figure; None if no rival has it."""
    sign = 1 if is_cost(figure) else -1
    candidates = [rival for rival in rivals(footing) if figure in rival.figures]
    return min(candidates, key=lambda rival: sign * rival.figures[figure], default=None)


def standing(footing: Footing) -> Standing:
    """Return where the default stands on a footing.

    Behind: behind any contestant, variants included, at any figure, beyond the interval. Ahead: not behind, and ahead
    of every rival at half a point lost, beyond the interval. Level: neither.
    """
    if any(lead.is_behind for leads in footing.leads.values() for lead in leads.values()):
        return "behind"
    rival_leads = [footing.leads[rival.name].get(HALF) for rival in rivals(footing)]
    return "ahead" if rival_leads and all(lead is not None and lead.is_ahead for lead in rival_leads) else "level"


def mark(lead: Lead) -> str:
    """Return a sign and a word for a lead.

    Example:
        >>> mark(Lead(HALF, 0.1, 0.05, 0.15)), mark(Lead(HALF, 0.1, -0.05, 0.25))
        ('▲ ahead', '= level')
    """
    return "▲ ahead" if lead.is_ahead else "▼ behind" if lead.is_behind else "= level"


def lead_text(lead: Lead) -> str:
    """Format a lead and its interval: shares of the cost, or points of accuracy.

    Example:
        >>> lead_text(Lead(HALF, 0.1, 0.05, 0.15)), lead_text(Lead("mean accuracy", 0.02, 0.01, 0.03))
        ('+0.100 (+0.050 to +0.150)', '+2.00 (+1.00 to +3.00)')
    """
    values = [_format_signed(lead.figure, value) for value in (lead.lead, lead.low, lead.high)]
    return f"{values[0]} ({values[1]} to {values[2]})"


def figure_text(contestant: Contestant, figure: str) -> str:
    """Format a figure: a relative cost, or an accuracy in percent; a dash if it is left out.

    Example:
        >>> contestant = Contestant("a", "exits", "a", "threshold", "rival", {HALF: 0.5}, (), 1, 0.01, 1.0, {})
        >>> figure_text(contestant, HALF)
        '0.50'
    """
    value = contestant.figures.get(figure)
    if value is None:
        return "\N{EN DASH}"
    return cost(value) if is_cost(figure) else f"{100 * value:.2f}"


def shortfalls(results: Results) -> Iterator[str]:
    """Yield where the default is behind another contestant beyond the interval, one sentence per task and footing."""
    for task, footing in _every_footing(results):
        leads = [
            (name, lead)
            for name, lead_of_figure in footing.leads.items()
            for lead in lead_of_figure.values()
            if lead.is_behind
        ]
        if leads:
            # The clearest one: costs and accuracies are compared in widths of their intervals.
            name, lead = min(leads, key=lambda row: row[1].lead / (row[1].high - row[1].lead or 1))
            label = next(contestant.label for contestant in footing.contestants if contestant.name == name)
            count = f"{len({name for name, _ in leads})} of {len(footing.contestants) - 1} contestants"
            comparison = f"{task.title}, {footing.track} track, {footing.title}"
            better = f'"{label}" is better in {lead.figure}, by {_shortfall_text(lead)}'
            yield f"{comparison}: behind {count}. Most clearly, {better}."


def near_misses(results: Results) -> Iterator[str]:
    """Yield where a rival is cheaper at half a point lost than the default, within the interval."""
    for task, footing in _every_footing(results):
        best = best_rival(footing)
        if best is None or HALF not in footing.default.figures:
            continue
        lead = footing.leads[best.name].get(HALF)
        if lead is not None and lead.is_behind:
            continue
        ours, theirs = footing.default.figures[HALF], best.figures[HALF]
        if theirs < ours:
            comparison = f"{task.title}, {footing.track} track, {footing.title}"
            yield f"{comparison}: {best.label} needs {cost(theirs)} of the cost, the default {cost(ours)}."


def describe_first(footing: Footing) -> str:
    """Say who has the largest mean accuracy, simple methods by that word, and the place of the default."""
    first = footing.contestants[0]
    if first == footing.default:
        return "the default is first by mean accuracy."
    is_simple = first.policy in SIMPLE and (footing.track == "policy" or first.training == "linear")
    place = footing.contestants.index(footing.default) + 1
    name = f"a simple method, {first.label}, is" if is_simple else f"{first.label} is"
    return f"{name} first by mean accuracy, the default number {place} of {len(footing.contestants)}."


def headline(results: Results) -> list[str]:
    """Return on how many tasks the default is behind, level and ahead, one sentence per footing.

    Args:
        results: The results.
    """
    lines = []
    for track in dict.fromkeys(footing.track for _, footing in _every_footing(results)):
        for title, footings in results.footings(track).items():
            names: dict[Standing, list[str]] = {"behind": [], "level": [], "ahead": []}
            for task, footing in footings:
                names[standing(footing)].append(task.name)
            counts = [
                f"{word} on {len(tasks)}" + (f" ({', '.join(tasks)})" if tasks else "") for word, tasks in names.items()
            ]
            tasks = "1 task" if len(footings) == 1 else f"{len(footings)} tasks"
            lines.append(f"{track.capitalize()} track, {title}, {tasks}: {', '.join(counts)}.")
    return lines


def _every_footing(results: Results) -> Iterator[tuple[Task, Footing]]:
    for task in results.tasks:
        for footing in task.footings:
            yield task, footing


def _shortfall_text(lead: Lead) -> str:
    """Format by how much the default is behind, with the interval: shares of the cost, or points of accuracy."""
    unit = "of the cost" if is_cost(lead.figure) else "points"
    scale, digits = (1, 3) if is_cost(lead.figure) else (100, 2)
    amount, least, most = (f"{-scale * value:.{digits}f}" for value in (lead.lead, lead.high, lead.low))
    return f"{amount} {unit} ({least} to {most})"


def _format_signed(figure: str, value: float) -> str:
    number = round(value, 3) if is_cost(figure) else round(100 * value, 2)
    text = f"{number:+.3f}" if is_cost(figure) else f"{number:+.2f}"
    return text.replace("-", "\N{MINUS SIGN}") if number else text[1:]
