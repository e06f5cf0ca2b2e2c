"""Details of the chosen point as figures, with captions, and the figure of a monitor."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from offramp.report._answers import ClassChange
from offramp.report._canvas import Axes, Figure, canvas, in_style, short
from offramp.report._findings import Findings
from offramp.report._palette import PALETTE, SERIES, policy_colours
from offramp.report._words import percent

__all__ = [
    "Picture",
    "accuracy_by_exit",
    "change_by_class",
    "draw_findings",
    "evidence_over_time",
    "reliability_diagram",
]

_WIDTH = 4.1  # inches: on a phone, a point of text is more than a pixel
_WORST, _BEST = 15, 5  # classes shown if there are more than both
_LOWEST, _HIGHEST = 1e-3, 1e9  # limits of the axis of wealth

_INK, _MUTED, _GREY, _ORANGE = (PALETTE[name].light for name in ("ink", "muted", "grey", "orange"))


def _colour(findings: Findings) -> str:
    """Return the colour of the chosen point's policy."""
    return policy_colours(findings.curves)[findings.policy].light


@in_style
def accuracy_by_exit(findings: Findings) -> Figure:
    """Draw the accuracy of each exit on the samples that leave there and on all, and of the full network."""
    figure, axes = canvas("Accuracy by exit", "exit", "accuracy, %", width=_WIDTH)
    positions = np.array(_draw_exit_axis(axes, findings))
    aside, colour = 0.16, _colour(findings)
    axes.plot(
        positions,
        [100 * use.everyone for use in findings.exits],
        "D",
        color=_GREY,
        markersize=4.5,
        label="exit, on all samples",
    )
    for position, use in zip(positions, findings.exits, strict=True):
        if use.accuracy is None or use.accuracy_interval is None or use.full is None:
            continue
        axes.plot([position - aside] * 2, [100 * end for end in use.accuracy_interval], color=colour, linewidth=1.3)
        axes.plot(position - aside, 100 * use.accuracy, "o", color=colour, markersize=5.5)
        axes.plot(position + aside, 100 * use.full, "_", color=_INK, markersize=9, markeredgewidth=2.4)
    axes.plot([], [], "o", color=colour, markersize=5.5, label="exit, on samples that leave there")
    axes.plot([], [], "_", color=_INK, markersize=9, markeredgewidth=2.4, label="full network, on the same samples")
    axes.grid(axis="x", visible=False)
    figure.legend(loc="outside lower center", ncols=1, frameon=False, handlelength=1.2, labelspacing=0.25)
    return figure


