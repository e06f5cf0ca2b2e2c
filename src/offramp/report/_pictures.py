"""Findings as figures, with captions."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from offramp.features import Source
from offramp.model._evaluation import Measured
from offramp.report import _tables as tables
from offramp.report._answers import ClassChange, Sample
from offramp.report._canvas import WIDTH, Axes, Figure, canvas, in_style, short, write_labels
from offramp.report._findings import Findings
from offramp.report._inputs import Image, look_up
from offramp.report._palette import PALETTE, SERIES, policy_colours
from offramp.report._words import percent

__all__ = [
    "Picture",
    "accuracy_against_cost",
    "accuracy_by_exit",
    "change_by_class",
    "contact_sheet",
    "draw_findings",
    "draw_samples",
    "evidence_over_time",
    "exits_used",
    "reliability_diagram",
]

_WORST, _BEST = 15, 5  # classes shown if there are more than both
_LOWEST, _HIGHEST = 1e-3, 1e9  # limits of the axis of wealth

_INK, _MUTED, _GREY, _BLUE, _ORANGE = (PALETTE[name].light for name in ("ink", "muted", "grey", "blue", "orange"))


@in_style
def accuracy_against_cost(findings: Findings) -> Figure:
    """Draw the curves of all policies, the chosen point and the alternatives."""
    bottom = _lowest_shown(findings)
    cut = "" if bottom is None else " (the low end is cut)"
    figure, axes = canvas(
        "Accuracy against cost", f"cost relative to the full network ({findings.cost_kind})", f"accuracy, %{cut}"
    )
    chosen, full = findings.chosen, findings.full
    axes.axhline(100 * full.accuracy, color=_MUTED, linewidth=1, linestyle=(0, (4, 3)))
    crowd = [(x, 100 * full.accuracy) for x in np.linspace(0, 1.3, 100)]
    for policy, colour in policy_colours(findings.curves).items():
        crowd += _draw_curve(axes, findings.curves[policy], colour.light, policy)
    exits = [row for row in findings.alternatives if row.kind == "exit"]
    networks = [row for row in findings.alternatives if row.kind == "network"]
    always: dict[str, Any] = {"color": _MUTED, "markersize": 5.5, "markeredgewidth": 1.4, "label": "one exit for all"}
    for group, marker, look in ((exits, "x", always), (networks, "s", {"color": _INK, "markersize": 5})):
        if group:
            costs, accuracies = [row.relative_cost for row in group], [100 * row.accuracy for row in group]
            axes.plot(costs, accuracies, marker, **look)
    axes.plot(
        chosen.relative_cost,
        100 * chosen.accuracy,
        "o",
        markersize=11,
        fillstyle="none",
        color=_INK,
        mew=1.8,
        label="chosen",
    )
    axes.set_xlim(-0.03, None)  # room for the marker of a cost near 0
    axes.set_ylim(bottom, None)
    figure.legend(
        loc="outside lower center", ncols=4, frameon=False, handlelength=1.0, columnspacing=0.9, handletextpad=0.5
    )
    every = -(-len(exits) // 10)
    named = [(row.relative_cost, row.accuracy, short(row.name)) for row in networks]
    named += [(row.relative_cost, row.accuracy, row.name.removeprefix("exit ")) for row in exits[::every]]
    shown = [(x, 100 * y, text) for x, y, text in named if 100 * y >= axes.get_ylim()[0]]
    markers = [(row.relative_cost, 100 * row.accuracy) for row in findings.alternatives]
    markers.append((chosen.relative_cost, 100 * chosen.accuracy))
    write_labels(figure, axes, shown, markers=markers, crowd=crowd)
    return figure


def _draw_curve(axes: Axes, curve: Sequence[Measured], colour: str, label: str) -> Iterator[tuple[float, float]]:
    """Draw a policy's curve with its band; return points along it, which labels should not cover."""
    points = sorted(curve, key=lambda point: point.relative_cost)
    costs, accuracies = [point.relative_cost for point in points], [100 * point.accuracy for point in points]
    band = 100 * np.array([point.accuracy_interval for point in points])
    axes.fill_between(costs, band[:, 0], band[:, 1], color=colour, alpha=0.16, linewidth=0)
    axes.plot(costs, accuracies, color=colour, linewidth=1.6, marker="o", markersize=2.6, label=label)
    steps, places = np.arange(0, len(points) - 0.99, 0.1), np.arange(len(points))
    return zip(np.interp(steps, places, costs), np.interp(steps, places, accuracies), strict=True)


