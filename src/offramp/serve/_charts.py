"""Small charts as SVG, without a library: a server has no matplotlib."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

__all__ = ["Series", "draw_bars", "draw_lines"]

WIDTH, HEIGHT = 360, 270
"""Pixels: about the width of a phone, where text is then as large as it says."""
LEFT, RIGHT, TOP, BOTTOM = 52, 12, 12, 64
"""Margins of the axes; below are ticks, the label and the legend."""


@dataclass(frozen=True)
class Series:
    """A line, or single points."""

    name: str
    """Name in the legend."""
    colour: str
    """Name of a colour of the palette."""
    points: Sequence[tuple[float, float]]
    """Coordinates; a line breaks at a NaN."""
    line: bool = True
    """False for single points."""


def draw_lines(
    series: Sequence[Series], *, x_label: str, y_label: str, x_range: tuple[float, float], y_range: tuple[float, float]
) -> str:
    """Return a chart of lines or points.

    Args:
        series: The lines.
        x_label: Label of the x axis.
        y_label: Label of the y axis, also the description of the chart.
        x_range: Ends of the x axis.
        y_range: Ends of the y axis.
    """

    def place(x: float, y: float) -> tuple[float, float]:
        across = (x - x_range[0]) / (x_range[1] - x_range[0])
        up = (y - y_range[0]) / (y_range[1] - y_range[0])
        return LEFT + across * (WIDTH - LEFT - RIGHT), HEIGHT - BOTTOM - up * (HEIGHT - TOP - BOTTOM)

    parts = []
    for tick in _ticks(*y_range):
        _, y = place(0, tick)
        line = f'<line x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}" style="stroke: var(--line)"/>'
        parts += [line, _text(LEFT - 6, y + 4, f"{tick:g}", "end")]
    parts += [_text(place(tick, 0)[0], HEIGHT - BOTTOM + 16, f"{tick:g}", "middle") for tick in _ticks(*x_range)]
    left = LEFT
    for entry in series:
        fill = f"fill: var(--{entry.colour})"
        places = [place(x, y) if math.isfinite(y) else None for x, y in entry.points]
        if entry.line:
            parts += [_polyline(run, entry.colour) for run in _runs(places)]
        else:
            parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" style="{fill}"/>' for x, y in filter(None, places)]
        parts.append(f'<rect x="{left}" y="{HEIGHT - 14}" width="10" height="10" style="{fill}"/>')
        parts.append(_text(left + 14, HEIGHT - 5, entry.name, "start"))
        left += 34 + 7 * len(entry.name)
    parts.append(_text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - BOTTOM + 34, x_label, "middle"))
    return _svg(parts, y_label)


def draw_bars(values: Sequence[tuple[str, float, str]], *, label: str) -> str:
    """Return a chart of horizontal bars.

    Args:
        values: Name, share in 0 to 1, and text of each bar.
        label: Description of the chart.
    """
    height = min(52.0, (HEIGHT - TOP) / max(len(values), 1))
    parts = []
    for row, (name, share, text) in enumerate(values):
        y, width = TOP + row * height, share * (WIDTH - LEFT - 90)
        parts.append(
            f'<rect x="{LEFT}" y="{y:.1f}" width="{width:.1f}" height="{0.75 * height:.1f}" style="fill: var(--blue)"/>'
        )
        parts.append(_text(LEFT - 6, y + 0.55 * height, name, "end"))
        parts.append(_text(LEFT + width + 6, y + 0.55 * height, text, "start"))
    return _svg(parts, label)


def _ticks(low: float, high: float) -> list[float]:
    """Return about five round numbers between two.

    Example:
        >>> _ticks(0, 23)
        [0.0, 5.0, 10.0, 15.0, 20.0]
    """
    rough = (high - low) / 5
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * (1 - 1e-9))
    first = math.ceil(low / step - 1e-9)
    return [round(number * step, 10) for number in range(first, math.floor(high / step + 1e-9) + 1)]


def _text(x: float, y: float, text: str, anchor: str) -> str:
    style = "fill: var(--muted); font-size: 12px"
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" style="{style}">{escape(text)}</text>'


def _runs(places: Sequence[tuple[float, float] | None]) -> list[list[tuple[float, float]]]:
    """Return the runs of places between those that are missing.

    Example:
        >>> _runs([None, (0, 1), (2, 3), None, (4, 5)])
        [[(0, 1), (2, 3)], [(4, 5)]]
    """
    runs: list[list[tuple[float, float]]] = [[]]
    for place in places:
        if place is None:
            runs.append([])
        else:
            runs[-1].append(place)
    return [run for run in runs if run]


def _polyline(run: Sequence[tuple[float, float]], colour: str) -> str:
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in run)
    if len(run) == 1:  # a line of one point is drawn by its round ends
        points = f"{points} {points}"
    style = f"fill: none; stroke: var(--{colour}); stroke-width: 2; stroke-linecap: round"
    return f'<polyline points="{points}" style="{style}"/>'


def _svg(parts: Sequence[str], label: str) -> str:
    head = f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(label)}">'
    return head + "".join(parts) + "</svg>"
