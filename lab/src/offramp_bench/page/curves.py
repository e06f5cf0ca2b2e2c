"""Something against cost: one picture a task, all contestants in it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from offramp.report._canvas import Axes, Figure, canvas, in_style, short, write_labels
from offramp.report._palette import PALETTE, SERIES
from offramp_bench.page.card import Picture
from offramp_bench.page.results import Contestant, PaperResults, Task
from offramp_bench.page.standing import DEFAULT, MAIN, best_rival, rivals, static

__all__ = ["ACCURACY", "CALIBRATION", "SETS", "Shown", "against_cost", "compared"]

_INK, _MUTED, _GREY = (PALETTE[name].light for name in ("ink", "muted", "grey"))
_BLUE, *_, _PURPLE = (PALETTE[name].light for name in SERIES)
_COLOURS = dict(zip(MAIN, (PALETTE[name].light for name in SERIES), strict=False))
_WIDTHS = dict(zip(MAIN, (2.2, 1.7, 1.6), strict=True))

_TICKS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
_BETWEEN = (0.07, 0.15, 0.3, 0.7)  # where the axis is short
_HALF = 0.5
_HEIGHT = 3.8
_LOWEST = 0.6  # of the full accuracy: nobody would leave so early, and the rest would be squeezed together
_ROOM = 0.15  # beyond the emphasised lines, a share of their range; what lies farther is cut


@dataclass(frozen=True)
class Shown:
    """What is drawn against cost."""

    name: str
    """What ids of its pictures begin with."""
    column: str
    """Of a point of a curve."""
    label: str
    """Of its axis."""
    scale: float
    """What it is multiplied with."""


ACCURACY = Shown("accuracy", "accuracy", "accuracy, %", 100.0)
CALIBRATION = Shown("calibration", "ece", "calibration error, %", 100.0)
SETS = Shown("sets", "set_size", "classes in a set of 95 %", 1.0)


@dataclass(frozen=True)
class Line:
    """A contestant and how it is drawn."""

    one: Contestant
    colour: str
    width: float
    label: str
    """In the legend; none if it begins with an underscore."""
    dashed: bool = False


def against_cost(results: PaperResults, task: Task, shown: Shown) -> Picture:
    """Offramp, the paper's method, a threshold and the best rival in colours, the other rivals thin.

    Args:
        results: All results.
        task: The task.
        shown: What is drawn.
    """
    lines = list(_field(results, task))
    points = static(results, task) if shown is ACCURACY else []
    others = [one.name for one in rivals(task)[1:]]
    caption = "Further left is cheaper, higher is better." if shown is ACCURACY else _halfway(task, shown)
    if others and shown is ACCURACY:
        caption += f" Thin, the largest area first: {', '.join(others)}."
    if points:
        caption += " Squares: smaller networks without exits."
    return _picture(task, shown, lines, points, caption)


def compared(task: Task, names: Sequence[str], shown: Shown, *, prefix: str) -> Picture | None:
    """Some contestants only; None if one of them is missing.

    Args:
        task: The task.
        names: Of the contestants, one at most besides the main ones.
        shown: What is drawn.
        prefix: What the picture's name begins with.
    """
    if any(name not in task.contestants for name in names):
        return None
    found = [task.contestants[name] for name in names]
    widths = np.linspace(2.8, 1.6, len(found))  # where lines are the same, all of them can be seen
    lines = [
        Line(one, _COLOURS.get(one.name, _PURPLE), float(width), one.name)
        for one, width in zip(found, widths, strict=True)
    ]
    areas = ", ".join(f"{one.name} {100 * one.area:.1f}" for one in found)
    return _picture(task, shown, lines, [], f"Areas: {areas}.", prefix=f"{prefix}-")


def _halfway(task: Task, shown: Shown) -> str:
    """What the main contestants have at half the cost, the lower the better."""
    parts = []
    for one in (task.contestants[name] for name in MAIN if name in task.contestants):
        known = [(point.cost, getattr(point, shown.column)) for point in one.curve]
        costs, values = np.array([row for row in known if row[1] is not None] or [(np.nan, np.nan)]).T
        if costs.min() <= _HALF:
            parts.append(f"{one.name} {shown.scale * np.interp(_HALF, costs, values):.2f}")
    return f"Lower is better. At half the cost: {', '.join(parts)}." if parts else "Lower is better."


def _field(results: PaperResults, task: Task) -> Iterator[Line]:
    """The lines, those on top last."""
    best = best_rival(task)
    for index, one in enumerate(reversed(rivals(task)[1:])):
        yield Line(one, _GREY, 0.8, "_" if index else "other rivals")
    alone = results.tasks.get(task.alone or "")
    if alone is not None and DEFAULT in alone.contestants:
        yield Line(alone.contestants[DEFAULT], _BLUE, 1.2, f"{DEFAULT}, {short(alone.name, 14)}", dashed=True)
    if best is not None:
        yield Line(best, _PURPLE, 1.3, f"{short(best.name)}, best rival")
    for name in reversed(MAIN):
        if name in task.contestants:
            yield Line(task.contestants[name], _COLOURS[name], _WIDTHS[name], name)


def _picture(
    task: Task, shown: Shown, lines: Sequence[Line], points: Sequence[Contestant], caption: str, *, prefix: str = ""
) -> Picture:
    titles = {f"line-{index}": _told(line.one) for index, line in enumerate(lines)}
    titles |= {f"wide-{index}": _told(line.one) for index, line in enumerate(lines)}
    figure = _drawn(task, shown, lines, points)
    return Picture(f"{prefix}{shown.name}-{task.name}", f"{task.name}. {caption}", figure, titles)


def _told(one: Contestant) -> str:
    return f"{one.name}: area {100 * one.area:.1f}"


@in_style
def _drawn(task: Task, shown: Shown, lines: Sequence[Line], points: Sequence[Contestant]) -> Figure:
    figure, axes = canvas(short(task.name, 28), "cost, relative to the full network", shown.label, height=_HEIGHT)
    axes.set_xscale("log")
    if shown is ACCURACY:
        axes.axhline(100 * task.full_accuracy, color=_MUTED, linewidth=1, linestyle=(0, (4, 3)))
    drawn: list[tuple[Line, np.ndarray]] = []
    named = []
    for index, line in enumerate(lines):
        rows = [(point.cost, getattr(point, shown.column)) for point in line.one.curve]
        rows = [(spent, shown.scale * value) for spent, value in rows if value is not None]
        if not rows:
            continue
        costs, values = np.array(rows).T
        look: Any = {"linestyle": (0, (3, 2))} if line.dashed else {}
        named += axes.plot(
            costs, values, color=line.colour, linewidth=line.width, label=line.label, gid=f"line-{index}", **look
        )
        if line.width < 1.5:  # too thin to point at
            axes.plot(costs, values, color=line.colour, linewidth=9, alpha=0, gid=f"wide-{index}", label="_")
        drawn.append((line, np.array(rows)))
    _limit(axes, task, shown, drawn)
    figure.legend(
        handles=sorted((line for line in named if line.get_label() != "_"), key=lambda line: -line.get_linewidth()),
        loc="outside lower center",
        ncols=2,
        frameon=False,
        handlelength=1.4,
        columnspacing=1.2,
        handletextpad=0.6,
    )
    _place(figure, axes, points, drawn)
    return figure


def _limit(axes: Axes, task: Task, shown: Shown, drawn: Sequence[tuple[Line, np.ndarray]]) -> None:
    """Show what the emphasised lines need; how far others go beyond it is not what the picture is of."""
    main = [rows for line, rows in drawn if line.width > 1.5] or [rows for _, rows in drawn]
    if main:
        together = np.concatenate(main)
        seen = together[together[:, 0] >= task.axis_from] if together[:, 0].max() >= task.axis_from else together
        axes.set_xlim(0.93 * task.axis_from, max(1.04, 1.03 * seen[:, 0].max()))
        least, most = seen[:, 1].min(), seen[:, 1].max()
        if shown is ACCURACY:
            full = 100 * task.full_accuracy
            bottom, top = max(least, _LOWEST * full), max(full, *(rows[:, 1].max() for _, rows in drawn))
            room = _ROOM / 3 * max(top - bottom, 1.0)
            axes.set_ylim(bottom - room, top + room)
        else:
            bottom = 0.0 if shown is CALIBRATION else least - _ROOM * (most - least)
            axes.set_ylim(bottom, most + _ROOM * max(most - bottom, 0.1))
    low, high = axes.get_xlim()
    ticks = [tick for tick in sorted((*_TICKS, *_BETWEEN) if low > 0.05 else _TICKS) if low <= tick <= high]
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()


def _place(figure: Figure, axes: Axes, points: Sequence[Contestant], drawn: Sequence[tuple[Line, np.ndarray]]) -> None:
    """Mark and name the smaller networks."""
    bottom, top = axes.get_ylim()
    where = [(one.curve[0].cost, 100 * one.curve[0].accuracy, short(one.name)) for one in points if one.curve]
    where = [place for place in where if bottom <= place[1] <= top]
    for spent, accuracy, _ in where:
        axes.plot(spent, accuracy, "s", color=_INK, markersize=5)
    crowd = [(float(x), float(y)) for _, rows in drawn for x, y in rows if bottom <= y <= top]
    write_labels(figure, axes, where, markers=[place[:2] for place in where], crowd=crowd)
