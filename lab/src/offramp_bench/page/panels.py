"""One picture per track: a panel per task, accuracy against cost, with one legend for all panels."""

import re
from collections.abc import Sequence
from typing import Any
from xml.etree import ElementTree

from offramp.report._canvas import Axes, Figure, canvas, in_style, short, to_svg
from offramp.report._markup import inline_svg, prose
from offramp.report._palette import PALETTE
from offramp.report._words import clean
from offramp_bench.page.lines import Line, choose_lines
from offramp_bench.page.results import Footing, Task
from offramp_bench.tracks.intervals import SEEDS

__all__ = ["draw_track", "picture"]

COLUMNS = 3
"""Panels beside one another where they are drawn in one figure."""

LOWEST = 0.8
"""Share of the full network's accuracy where panels begin, as the yardstick's range does."""

_HEIGHT = 3.1
_MUTED = PALETTE["muted"].light
_COORDINATES = {"d", "transform", "x", "y"}


def picture(footings: Sequence[tuple[Task, Footing]], *, name: str) -> str:
    """Return a figure element: the legend and one panel per task.

    Args:
        footings: The same footing on several tasks.
        name: Prefix of its ids, unique on the page.
    """
    lines = choose_lines(footings)
    legend = "\n".join(
        f"<li>{_svg(_draw_swatch(line), name=f'{name}-swatch-{place}', label='line of')} {prose(line.label)}</li>"
        for place, line in enumerate(lines)
    )
    panels = "\n".join(
        _svg(_draw_panel(task, footing, lines), name=f"{name}-{place}", label=f"{task.title}: accuracy against cost")
        for place, (task, footing) in enumerate(footings)
    )
    num_contestants = len({contestant.name for _, footing in footings for contestant in footing.contestants})
    num_left_out = num_contestants - len(lines)
    rest = f" The {num_left_out} contestants that are not drawn are in the tables." if num_left_out > 0 else ""
    caption = (
        "Left is cheaper, up is better; the thin line is the full network. Means over seeds on test samples; the "
        f"accuracy axis begins at 80 % of the full network's.{rest}"
    )
    return (
        f'<figure class="card picture">\n<ul class="legend">\n{legend}\n</ul>\n<div class="panels">\n{panels}\n</div>\n'
        f"<figcaption>{prose(caption)}</figcaption>\n</figure>"
    )


@in_style
def draw_track(footings: Sequence[tuple[Task, Footing]]) -> Figure:
    """Draw the panels of one footing side by side, for a page that cannot lay them out.

    Args:
        footings: The same footing on several tasks.
    """
    lines = choose_lines(footings)
    rows = -(-len(footings) // COLUMNS)
    figure = Figure(figsize=(3.1 * COLUMNS, 2.6 * rows + 0.8), layout="constrained")
    layout: Any = figure.get_layout_engine()
    layout.set(h_pad=0.09, w_pad=0.06)  # inches: titles stay away from the edge
    figure.subplots(rows, COLUMNS)
    for axes, (task, footing) in zip(figure.axes, footings, strict=False):
        _draw_curves(axes, task, footing, lines)
        axes.set_title(task.title, fontsize=10)
        axes.set_xlabel("relative cost")
    for axes in figure.axes[len(footings) :]:
        axes.set_axis_off()
    figure.axes[0].set_ylabel("accuracy, %")
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4)
    return figure


@in_style
def _draw_panel(task: Task, footing: Footing, lines: Sequence[Line]) -> Figure:
    title = task.title if task.seeds >= SEEDS else f"{task.title} ({task.seeds} of {SEEDS} seeds)"
    figure, axes = canvas(short(title, 48), "relative cost", "accuracy, %", height=_HEIGHT)
    _draw_curves(axes, task, footing, lines)
    return figure


def _draw_curves(axes: Axes, task: Task, footing: Footing, lines: Sequence[Line]) -> None:
    full = 100 * task.full_accuracy
    axes.axhline(full, color=_MUTED, linewidth=0.8)
    curves = {contestant.name: contestant.curve for contestant in footing.contestants}
    heights = [full]
    for place, line in enumerate(lines):
        points = [(cost, 100 * accuracy) for cost, accuracy in curves.get(line.name, ()) if cost <= 1]
        costs, accuracies = zip(*points, strict=True) if points else ((), ())
        heights += accuracies
        axes.plot(
            costs,
            accuracies,
            color=line.colour,
            linewidth=line.width,
            linestyle=(0, line.dashes) if line.dashes else "-",
            marker=line.marker,
            markersize=4.5,
            # Markers of different lines do not fall on the same costs.
            markevery=(0.02 + 0.02 * place, 0.16) if points else None,
            label=line.label,
        )
    low, high = max(min(heights), LOWEST * full), max(heights)
    room = 0.05 * max(high - low, 0.5)
    axes.set_ylim(low - room, high + room)
    axes.set_xlim(0, 1.02)
    axes.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0", "0.25", "0.5", "0.75", "1"])


@in_style
def _draw_swatch(line: Line) -> Figure:
    figure = Figure(figsize=(0.55, 0.18))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    axes.plot(
        [0, 0.5, 1],
        [0, 0, 0],
        color=line.colour,
        linewidth=line.width,
        linestyle=(0, line.dashes) if line.dashes else "-",
        marker=line.marker,
        markersize=5,
        markevery=[1],
    )
    return figure


def _svg(figure: Figure, *, name: str, label: str) -> str:
    root = ElementTree.fromstring(inline_svg(to_svg(figure), name=name, label=clean(label)))
    for element in root.iter():
        # A hundredth of a point is less than any screen shows, and most of the file is digits.
        for key in _COORDINATES & element.attrib.keys():
            element.set(key, re.sub(r"(\d\.\d\d)\d+", r"\1", element.attrib[key]))
    return ElementTree.tostring(root, encoding="unicode")
