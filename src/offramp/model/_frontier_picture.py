"""A picture of the frontier as SVG, without a library."""

import math
from collections.abc import Iterator
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from offramp.model._model import EarlyExitModel

__all__ = ["draw_frontier"]

WIDTH, HEIGHT = 640, 360
LEFT, RIGHT, TOP, BOTTOM = 62, 20, 20, 48
"""Margins of the axes."""

DEEPEST = 0.25
"""Accuracy below the best point's that the picture still shows: cheap points would press the rest together."""

INK, MUTED, LINE, BLUE = "#1b1f24", "#59636e", "#d5dae0", "#0072b2"
"""Colours, those of the report."""


def draw_frontier(model: "EarlyExitModel") -> str:
    """Draw accuracy against relative cost as SVG.

    Args:
        model: The model; its policy's points are drawn, and its current one is marked.
    """
    pairs = [(row["cost"], row["accuracy"]) for row in model.frontier.to_dicts()]
    now = (model.point.tune_metrics["cost"], model.point.tune_metrics["accuracy"])
    full = (1.0, model.full_accuracy)
    required = [accuracy for _, accuracy in (now, full)]  # shown however far below the best point they are
    top = max(accuracy for _, accuracy in [*pairs, now, full])
    bottom = max(min(accuracy for _, accuracy in [*pairs, now, full]), min(top - DEEPEST, *required))
    low, high = max(0.0, bottom - 0.05 * (top - bottom) - 0.002), min(1.0, top + 0.05 * (top - bottom) + 0.002)
    right = max(1.05, 1.05 * max(cost for cost, _ in [*pairs, now]))
    pairs = [pair for pair in pairs if pair[1] >= low]

    def place(cost: float, accuracy: float) -> tuple[float, float]:
        across, up = cost / right, (accuracy - low) / (high - low)
        return LEFT + across * (WIDTH - LEFT - RIGHT), HEIGHT - BOTTOM - up * (HEIGHT - TOP - BOTTOM)

    title = "Accuracy against relative cost on the tune split"
    parts = [f"<title>{title}</title>", f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>']
    for percent in _ticks(100 * low, 100 * high):
        y = place(0, percent / 100)[1]
        parts.append(f'<line x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}" stroke="{LINE}"/>')
        parts.append(_text(LEFT - 8, y + 4, f"{percent:g}", "end"))
    for cost in _ticks(0, right):
        parts.append(_text(place(cost, low)[0], HEIGHT - BOTTOM + 18, f"{cost:g}", "middle"))
    y = place(0, model.full_accuracy)[1]
    parts.append(
        f'<line x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}" stroke="{MUTED}" stroke-dasharray="5 4"/>'
    )
    parts.append(_text(LEFT + 6, y - 6 if y > TOP + 14 else y + 14, "full network", "start"))
    places = [place(*pair) for pair in pairs]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    parts.append(f'<polyline points="{line}" fill="none" stroke="{BLUE}" stroke-width="2"/>')
    parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5" fill="{BLUE}"/>' for x, y in places]
    x, y = place(*now)
    parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="8" fill="none" stroke="{INK}" stroke-width="2"/>')
    parts.append(_text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 10, "relative cost (circle: this artifact)", "middle"))
    label = _text(0, 0, "accuracy, %", "middle")
    parts.append(f'<g transform="translate(16 {(TOP + HEIGHT - BOTTOM) / 2:.0f}) rotate(-90)">{label}</g>')
    size = f'width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">{"".join(parts)}</svg>\n'


def _ticks(low: float, high: float) -> Iterator[float]:
    """Yield at most seven round numbers in a range.

    Example:
        >>> list(_ticks(0, 1.05)), list(_ticks(86.3, 90.4))
        ([0.0, 0.2, 0.4, 0.6, 0.8, 1.0], [87.0, 88.0, 89.0, 90.0])
    """
    power = 10.0 ** math.floor(math.log10(high - low))
    step = next(power * part for part in (0.1, 0.2, 0.5, 1, 2) if (high - low) / (power * part) <= 6)
    first = math.ceil(low / step)
    for count in range(first, math.floor(high / step) + 1):
        yield round(count * step, 10)


def _text(x: float, y: float, text: str, anchor: str) -> str:
    style = f'font-family="sans-serif" font-size="13" fill="{INK}"'
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" {style}>{escape(text)}</text>'