def _lowest_shown(findings: Findings) -> float | None:
    """Return the start of the accuracy axis in percent, if cheap and inaccurate points would compress the rest."""
    points = [point.accuracy for curve in findings.curves.values() for point in curve]
    points += [row.accuracy for row in findings.alternatives]
    top, chosen = max(points), findings.chosen.accuracy_interval[0]
    wanted = min(top - 0.15, chosen - 0.03)
    return 100 * wanted if min(points) < wanted - 0.05 else None


@in_style
def exits_used(findings: Findings) -> Figure:
    """Draw the share of samples that leave at each exit."""
    figure, axes = canvas("Exits taken", "exit", "share of the samples, %")
    places = _exit_axis(axes, findings)
    shares = [100 * use.share for use in findings.exits]
    axes.bar(places, shares, width=0.72, color=_BLUE)
    if len(shares) <= 12:
        for place_, share in zip(places, shares, strict=True):
            axes.annotate(
                f"{share:.0f}" if share >= 1 or share == 0 else "<1",
                (place_, share),
                (0, 2),
                textcoords="offset points",
                ha="center",
                fontsize=9.5,
            )
    axes.grid(axis="x", visible=False)
    axes.set_ylim(0, 1.12 * max(shares))
    return figure


@in_style
def accuracy_by_exit(findings: Findings) -> Figure:
    """Draw the accuracy of each exit on the samples that leave there and on all, and of the full network."""
    figure, axes = canvas("Accuracy by exit", "exit", "accuracy, %")
    places = np.array(_exit_axis(axes, findings))
    aside = 0.16
    axes.plot(
        places,
        [100 * use.everyone for use in findings.exits],
        "D",
        color=_GREY,
        markersize=4.5,
        label="exit, on all samples",
    )
    for place_, use in zip(places, findings.exits, strict=True):
        if use.accuracy is None or use.accuracy_interval is None or use.full is None:
            continue
        axes.plot([place_ - aside] * 2, [100 * end for end in use.accuracy_interval], color=_BLUE, linewidth=1.3)
        axes.plot(place_ - aside, 100 * use.accuracy, "o", color=_BLUE, markersize=5.5)
        axes.plot(place_ + aside, 100 * use.full, "_", color=_ORANGE, markersize=9, markeredgewidth=2.4)
    axes.plot([], [], "o", color=_BLUE, markersize=5.5, label="exit, on samples that leave there")
    axes.plot([], [], "_", color=_ORANGE, markersize=9, markeredgewidth=2.4, label="full network, on the same samples")
    axes.grid(axis="x", visible=False)
    figure.legend(loc="outside lower center", ncols=1, frameon=False, handlelength=1.2, labelspacing=0.25)
    return figure


def _exit_axis(axes: Axes, findings: Findings) -> list[int]:
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
    figure, axes = canvas(f"Confidence: off by {off} on average", "", "accuracy, %")
    bins = findings.reliability
    confidence, accuracy = [100 * entry.confidence for entry in bins], [100 * entry.accuracy for entry in bins]
    lowest = max(0.0, min(*confidence, *accuracy) - 3)
    axes.plot([lowest, 100], [lowest, 100], color=_MUTED, linewidth=1, linestyle=(0, (4, 3)))
    axes.vlines(confidence, confidence, accuracy, color=_ORANGE, linewidth=1.6)
    axes.plot(confidence, accuracy, "o", color=_BLUE, markersize=5, clip_on=False)
    axes.set_xlim(lowest, 101)
    axes.set_ylim(lowest, 101)
    fewest, most = min(entry.samples for entry in bins), max(entry.samples for entry in bins)
    counts = str(most) if fewest == most else f"{fewest} to {most}"
    axes.set_xlabel(f"mean confidence, % ({len(bins)} bins of {counts} answers)")
    return figure


@in_style
def change_by_class(findings: Findings) -> Figure:
    """Draw the change of accuracy of each class."""
    rows, left_out = _extremes(findings.by_class)
    title = (
        f"Change by class: {_WORST} worst and {_BEST} best of {len(rows) + left_out}" if left_out else "Change by class"
    )
    figure, axes = canvas(title, "change of accuracy, points", "", height=1.1 + 0.2 * max(4, len(rows)))
    for place_, row in enumerate(rows):
        assert row.change is not None
        assert row.change_interval is not None
        colour = _ORANGE if row.change < 0 else _BLUE
        axes.barh(place_, 100 * row.change, height=0.66, color=colour, alpha=0.85)
        axes.plot([100 * end for end in row.change_interval], [place_] * 2, color=_INK, linewidth=1.1)
    axes.axvline(0, color=_MUTED, linewidth=1)
    if left_out:
        axes.axhline(_WORST - 0.5, color=_MUTED, linewidth=1, linestyle=(0, (1, 2)))
    axes.set_yticks(range(len(rows)), [short(row.name) for row in rows])
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.grid(axis="y", visible=False)
    return figure


