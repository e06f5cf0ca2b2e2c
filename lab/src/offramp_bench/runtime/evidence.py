"""The section of docs/evidence/tables.md on the runtime, and its picture."""

from typing import Any

from offramp.report._canvas import Figure, in_style, write_labels
from offramp.report._palette import PALETTE

__all__ = ["TEXT_POINTS", "draw", "section"]

STYLES = {
    "offramp": ("offramp", "blue", "o"),
    "earlyon": ("earlyon 0.3.0", "purple", "x"),
    "": ("without exits; ResNet-56 where none is named", "ink", "s"),
}
"""Text in the legend, colour and mark of points, by the beginning of their names."""

SIZES = (1, 64)
"""Batch sizes of the panels."""

TEXT_POINTS = {
    "guarantee": "At most one point lost, with 95 % confidence (`max_drop=0.01`)",
    "level on tune": "The cheapest point that is level with the full network on the tune split",
}
"""Descriptions of the text network's points."""

WAYS = ("together", "one by one", "ONNX")
"""Endings of the names of earlyon's rows."""

SECTION = """## Whether time is saved: `offramp_bench.runtime`
One thread. Everything in a table was timed in turns in one run; figures are medians over the repeats, batch by batch,
ranges in `lab/results/runtime.json`. Runs differ by up to 10 % even when nothing else runs on the machine, which
is shared: shares of the ideal of ResNet-56 and of the cascade are medians of three runs. Networks have few exits:
ResNet-56 three (after its thirds), the cascade of ResNet-20 and ResNet-56 four, T2T-ViT-14 four, MiniLM three
(embeddings, first layer, end).

**Is it what the simulator says?** All 10,000 test images of CIFAR-10, five operating points (three thresholds, two of
gates), batches of 1, 7, 64 and 256; shuffled, cut at random, all points mixed in one batch. Samples that leave
elsewhere or are answered otherwise, of 10,000 in the worst cell, and how many of all those are farther than 1e-4 from a
policy's boundary:

{parity}

By features kept in half precision, as stores are by default: {flipped}.

**How much of what could be saved is saved?** Efficiency: the time of the stages alone that the samples need, over the
engine's. Stage times are the full network's at the same batch size, scaled to add up to the whole network's own time.
It may exceed 1: smaller batches can be faster a sample, and the engine drops padding of texts. Against Mul-Adds: the
full network's time by the Mul-Adds of the stages that samples need. Speed: over the full network; of the cascade, over
ResNet-56. "Passing": the extra time of a sample that leaves at no early exit. Thresholds are those that cost nearest to
what stands above the column, on test samples; what they answer does not matter here. T2T-ViT-14 at 256, three repeats,
was timed beside other work; two repeats on a quiet machine read 0.96, 0.93 and 0.96 in float32.

{efficiency}

**What a user feels.** CIFAR-10 with ResNet-56 and what could be used instead, on {count:,} images nothing was fitted
on. Change of accuracy in points with its 95 % half width; speed as multiples of the full network's, and percentiles of
the latency at batch 1 in multiples of the full network's median. INT8 was calibrated on 512 train images; operating
points are those of the float32 network. earlyon 0.3.0 has our networks, our exits' train images and its own trainer,
calibrators and batching (`lab/src/offramp_bench/earlyon_exits.py` says what was chosen). Of each set of its exits its
dearest and its cheapest point are shown. It lets a batch leave together or runs images one by one; its accuracy is that
of the way it ran. The cascade was asked for a cost of 0.45; that budget, and which stages keep an exit, were chosen
after test images had been measured, these among them.

![accuracy against speed](runtime.svg)

{alternatives}

{sentences}

The rows "offramp cascade" are of exits that an earlier default fitted. The cascade in INT8 is to be compared with
ResNet-56 in static INT8: over that it is {over_64:.1f} times as fast at batch 64 and {over_1:.1f} times at batch 1,
where another machine read 1.0.

MiniLM on Banking77 from raw texts, tokenising included, against the encoder itself as transformers runs it: the
shipped default, an exit after every stage. Exits are fitted on the train rows that the encoder was tuned on, points are
chosen on train rows it has not seen, accuracy is that of the official test rows.

{texts}

{bars}
"""


