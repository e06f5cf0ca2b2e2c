"""Findings as pictures, one function each."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from offramp.frontier import Measured
from offramp.report.answers import ClassChange, Sample
from offramp.report.canvas import WIDTH, Axes, Figure, canvas, in_style, short, write_labels
from offramp.report.findings import Findings
from offramp.report.inputs import Image
from offramp.report.palette import PALETTE, policy_colours
from offramp.report.words import percent

__all__ = [
    "accuracy_against_cost",
    "accuracy_by_exit",
    "change_by_class",
    "contact_sheet",
    "exits_used",
    "reliability_diagram",
]

_WORST, _BEST = 15, 5  # classes shown where there are more than both

_INK, _MUTED, _GREY, _BLUE, _ORANGE = (PALETTE[name].light for name in ("ink", "muted", "grey", "blue", "orange"))


@in_style
def accuracy_against_cost(findings: Findings) -> Figure:
    """The curves of all policies, the chosen point, and what one could run instead."""
    bottom = _lowest_shown(findings)
    cut = "" if bottom is None else " (the low end is cut)"
    figure, axes = canvas("Accuracy against cost", "cost, relative to the full network", f"accuracy, %{cut}")
    chosen, full = findings.chosen, findings.full
    axes.axhline(100 * full.accuracy, color=_MUTED, linewidth=1, linestyle=(0, (4, 3)))
    crowd = [(x, 100 * full.accuracy) for x in np.linspace(0, 1.3, 100)]
    for policy, colour in policy_colours(findings.curves).items():
        crowd += _draw_curve(axes, findings.curves[policy], colour.light, policy)
    exits = [one for one in findings.alternatives if one.kind == "exit"]
    networks = [one for one in findings.alternatives if one.kind == "network"]
    always: dict[str, Any] = {"color": _MUTED, "markersize": 5.5, "markeredgewidth": 1.4, "label": "one exit for all"}
    for group, marker, look in ((exits, "x", always), (networks, "s", {"color": _INK, "markersize": 5})):
        if group:
            costs, accuracies = [one.relative_cost for one in group], [100 * one.accuracy for one in group]
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
    axes.set_xlim(-0.03, None)  # room for the marker of something that costs next to nothing
    axes.set_ylim(bottom, None)
    figure.legend(
        loc="outside lower center", ncols=4, frameon=False, handlelength=1.0, columnspacing=0.9, handletextpad=0.5
    )
    every = -(-len(exits) // 10)
    named = [(one.relative_cost, one.accuracy, short(one.name)) for one in networks]
    named += [(one.relative_cost, one.accuracy, one.name.removeprefix("exit ")) for one in exits[::every]]
    shown = [(x, 100 * y, text) for x, y, text in named if 100 * y >= axes.get_ylim()[0]]
    markers = [(one.relative_cost, 100 * one.accuracy) for one in findings.alternatives]
    markers.append((chosen.relative_cost, 100 * chosen.accuracy))
    write_labels(figure, axes, shown, markers=markers, crowd=crowd)
    return figure


def _draw_curve(axes: Axes, curve: Sequence[Measured], colour: str, label: str) -> Iterator[tuple[float, float]]:
    """One policy's curve with its band; gives points all along it, which labels had better not cover."""
    points = sorted(curve, key=lambda one: one.relative_cost)
    costs, accuracies = [one.relative_cost for one in points], [100 * one.accuracy for one in points]
    band = 100 * np.array([one.accuracy_interval for one in points])
    axes.fill_between(costs, band[:, 0], band[:, 1], color=colour, alpha=0.16, linewidth=0)
    axes.plot(costs, accuracies, color=colour, linewidth=1.6, marker="o", markersize=2.6, label=label)
    steps, places = np.arange(0, len(points) - 0.99, 0.1), np.arange(len(points))
    return zip(np.interp(steps, places, costs), np.interp(steps, places, accuracies), strict=True)


def _lowest_shown(findings: Findings) -> float | None:
    """Where the axis of accuracy starts, in percent, if cheap and poor points would squeeze the rest together."""
    points = [one.accuracy for curve in findings.curves.values() for one in curve]
    points += [one.accuracy for one in findings.alternatives]
    top, chosen = max(points), findings.chosen.accuracy_interval[0]
    wanted = min(top - 0.15, chosen - 0.03)
    return 100 * wanted if min(points) < wanted - 0.05 else None


