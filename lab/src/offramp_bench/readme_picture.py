"""The picture of the README: an input that leaves early, beside accuracy against cost on a text and an image task."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from offramp.report._palette import PALETTE
from offramp_bench.page.results import TITLES
from offramp_bench.places import ROOT
from offramp_bench.tracks.contestants import SHIPPED

__all__ = ["NARROW", "PICTURE", "draw"]

PICTURE = ROOT / "docs" / "assets" / "readme.svg"
NARROW = ROOT / "docs" / "assets" / "readme-narrow.svg"
"""The same picture for phones: the charts are below the network."""

THRESHOLD = "linear, grid"
"""Contestant that the default is drawn beside: one threshold on linear exits, with tuned settings."""

STAGES = 4
"""Stages of the network that is drawn."""

Chart = tuple[int, int, int, int]
"""Left, top, width and height of a chart."""

WIDE: tuple[tuple[int, int], tuple[Chart, Chart]] = (980, 338), ((452, 78, 220, 180), (730, 78, 220, 180))
"""Width and height of the picture, and its charts."""
STACKED: tuple[tuple[int, int], tuple[Chart, Chart]] = (410, 924), ((66, 372, 310, 160), (66, 682, 310, 160))
"""The same of the narrow picture."""

INK, MUTED, LINE, BLUE, GOLD = (PALETTE[name].light for name in ("ink", "muted", "line", "blue", "gold"))


def draw(tracks: Mapping[str, Any], tasks: Sequence[str], *, narrow: bool = False) -> str:
    """Return the picture as SVG.

    Args:
        tracks: Results of the tracks, by task.
        tasks: Two tasks whose curves are drawn.
        narrow: Draw the charts below the network, not beside it.
    """
    (width, height), charts = STACKED if narrow else WIDE
    parts = [_network()]
    for place, name in zip(charts, tasks, strict=True):
        parts.append(_chart(place, tracks[name]))
    title = "An input that is easy leaves the network at an early exit; accuracy against cost on two tasks"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        'font-family="system-ui, -apple-system, Segoe UI, Helvetica, Arial, sans-serif" font-size="13" role="img">\n'
        f"<title>{title}</title>\n"
        f'<rect width="{width}" height="{height}" rx="8" fill="#ffffff"/>\n' + "\n".join(parts) + "\n</svg>\n"
    )


def _network() -> str:
    """Draw stages in a row, an exit below each, and two inputs on their way."""
    lines = [_text(22, 34, "Your network, frozen, with small exits", weight=600, size=15)]
    left, step, top, box, side = 68, 88, 92, 58, 46
    lines.append(_text(20, top + side / 2 + 4, "input"))
    for stage in range(STAGES):
        x = left + stage * step
        is_last = stage == STAGES - 1
        fill = MUTED if not is_last else INK
        lines.append(f'<rect x="{x}" y="{top}" width="{box}" height="{side}" rx="5" fill="{fill}"/>')
        label = "stage" if not is_last else "head"
        lines.append(_text(x + box / 2, top + side / 2 + 4, label, fill="#ffffff", anchor="middle"))
        if not is_last:
            middle = x + box / 2
            lines.append(f'<path d="M{x + box} {top + side / 2}h{step - box}" stroke="{LINE}" stroke-width="3"/>')
            lines.append(f'<path d="M{middle} {top + side}v34" stroke="{LINE}" stroke-width="3"/>')
            lines.append(f'<circle cx="{middle}" cy="{top + side + 48}" r="15" fill="{BLUE}"/>')
            lines.append(_text(middle, top + side + 52, "exit", fill="#ffffff", anchor="middle", size=11))
    easy, hard = left + box / 2, left + (STAGES - 1) * step + box / 2
    end = top + side + 96
    lines.append(_arrow(f"M{easy} {top + side + 64}V{end}", BLUE))
    lines.append(_text(easy, end + 22, "easy input:", fill=BLUE, anchor="middle", weight=600))
    lines.append(_text(easy, end + 39, "answered here", fill=BLUE, anchor="middle"))
    lines.append(_arrow(f"M{hard} {top + side}V{end}", INK))
    lines.append(_text(hard, end + 22, "hard input:", fill=INK, anchor="middle", weight=600))
    lines.append(_text(hard, end + 39, "full network", fill=INK, anchor="middle"))
    return "\n".join(lines)


def _chart(place: tuple[int, int, int, int], results: Mapping[str, Any]) -> str:
    """Draw the default's curve, one threshold's curve and the full network of one task."""
    left, top, width, height = place
    full = float(results["full accuracy"])
    curves = {name: results["contestants"][name]["curve"] for name in (THRESHOLD, SHIPPED)}
    lowest = max(0.0, full - 0.2)

    def x(cost: float) -> float:
        return left + width * cost

    def y(accuracy: float) -> float:
        return top + height * (1 - (accuracy - lowest) / (full + 0.02 - lowest))

    dataset, network = TITLES[results["task"]].split(", ", 1)
    lines = [_text(left, top - 44, dataset, weight=600, size=15)]
    lines.append(_text(left, top - 24, f"accuracy, {network}", fill=MUTED))
    for share in (0.0, 0.05, 0.1, 0.15, 0.2):
        level = full - share
        lines.append(f'<path d="M{left} {y(level):.1f}h{width}" stroke="{LINE}"/>')
        lines.append(_text(left - 6, y(level) + 4, f"{100 * level:.0f} %", fill=MUTED, anchor="end", size=11))
    for cost in (0.0, 0.5, 1.0):
        lines.append(_text(x(cost), top + height + 18, f"{100 * cost:.0f} %", fill=MUTED, anchor="middle", size=11))
    lines.append(_text(left + width / 2, top + height + 38, "compute", fill=MUTED, anchor="middle"))
    for name, colour, dashes in ((THRESHOLD, GOLD, ' stroke-dasharray="5 4"'), (SHIPPED, BLUE, "")):
        points = " ".join(f"{x(cost):.1f},{y(value):.1f}" for cost, value in curves[name] if value >= lowest)
        lines.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2.5"{dashes}/>')
    lines.append(f'<circle cx="{x(1):.1f}" cy="{y(full):.1f}" r="5" fill="{INK}"/>')
    lines.append(_text(left + width, y(full) - 10, "full network", anchor="end", size=12))
    below = top + height + 60
    lines.append(f'<path d="M{left} {below - 4}h18" stroke="{BLUE}" stroke-width="2.5"/>')
    lines.append(_text(left + 24, below, "offramp.fit", size=12))
    lines.append(f'<path d="M{left + 104} {below - 4}h18" stroke="{GOLD}" stroke-width="2.5" stroke-dasharray="5 4"/>')
    lines.append(_text(left + 128, below, "one threshold", size=12))
    return "\n".join(lines)


def _arrow(path: str, colour: str) -> str:
    end_x, end_y = path.split()[0][1:], path.rpartition("V")[2]
    head = f"M{float(end_x) - 6} {float(end_y) - 8}L{end_x} {end_y}L{float(end_x) + 6} {float(end_y) - 8}"
    return f'<path d="{path}{head}" fill="none" stroke="{colour}" stroke-width="2.5"/>'


def _text(
    x: float, y: float, text: str, *, fill: str = INK, anchor: str = "start", weight: int = 400, size: int = 13
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" fill="{fill}" text-anchor="{anchor}" font-weight="{weight}" '
        f'font-size="{size}">{escape(text)}</text>'
    )