def _extremes(changes: Sequence[ClassChange]) -> tuple[list[ClassChange], int]:
    """Return the classes to show, and the number of other classes with samples."""
    known = [row for row in changes if row.samples]
    if len(known) <= _WORST + _BEST:
        return known, 0
    return [*known[:_WORST], *known[-_BEST:]], len(known) - _WORST - _BEST


@in_style
def contact_sheet(samples: Sequence[Sample], images: Sequence[Image], classes: Sequence[str], *, title: str) -> Figure:
    """Draw images with their answers; wrong answers in orange, with a frame and the true class."""
    columns, lines = 6, 0.27  # images per row, and inches for two lines of text below each
    rows = -(-len(samples) // columns)
    figure, axes = canvas(title, "", "", height=0.3 + rows * (WIDTH / columns + lines))
    cell = 1 + lines * columns / WIDTH  # an image and the lines below it, in widths of an image
    for index, (sample, image) in enumerate(zip(samples, images, strict=True)):
        left, top = index % columns, index // columns * cell
        wide, high = (0.92 * side / max(image.shape[:2]) for side in (image.shape[1], image.shape[0]))
        x, y = left + (1 - wide) / 2, top + (0.92 - high) / 2
        axes.imshow(image, extent=(x, x + wide, y + high, y), interpolation="none")
        wrong = sample.predicted != sample.label
        if wrong:
            axes.plot([x, x + wide, x + wide, x, x], [y, y, y + high, y + high, y], color=_ORANGE, linewidth=2)
        answer = short(classes[sample.predicted], 9)
        answer += f"\nis {short(classes[sample.label], 7)}" if wrong else ""
        axes.text(
            left + 0.5,
            top + 0.95,
            answer,
            ha="center",
            va="top",
            fontsize=8,
            linespacing=1.0,
            color=_ORANGE if wrong else _INK,
        )
    axes.set(xlim=(0, columns), ylim=(rows * cell, 0), aspect="equal")
    axes.axis("off")
    return figure


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
        "accuracy-against-cost",
        f"Costs are {findings.cost_kind}. Left is cheaper, up is more accurate; bands are 95 % intervals. The dashed "
        "line is the full network. A cross or square above a curve is a simpler alternative with higher accuracy.",
        accuracy_against_cost(findings),
    )
    yield Picture(
        "exits-used",
        "Share of samples that leave at each exit; earlier exits are cheaper. Exits are numbered from 0.",
        exits_used(findings),
    )
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


def draw_samples(findings: Findings, source: Source | None) -> Iterator[Picture | str]:
    """Yield figures or tables of the samples that leave first and last, or a sentence on why there are none."""
    if source is None:
        yield "<p>No samples are shown: the report was written without their source.</p>"
        return
    groups = (("first", "Samples that leave first", findings.first), ("last", "Samples that leave last", findings.last))
    for name, title, group in groups:
        shown = look_up(source, group) if group else []
        if shown is None:
            yield "<p>No samples are shown: these inputs are neither images nor texts.</p>"
            return
        if not shown:
            yield f"<p>All samples leave at exit {findings.first[0].exit}; none leaves later.</p>"
        elif isinstance(shown[0], str):
            texts = [value for value in shown if isinstance(value, str)]
            yield tables.texts(title, group, texts, findings.classes)
        else:
            images = [value for value in shown if not isinstance(value, str)]
            yield _sheet(name, title, group, images, findings)


def _sheet(name: str, title: str, samples: Sequence[Sample], images: Sequence[Image], findings: Findings) -> Picture:
    exits = sorted({sample.exit for sample in samples})
    where = f"exit {exits[0]}" if len(exits) == 1 else f"exits {exits[0]} to {exits[-1]}"
    right = sum(sample.predicted == sample.label for sample in samples)
    caption = (
        f"The first {len(samples)} of these rows, at {where}, not selected by hand; {right} are right. The answer is "
        "below each image; wrong answers are framed, with the true class."
    )
    return Picture(f"leave-{name}", caption, contact_sheet(samples, images, findings.classes, title=title))
