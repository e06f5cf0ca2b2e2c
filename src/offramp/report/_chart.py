"""The chart of accuracy against cost, in which a marker moves along the frontier."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from offramp.model._evaluation import Measured
from offramp.report._canvas import Axes, Figure, canvas, find_positions, in_style, short, use_log_costs, write_labels
from offramp.report._findings import Findings
from offramp.report._palette import PALETTE, policy_colours

__all__ = ["CHOSEN", "NARROW", "SHOWN", "WIDE", "Chart", "accuracy_against_cost"]

WIDE, NARROW = (8.4, 5.2), (3.7, 4.2)
"""Inches: beside the drawing of the network, and on a phone, where a point of text is about a pixel."""

CHOSEN, SHOWN = "chosen", "shown"
"""Ids of the markers: of the chosen point, and of the point that the slider shows."""

_LOG_BELOW = 0.1  # relative cost: where points are cheaper, a linear axis would have them all at its left end

_INK, _PAPER, _GREY = (PALETTE[name].light for name in ("ink", "paper", "grey"))


@dataclass(frozen=True)
class Chart:
    """A chart, and the positions of its marker."""

    figure: Figure
    """The figure, in light colours."""
    positions: tuple[tuple[float, float], ...]
    """Position of each point of the frontier in its SVG."""


@in_style
def accuracy_against_cost(findings: Findings, size: tuple[float, float] = WIDE) -> Chart:
    """Draw the curves of all policies, the chosen point and the alternatives.

    Args:
        findings: The findings.
        size: Width and height in inches.
    """
    bottom = _lowest_shown(findings)
    cut = "" if bottom is None else " (the low end is cut)"
    figure, axes = canvas(
        "Accuracy against cost",
        f"relative cost ({findings.cost_kind})",
        f"accuracy, %{cut}",
        width=size[0],
        height=size[1],
    )
    chosen, full = findings.chosen, findings.full
    frontier = [(entry.measured.relative_cost, 100 * entry.measured.accuracy) for entry in findings.frontier]
    marker = (chosen.relative_cost, 100 * chosen.accuracy)
    costs = [cost for cost, _ in frontier] + [row.relative_cost for row in findings.alternatives]
    most = 1.06 * max(1.0, *costs)
    cheapest = min(costs)
    if 0 < cheapest < _LOG_BELOW:
        use_log_costs(axes, least=0.8 * cheapest, most=1.2 * most)
    else:
        axes.set_xlim(-0.03, most)  # room for the marker of a cost near 0
    dashed: dict[str, Any] = {"color": _INK, "linewidth": 1, "linestyle": (0, (4, 3))}
    axes.axhline(100 * full.accuracy, label="full network", **dashed)
    crowd = [(x, 100 * full.accuracy) for x in np.geomspace(max(cheapest, 0.01), most, 100)]
    colours = policy_colours(findings.curves)
    for policy, colour in colours.items():
        crowd += _draw_curve(axes, findings.curves[policy], colour.light, policy, band=policy == findings.policy)
    exits = [row for row in findings.alternatives if row.kind == "exit"]
    networks = [row for row in findings.alternatives if row.kind == "network"]
    always: dict[str, Any] = {"color": _GREY, "markersize": 5.5, "markeredgewidth": 1.4, "label": "one exit for all"}
    for group, symbol, look in ((exits, "x", always), (networks, "s", {"color": _INK, "markersize": 5})):
        if group:
            axes.plot([row.relative_cost for row in group], [100 * row.accuracy for row in group], symbol, **look)
    ring: dict[str, Any] = {"fillstyle": "none", "color": _INK, "mew": 1.8, "label": CHOSEN, "gid": CHOSEN}
    axes.plot(*marker, "o", markersize=13, **ring)
    dot: dict[str, Any] = {"color": colours[findings.policy].light, "mec": _PAPER, "mew": 1.2, "gid": SHOWN}
    axes.plot(*marker, "o", markersize=9.5, clip_on=False, **dot)
    axes.set_ylim(bottom, None)
    columns = 6 if size == WIDE else 2
    figure.legend(
        loc="outside lower center", ncols=columns, frameon=False, handlelength=1.2, columnspacing=1, handletextpad=0.5
    )
    every = -(-len(exits) // 10)
    named = [(row.relative_cost, row.accuracy, short(row.name)) for row in networks]
    named += [
        (row.relative_cost, row.accuracy, row.name if size == WIDE else row.name.removeprefix("exit "))
        for row in exits[::every]
    ]
    labels = [(x, 100 * y, text) for x, y, text in named if 100 * y >= axes.get_ylim()[0]]
    others = [(row.relative_cost, 100 * row.accuracy) for row in findings.alternatives]
    write_labels(figure, axes, labels, markers=[*others, marker], crowd=[*crowd, *frontier])
    return Chart(figure, tuple(find_positions(figure, axes, frontier)))


def _draw_curve(
    axes: Axes, curve: Sequence[Measured], colour: str, label: str, *, band: bool
) -> Iterator[tuple[float, float]]:
    """Draw a policy's curve and, if asked, its band; return points along it, which labels should not cover."""
    points = sorted(curve, key=lambda point: point.relative_cost)
    costs, accuracies = [point.relative_cost for point in points], [100 * point.accuracy for point in points]
    if band:
        ends = 100 * np.array([point.accuracy_interval for point in points])
        axes.fill_between(costs, ends[:, 0], ends[:, 1], color=colour, alpha=0.16, linewidth=0)
    axes.plot(costs, accuracies, color=colour, linewidth=1.6, marker="o", markersize=2.6, label=label)
    steps, indices = np.arange(0, len(points) - 0.99, 0.1), np.arange(len(points))
    return zip(np.interp(steps, indices, costs), np.interp(steps, indices, accuracies), strict=True)


def _lowest_shown(findings: Findings) -> float | None:
    """Return the start of the accuracy axis in percent, if cheap and inaccurate points would compress the rest."""
    points = [point.accuracy for curve in findings.curves.values() for point in curve]
    points += [row.accuracy for row in findings.alternatives]
    top, chosen = max(points), findings.chosen.accuracy_interval[0]
    frontier = min(entry.measured.accuracy for entry in findings.frontier)
    lowest = min(top - 0.15, chosen - 0.03, frontier - 0.02)
    return 100 * lowest if min(points) < lowest - 0.05 else None