@in_style
def exits_used(findings: Findings) -> Figure:
    """How many samples leave at each exit."""
    figure, axes = canvas("Where samples leave", "exit", "share of the samples, %")
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
    """Whether those who leave at an exit could, and what the exit and the full network do otherwise."""
    figure, axes = canvas("Accuracy by exit", "exit", "accuracy, %")
    places = np.array(_exit_axis(axes, findings))
    aside = 0.16
    axes.plot(
        places, [100 * use.everyone for use in findings.exits], "D", color=_GREY, markersize=4.5, label="exit, on all"
    )
    for place_, use in zip(places, findings.exits, strict=True):
        if use.accuracy is None or use.accuracy_interval is None or use.full is None:
            continue
        axes.plot([place_ - aside] * 2, [100 * end for end in use.accuracy_interval], color=_BLUE, linewidth=1.3)
        axes.plot(place_ - aside, 100 * use.accuracy, "o", color=_BLUE, markersize=5.5)
        axes.plot(place_ + aside, 100 * use.full, "_", color=_ORANGE, markersize=9, markeredgewidth=2.4)
    axes.plot([], [], "o", color=_BLUE, markersize=5.5, label="exit, on those who leave there")
    axes.plot([], [], "_", color=_ORANGE, markersize=9, markeredgewidth=2.4, label="full network, on the same")
    axes.grid(axis="x", visible=False)
    figure.legend(loc="outside lower center", ncols=1, frameon=False, handlelength=1.2, labelspacing=0.25)
    return figure


def _exit_axis(axes: Axes, findings: Findings) -> list[int]:
    """Places of the exits in force, named by number, with a line where the next network of a cascade begins."""
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
    """Whether answers given with 90 % confidence are right 90 % of the time."""
    off = percent(findings.chosen.calibration_error)
    figure, axes = canvas(f"Confidence: off by {off} on average", "", "accuracy, %")
    bins = findings.reliability
    confidence, accuracy = [100 * one.confidence for one in bins], [100 * one.accuracy for one in bins]
    lowest = max(0.0, min(*confidence, *accuracy) - 3)
    axes.plot([lowest, 100], [lowest, 100], color=_MUTED, linewidth=1, linestyle=(0, (4, 3)))
    axes.vlines(confidence, confidence, accuracy, color=_ORANGE, linewidth=1.6)
    axes.plot(confidence, accuracy, "o", color=_BLUE, markersize=5, clip_on=False)
    axes.set_xlim(lowest, 101)
    axes.set_ylim(lowest, 101)
    fewest, most = min(one.samples for one in bins), max(one.samples for one in bins)
    counts = str(most) if fewest == most else f"{fewest} to {most}"
    axes.set_xlabel(f"mean confidence, % ({len(bins)} bins of {counts} answers)")
    return figure


@in_style
def change_by_class(findings: Findings) -> Figure:
    """Which classes pay for the saving, and which gain."""
    rows, left_out = _extremes(findings.by_class)
    title = f"Who pays: {_WORST} worst and {_BEST} best of {len(rows) + left_out}" if left_out else "Who pays"
    figure, axes = canvas(title, "change of accuracy, points", "", height=1.1 + 0.2 * max(4, len(rows)))
    for place_, one in enumerate(rows):
        assert one.change is not None
        assert one.change_interval is not None
        colour = _ORANGE if one.change < 0 else _BLUE
        axes.barh(place_, 100 * one.change, height=0.66, color=colour, alpha=0.85)
        axes.plot([100 * end for end in one.change_interval], [place_] * 2, color=_INK, linewidth=1.1)
    axes.axvline(0, color=_MUTED, linewidth=1)
    if left_out:
        axes.axhline(_WORST - 0.5, color=_MUTED, linewidth=1, linestyle=(0, (1, 2)))
    axes.set_yticks(range(len(rows)), [short(one.name) for one in rows])
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.grid(axis="y", visible=False)
    return figure


def _extremes(changes: Sequence[ClassChange]) -> tuple[list[ClassChange], int]:
    """The classes to show, and how many with samples are not among them."""
    known = [one for one in changes if one.samples]
    if len(known) <= _WORST + _BEST:
        return known, 0
    return [*known[:_WORST], *known[-_BEST:]], len(known) - _WORST - _BEST


@in_style
def contact_sheet(samples: Sequence[Sample], images: Sequence[Image], classes: Sequence[str], *, title: str) -> Figure:
    """Images with their answers; wrong answers in orange, with a frame and the true class."""
    columns, lines = 6, 0.27  # images a row, and inches for two lines of text below each
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