def _draw_exit_axis(axes: Axes, findings: Findings) -> list[int]:
    """Label the axis with the active exits, with a line before each next network of a cascade; return positions."""
    uses = findings.exits
    every = -(-len(uses) // 12)
    axes.set_xticks(range(0, len(uses), every), [str(use.exit) for use in uses[::every]])
    axes.set_xlim(-0.6, len(uses) - 0.4)
    starts = [index for index, use in enumerate(uses) if index and use.network != uses[index - 1].network]
    for start in starts:
        axes.axvline(start - 0.5, color=_MUTED, linewidth=1, linestyle=(0, (1, 2)))
    if starts:
        names = [short(uses[start].network, 24 // (len(starts) + 1) + 4) for start in (0, *starts)]
        axes.set_xlabel("exit of " + " | ".join(names))
    return list(range(len(uses)))


@in_style
def reliability_diagram(findings: Findings) -> Figure:
    """Draw accuracy against confidence."""
    off = percent(findings.chosen.calibration_error)
    figure, axes = canvas(f"Confidence: off by {off} on average", "", "accuracy, %", width=_WIDTH)
    bins = findings.reliability
    confidence, accuracy = [100 * entry.confidence for entry in bins], [100 * entry.accuracy for entry in bins]
    lowest = max(0.0, min(*confidence, *accuracy) - 3)
    axes.plot([lowest, 100], [lowest, 100], color=_MUTED, linewidth=1, linestyle=(0, (4, 3)))
    axes.vlines(confidence, confidence, accuracy, color=_MUTED, linewidth=1.2)
    axes.plot(confidence, accuracy, "o", color=_colour(findings), markersize=5, clip_on=False)
    axes.set_xlim(lowest, 101)
    axes.set_ylim(lowest, 101)
    fewest, most = min(entry.samples for entry in bins), max(entry.samples for entry in bins)
    counts = str(most) if fewest == most else f"{fewest} to {most}"
    axes.set_xlabel(f"mean confidence, % (of {counts} answers)")
    return figure


@in_style
def change_by_class(findings: Findings) -> Figure:
    """Draw the change of accuracy of each class."""
    rows, left_out = _extremes(findings.by_class)
    title = (
        f"Change by class: {_WORST} worst, {_BEST} best of {len(rows) + left_out}" if left_out else "Change by class"
    )
    figure, axes = canvas(title, "change of accuracy, points", "", height=1.1 + 0.2 * max(4, len(rows)), width=_WIDTH)
    for position, row in enumerate(rows):
        assert row.change is not None
        assert row.change_interval is not None
        colour = _ORANGE if row.change < 0 else _colour(findings)
        axes.barh(position, 100 * row.change, height=0.66, color=colour, alpha=0.85)
        axes.plot([100 * end for end in row.change_interval], [position] * 2, color=_INK, linewidth=1.1)
    axes.axvline(0, color=_MUTED, linewidth=1)
    if left_out:
        axes.axhline(_WORST - 0.5, color=_MUTED, linewidth=1, linestyle=(0, (1, 2)))
    axes.set_yticks(range(len(rows)), [short(row.name) for row in rows])
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.grid(axis="y", visible=False)
    return figure


def _extremes(changes: Sequence[ClassChange]) -> tuple[list[ClassChange], int]:
    """Return the classes to show, and the number of other classes with samples."""
    rows = [row for row in changes if row.samples]
    if len(rows) <= _WORST + _BEST:
        return rows, 0
    return [*rows[:_WORST], *rows[-_BEST:]], len(rows) - _WORST - _BEST


@in_style
def evidence_over_time(counts: Sequence[int], curves: Mapping[str, Sequence[float]], *, needed: float) -> Figure:
    """Draw the wealth of a monitor's tests over time.

    Args:
        counts: `T` numbers of samples.
        curves: `T` values of wealth by name of the test.
        needed: The wealth at which a test gives an alarm.
    """
    figure, axes = canvas("Evidence of a change", "samples of traffic", "wealth of the test")
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")  # not as formulas, which the style does not support
    axes.axhline(needed, color=PALETTE["muted"].light, linewidth=1, linestyle=(0, (4, 3)), label="alarm")
    for (name, wealth), colour in zip(curves.items(), SERIES, strict=False):
        shown = np.clip(np.asarray(wealth, dtype=np.float64), _LOWEST, _HIGHEST)
        axes.plot(counts, shown, color=PALETTE[colour].light, linewidth=1.6, label=name)
    axes.set_ylim(_LOWEST, max(10 * needed, *(min(max(wealth, default=1.0), _HIGHEST) for wealth in curves.values())))
    figure.legend(loc="outside lower center", ncols=4, frameon=False, handlelength=1.0, columnspacing=0.9)
    return figure


@dataclass(frozen=True)
class Picture:
    """A figure of the report."""

    name: str
    """Name of its files and prefix of its ids."""
    caption: str
    """Explanation below it."""
    figure: Figure
    """The figure, in light colours."""


def draw_findings(findings: Findings) -> Iterator[Picture]:
    """Yield the figures of the findings."""
    yield Picture(
        "accuracy-by-exit",
        "A circle well above its diamond: easy samples leave there, as intended. A bar above its circle: the full "
        "network is more accurate on these samples.",
        accuracy_by_exit(findings),
    )
    yield Picture(
        "reliability",
        "On the dashed line, answers with 90 % confidence are right 90 % of the time; below it the network is "
        "overconfident, above it underconfident. A perfectly calibrated network would be off by "
        f"{percent(findings.calibration_floor)} by chance.",
        reliability_diagram(findings),
    )
    yield Picture(
        "change-by-class",
        "Left: classes that lose against the full network; right: classes that gain. A thin line that crosses zero may "
        "be chance, and of many classes some are off zero by chance.",
        change_by_class(findings),
    )