def section(results: dict[str, Any], bars: list[str]) -> str:
    """Return the section on the runtime.

    Args:
        results: Results of the benchmark.
        bars: Its bars as a table.
    """
    parity, alternatives = results["parity"], results["alternatives"]
    flips = [
        f"{network} {', '.join(map(str, points.values()))}"
        for network, points in parity["flipped by half precision"].items()
    ]
    speed_int8 = {
        size: _speed(alternatives["images"], "offramp cascade, ONNX INT8", size)
        / _speed(alternatives["images"], "ResNet-56, ONNX static INT8", size)
        for size in (1, 64)
    }
    return SECTION.format(
        parity="\n".join(_parity(parity["cells"])),
        flipped="; ".join(flips) + " of 10,000 at the five points",
        efficiency="\n".join(_efficiency(results["efficiency"])),
        count=alternatives["count"],
        alternatives="\n".join(_alternatives(alternatives["images"])),
        sentences="\n".join(_sentences({row["name"]: row for row in alternatives["images"]})),
        over_1=speed_int8[1],
        over_64=speed_int8[64],
        texts="\n".join(_texts(results["texts"])),
        bars="\n".join(bars),
    )


def _speed(rows: list[dict[str, Any]], name: str, batch_size: int) -> float:
    return float(next(row for row in rows if row["name"] == name)[f"speedup at {batch_size}"]["median"])


def _texts(rows: list[dict[str, Any]]) -> list[str]:
    lines = ["| point | cost on test | change | throughput at 64 (range) | at 1 (range) |", "|---|---|---|---|---|"]
    for row in rows:
        speeds = [row[f"speedup at {size}"] for size in (64, 1)]
        cells = [f"{speed['median']:.1f} x ({speed['least']:.1f} to {speed['most']:.1f})" for speed in speeds]
        lines.append(f"| {TEXT_POINTS[row['name']]} | {row['cost']:.2f} | {_change(row)} | {' | '.join(cells)} |")
    return lines


def _parity(cells: list[dict[str, Any]]) -> list[str]:
    rows = ["| network | backend | worst cell | far from a boundary | cells |", "|---|---|---|---|---|"]
    for network, backend in dict.fromkeys((cell["network"], cell["backend"]) for cell in cells):
        own = [cell for cell in cells if (cell["network"], cell["backend"]) == (network, backend)]
        worst, far = max(cell["differ"] for cell in own), sum(cell["far"] for cell in own)
        rows.append(f"| {network} | {backend} | {worst} | {far} | {len(own)} |")
    return rows


def _efficiency(results: dict[str, Any]) -> list[str]:
    costs = ("0.8", "0.6", "0.4")
    rows = [
        "| network | precision | batch | "
        + " | ".join(f"at {cost}: efficiency, Mul-Adds, speed" for cost in costs)
        + " | passing |",
        "|---|---|---|---|---|---|---|",
    ]
    for network, precisions in results.items():
        for precision, sizes in precisions.items():
            for size, cell in sizes.items():
                figures = [_cell(cell[f"at {cost}"]) for cost in costs]
                passing = f"{100 * cell['passing all exits']['median']:+.1f} %"
                rows.append(f"| {network} | {precision} | {size} | {' | '.join(figures)} | {passing} |")
    return rows


def _cell(row: dict[str, Any]) -> str:
    figures = (row[name]["median"] for name in ("efficiency", "against Mul-Adds", "speedup"))
    return "{:.2f}, {:.2f}, {:.2f} x".format(*figures)


