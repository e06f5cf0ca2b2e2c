"""What happens at each exit, what prediction sets cover, how training converges."""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from offramp.report._canvas import Figure, canvas, in_style, short
from offramp.report._palette import PALETTE, SERIES
from offramp.report._words import change, cost, percent
from offramp_bench.page.card import Picture
from offramp_bench.page.results import Decomposition, Task

__all__ = ["calibration_by_depth", "convergence", "coverage", "decomposition"]

Floats = npt.NDArray[np.float64]

_MUTED, _GREY = (PALETTE[name].light for name in ("muted", "grey"))
_BLUE, _ORANGE, _GREEN, _PURPLE = (PALETTE[name].light for name in SERIES)

_KINDS = {"image": _BLUE, "text": _ORANGE, "graph": _GREEN}
_VARIANTS = {
    "general": ("one for all", _BLUE),
    "per_exit": ("one an exit, from all", _ORANGE),
    "strict": ("one an exit, from its own", _GREEN),
    "gated": ("the same, or one for all if few", _PURPLE),
}
_LARGEST = 22  # points across the circle of an exit that everybody leaves at
_SMALLEST = 3


def decomposition(task: Task, index: int) -> Picture:
    """Who leaves where at one cost weight, and how right they are.

    Args:
        task: The task.
        index: Which of its cost weights.
    """
    one = task.decomposition[index]
    caption = (
        f"Cost weight {one.cost_weight:.2g}: {percent(one.accuracy)} at {cost(one.cost)} of the cost (dotted). The "
        "larger a circle, the more leave there."
    )
    return Picture(f"leave-{task.name}-{index}", caption, _decomposed(task, one), _exits_told(task, one))


def _exits_told(task: Task, one: Decomposition) -> Mapping[str, str]:
    told = {}
    for place, exit in enumerate(one.exits):
        if exit.accuracy is not None:
            share = percent(exit.leave / task.samples)
            told[f"exit-{place}"] = f"exit {place}: {exit.leave:,} leave ({share}), {percent(exit.accuracy)} right"
    return told


