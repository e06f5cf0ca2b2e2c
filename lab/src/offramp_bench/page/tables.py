"""Tables: where the default stands on each task, and every figure of every contestant."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from offramp.report._markup import prose
from offramp.report._tables import Cell, table
from offramp.report._words import clean, cost
from offramp_bench.page.results import Contestant, Footing, Measure, Task
from offramp_bench.page.standing import (
    best_rival,
    describe_first,
    figure_text,
    lead_text,
    mark,
    standing,
)
from offramp_bench.tracks.yardstick import FIGURES, HALF

__all__ = ["claim_figures", "contestants", "summary"]

_NOTHING = "\N{EN DASH}"
_ORDER = ("behind", "level", "ahead")


def summary(title: str, footings: Sequence[tuple[Task, Footing]]) -> str:
    """Return one row per task: the default at half a point lost beside the best rival; tasks where it is behind first.

    Args:
        title: Title of the table.
        footings: The same footing on several tasks.
    """
    rows: list[tuple[str, Sequence[Cell]]] = []
    for task, footing in sorted(footings, key=lambda row: _ORDER.index(standing(row[1]))):
        best = best_rival(footing)
        lead = None if best is None else footing.leads[best.name].get(HALF)
        all_leads = [lead for leads in footing.leads.values() for lead in leads.values()]
        counts = [sum(lead.is_behind for lead in all_leads), len(all_leads), sum(lead.is_ahead for lead in all_leads)]
        counts[1] -= counts[0] + counts[2]
        word = standing(footing)
        cells: list[Cell] = [
            (task.title, "words"),
            (word, "words wrong" if word == "behind" else "words"),
            (figure_text(footing.default, HALF), ""),
            (_NOTHING if best is None else f"{figure_text(best, HALF)} {best.label}", "words"),
            (_NOTHING if lead is None else f"{mark(lead)} {lead_text(lead)}", ""),
            (" / ".join(map(str, counts)), ""),
            (f"{100 * task.full_accuracy:.1f}", ""),
            (f"{task.seeds}", ""),
        ]
        rows.append(("", cells))
    heads = [
        ("task", "words"),
        ("the default is", "words"),
        ("its cost at 0.5 points lost", ""),
        ("cheapest rival there", "words"),
        ("the default's lead over it", ""),
        ("all leads: behind / level / ahead", ""),
        ("full network, %", ""),
        ("seeds", ""),
    ]
    return table(title, heads, rows)


def contestants(task: Task, footing: Footing) -> str:
    """Return every contestant of a task with its seven figures and the default's leads, folded; the best first.

    Args:
        task: The task.
        footing: Contestants that are compared.
    """
    heads = ["contestant", *FIGURES, "share of exits, %", "parameters", "CPU seconds", "tuned settings"]
    rows = "\n".join(_row(contestant, footing) for contestant in footing.contestants)
    about = (
        f"{task.about}. {task.samples:,} test samples, {task.seeds} seed{'s' * (task.seeds != 1)}; mean accuracy over "
        f"costs from {cost(task.start)} to 1."
    )
    missing_figures = [
        figure for figure in FIGURES if all(figure not in contestant.figures for contestant in footing.contestants)
    ]
    if missing_figures:
        about += f" Not shown, because one contestant's first exit already costs more: {', '.join(missing_figures)}."
    return "\n".join(
        [
            f"<details><summary>{prose(task.title)}: {prose(describe_first(footing))}</summary>",
            f"<p>{prose(about)}</p>",
            f'<div class="box" role="region" tabindex="0" aria-label="{escape(clean(task.title))}">',
            '<table class="figures">',
            f"<thead><tr>{''.join(_head(head) for head in heads)}</tr></thead>",
            f"<tbody>\n{rows}\n</tbody></table></div>",
            "</details>",
        ]
    )


def claim_figures(measure: Measure) -> str:
    """Return a figure that a verdict rests on, one row per task; tasks that speak against the claim first.

    Args:
        measure: The figure.
    """
    rows: list[tuple[str, Sequence[Cell]]] = []
    for task, gap in sorted(measure.by_task.items(), key=lambda row: row[0] not in measure.against):
        word = "against" if task in measure.against else "level" if abs(gap.figure) <= gap.noise else "for"
        figure = f"{gap.figure:+.2f}".replace("-", "\N{MINUS SIGN}")
        verdict = (word, "words wrong" if word == "against" else "words")
        rows.append(("", [(task, "words"), verdict, (figure, ""), (f"{gap.noise:.2f}", "")]))
    heads = [("task", "words"), ("the claim", "words"), ("measured", ""), ("counts as level up to", "")]
    return table(f"{measure.what}: {measure.verdict}", heads, rows)


def _head(text: str) -> str:
    unit = "" if not text.startswith(("accuracy", "mean")) else ", %"
    return f'<th scope="col">{prose(text + unit)}</th>'


def _row(contestant: Contestant, footing: Footing) -> str:
    is_default = contestant == footing.default
    label = f"{contestant.label} (default)" if is_default else contestant.label
    cells = [f'<th scope="row">{prose(label)}</th>']
    leads = footing.leads.get(contestant.name, {})
    for figure in FIGURES:
        lead = leads.get(figure)
        below = ""
        if lead is not None:
            kind = "behind" if lead.is_behind else "ahead" if lead.is_ahead else "level"
            size, interval = lead_text(lead).split(" ", 1)
            below = f'<span class="lead {kind}">{prose(f"{mark(lead)} {size}")}<br>{prose(interval)}</span>'
        cells.append(f"<td>{prose(figure_text(contestant, figure))}{below}</td>")
    for text in (
        f"{100 * contestant.share_of_exits:.2f}",
        f"{contestant.parameters:,}",
        f"{contestant.cpu_seconds:,.1f}",
    ):
        cells.append(f"<td>{text}</td>")
    cells.append(f"<td><details><summary>settings</summary>{_settings(contestant.settings)}</details></td>")
    opening = '<tr class="chosen">' if is_default else "<tr>"
    return f"{opening}{''.join(cells)}</tr>"


def _settings(settings: Mapping[str, Any]) -> str:
    return "<br>".join(
        prose(f"{name.replace('_', ' ')}: {f'{value:.3g}' if isinstance(value, float) else value}")
        for name, value in settings.items()
    )