def _alternatives(results: list[dict[str, Any]]) -> list[str]:
    rows = [
        "| | accuracy | change | throughput at 64 | at 1 | p50 | p95 | p99 |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in results:
        rows.append(
            f"| {row['name']} | {100 * row['accuracy']:.2f} | {_change(row)} | {row['speedup at 64']['median']:.2f} x "
            f"| {row['speedup at 1']['median']:.2f} x | {row['p50']:.2f} | {row['p95']:.2f} | {row['p99']:.2f} |"
        )
    return rows


def _sentences(rows: dict[str, dict[str, Any]]) -> list[str]:
    """Return sentences on when to use each alternative, with the figures of the table."""

    def speed(name: str) -> str:
        speeds = (rows[name][f"speedup at {size}"]["median"] for size in (1, 64))
        return "{:.2f} x at batch 1, {:.2f} x at 64".format(*speeds)

    def points(name: str) -> str:
        return f"{100 * rows[name]['change']:+.2f} points"

    rivals = {
        kind: [row for name, row in rows.items() if name.startswith("earlyon") and name.endswith(kind)] for kind in WAYS
    }
    rival = {kind: max((row["speedup at 64"]["median"] for row in own), default=0.0) for kind, own in rivals.items()}
    return [
        "When each of them wins:",
        f"* **A smaller network** is the simplest where its loss does not matter: ResNet-20 {speed('ResNet-20')}, "
        f"{points('ResNet-20')}. There is no dial.",
        f"* **bfloat16** ({speed('ResNet-56, bfloat16')}) needs units for it in the processor, and batches; no data. "
        f"It adds to exits: {speed('offramp cascade, bfloat16')}.",
        f"* **ONNX Runtime** ({speed('ResNet-56, ONNX float32')}) is for few samples at a time, where torch spends its "
        f"time between operations. It adds to exits: {speed('offramp cascade, ONNX')}.",
        f"* **Static INT8** ({speed('ResNet-56, ONNX static INT8')}, {points('ResNet-56, ONNX static INT8')}) needs "
        f"samples to calibrate with. It adds to exits: {speed('offramp cascade, ONNX INT8')}, "
        f"{points('offramp cascade, ONNX INT8')}.",
        f"* **Dynamic INT8** ({speed('ResNet-56, ONNX dynamic INT8')}) is for networks of matrix products.",
        f"* **earlyon** at batch 64, its fastest points: {rival['together']:.2f} x where batches leave together, "
        f"{rival['one by one']:.2f} x one by one, {rival['ONNX']:.2f} x one by one in ONNX Runtime.",
        f"* **offramp's cascade** ({speed('offramp cascade')}, {points('offramp cascade')}) is for keeping the "
        "accuracy, at "
        "any batch size, with a dial to turn later.",
    ]


def _change(row: dict[str, Any]) -> str:
    return "" if row["change"] is None else f"{100 * row['change']:+.2f} ± {100 * row['half_width']:.2f}"


@in_style
def draw(results: dict[str, Any]) -> Figure:
    """Draw accuracy against speed, at batch 1 and at 64."""
    figure = Figure(figsize=(9.3, 8.6), layout="constrained")
    panels = figure.subplots(2, 1)
    rows = results["alternatives"]["images"]
    full = 100 * rows[0]["accuracy"]
    for axes in panels:
        axes.axhline(full, color=PALETTE["muted"].light, linewidth=0.8)
        axes.set(xscale="log", xlim=(0.4, 14), ylim=(92.0, 94.24))
        axes.set_xticks([0.5, 1, 2, 4, 8], ["0.5", "1", "2", "4", "8"])
        axes.minorticks_off()
    places = {size: [_place(row, size) for row in rows] for size in SIZES}
    for axes, size in zip(panels, SIZES, strict=True):
        axes.set_xlabel(f"speed at batch {size}, full ResNet-56 = 1")
        for row, place in zip(rows, places[size], strict=True):
            _, colour, mark = STYLES[_kind(row)]
            axes.plot(*place, marker=mark, color=PALETTE[colour].light, linestyle="")
        axes.set_ylabel("accuracy on test, %")
    for label, colour, mark in STYLES.values():
        panels[0].plot([], [], marker=mark, color=PALETTE[colour].light, linestyle="", label=label)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(STYLES))
    for axes, size in zip(panels, SIZES, strict=True):
        # Of two near points, the slower gets its label first.
        labelled_points = sorted(
            (*place, _short_name(row["name"]))
            for row, place in zip(rows, places[size], strict=True)
            if _kind(row) != "earlyon"
        )
        crowd = [(1.03**step, full) for step in range(-30, 90)]
        write_labels(figure, axes, labelled_points, markers=places[size], crowd=crowd)
    return figure


def _kind(row: dict[str, Any]) -> str:
    """Return the key of `STYLES` that a row's name begins with."""
    return next(kind for kind in STYLES if row["name"].startswith(kind))


def _place(row: dict[str, Any], size: int) -> tuple[float, float]:
    """Return speed at a batch size, and accuracy in percent."""
    return row[f"speedup at {size}"]["median"], 100 * row["accuracy"]


def _short_name(name: str) -> str:
    """Return the label of a point: what differs from ResNet-56.

    Example:
        >>> _short_name("ResNet-56, ONNX static INT8"), _short_name("offramp cascade"), _short_name("ResNet-20")
        ('ONNX static INT8', 'cascade', 'ResNet-20')
    """
    return name.removeprefix("offramp ").removeprefix("ResNet-56, ").removesuffix(" float32")