@in_style
def _decomposed(task: Task, one: Decomposition) -> Figure:
    figure, axes = canvas(f"{short(task.name, 22)}, cost weight {one.cost_weight:.2g}", "exit", "accuracy, %")
    places = range(len(one.exits))
    axes.axhline(100 * one.accuracy, color=_MUTED, linewidth=1, linestyle=(0, (1, 2)))
    everyone = [100 * exit.accuracy_of_all for exit in one.exits]
    axes.plot(places, everyone, "D", color=_GREY, markersize=4.5, label="exit, on all")
    leaving = sum(exit.leave for exit in one.exits)
    for place, exit in enumerate(one.exits):
        if exit.accuracy is None or exit.accuracy_at_end is None:
            continue
        axes.plot(
            place,
            100 * exit.accuracy,
            "o",
            color=_BLUE,
            alpha=0.75,
            markersize=max(_SMALLEST, _LARGEST * (exit.leave / leaving) ** 0.5),
            markeredgewidth=0,
            gid=f"exit-{place}",
        )
        axes.plot(place, 100 * exit.accuracy_at_end, "_", color=_ORANGE, markersize=10, markeredgewidth=2)
    axes.plot([], [], "o", color=_BLUE, markersize=5.5, label="on those who leave")
    axes.plot([], [], "_", color=_ORANGE, markersize=9, markeredgewidth=2, label="full network, on those")
    every = -(-len(one.exits) // 12)
    axes.set_xticks(range(0, len(one.exits), every))
    axes.set_xlim(-0.7, len(one.exits) - 0.3)
    axes.grid(axis="x", visible=False)
    axes.margins(y=0.1)
    figure.legend(loc="outside lower center", ncols=2, frameon=False, handlelength=1.2, columnspacing=1.0)
    return figure


def calibration_by_depth(tasks: Mapping[str, Task]) -> Picture:
    """Calibration error of those who leave at an exit, against its depth, a line a task.

    Args:
        tasks: Those with a decomposition.
    """
    titles = {f"task-{index}": name for index, name in enumerate(tasks)}
    caption = (
        "Each line is a task, a mean over cost weights; its name shows where the pointer rests. Exits that few leave "
        "at have no figure."
    )
    return Picture("depth", caption, _depths(tasks), titles)


@in_style
def _depths(tasks: Mapping[str, Task]) -> Figure:
    figure, axes = canvas("Calibration by depth", "depth of the exit, %", "calibration error, %")
    named: set[str] = set()
    for index, task in enumerate(tasks.values()):
        rows: dict[int, list[float]] = {}
        for one in task.decomposition:
            for place, exit in enumerate(one.exits):
                if exit.ece is not None:
                    rows.setdefault(place, []).append(100 * exit.ece)
        last = max(1, len(task.decomposition[0].exits) - 1)
        depths = [100 * place / last for place in sorted(rows)]
        errors = [float(np.mean(rows[place])) for place in sorted(rows)]
        label = "_" if task.kind in named else task.kind
        named.add(task.kind)
        colour = _KINDS.get(task.kind, _PURPLE)
        axes.plot(
            depths, errors, color=colour, linewidth=1.5, marker="o", markersize=3.2, label=label, gid=f"task-{index}"
        )
    axes.set_ylim(0, None)
    figure.legend(loc="outside lower center", ncols=3, frameon=False, handlelength=1.4)
    return figure


def coverage(task: Task) -> Picture | None:
    """How far the coverage of each conformal variant is from what was asked for; None if no variant is known.

    Args:
        task: The task.
    """
    above = _above_asked(task)
    if not above:
        return None
    label, most = max(
        ((_VARIANTS[variant][0], float(one)) for variant, row in above.items() for one in row),
        key=lambda one: abs(one[1]),
    )
    caption = f"{task.name}. Farthest from what was asked for: {label}, by {change(most / 100)} points."
    return Picture(f"coverage-{task.name}", caption, _covered(task, above))


def _above_asked(task: Task) -> dict[str, Floats]:
    """Coverage above what was asked for, in points, of each variant, a mean over cost weights."""
    found = {}
    for variant in _VARIANTS:
        lines = [one for one in task.decomposition if variant in one.covered]
        if lines:
            found[variant] = 100 * np.mean([np.subtract(one.covered[variant], one.requested) for one in lines], axis=0)
    return found


@in_style
def _covered(task: Task, above: Mapping[str, Floats]) -> Figure:
    figure, axes = canvas(short(task.name, 28), "coverage asked for, %", "coverage above it, points")
    axes.axhline(0, color=_MUTED, linewidth=1, linestyle=(0, (4, 3)))
    asked = 100 * np.array(task.decomposition[0].requested)
    for variant, row in above.items():
        label, colour = _VARIANTS[variant]
        axes.plot(asked, row, color=colour, linewidth=1.5, marker="o", markersize=3.2, label=label)
    widest = max(1.0, *(float(np.abs(row).max()) for row in above.values()))
    axes.set_ylim(-1.15 * widest, 1.15 * widest)
    figure.legend(loc="outside lower center", ncols=1, frameon=False, handlelength=1.4, labelspacing=0.25)
    return figure


def convergence(task: Task) -> Picture:
    """Priced loss on tune by epoch of joint training, of the weighted loss and of the full gradient.

    Args:
        task: One that has both.
    """
    weighted, full = (task.priced_losses[name] for name in ("weighted", "full"))
    caption = f"{task.name}. Lowest: {min(weighted):.3f} with the paper's loss, {min(full):.3f} with the full gradient."
    return Picture(f"convergence-{task.name}", caption, _converged(task))


@in_style
def _converged(task: Task) -> Figure:
    figure, axes = canvas(short(task.name, 28), "epoch of joint training", "priced loss on tune")
    for name, label, colour in (("weighted", "JEI-DNN", _ORANGE), ("full", "full gradient", _PURPLE)):
        losses = task.priced_losses[name]
        axes.plot(
            range(1, len(losses) + 1), losses, color=colour, linewidth=1.6, marker="o", markersize=3.2, label=label
        )
    figure.legend(loc="outside lower center", ncols=2, frameon=False, handlelength=1.4)
    return figure
