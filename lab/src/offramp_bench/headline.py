"""The figures of the README, made from the committed results: three numbers, and a table of what else one could do."""

from collections.abc import Mapping
from typing import Any

from offramp_bench.page.results import TITLES
from offramp_bench.tracks.contestants import SHIPPED
from offramp_bench.tracks.intervals import SEEDS
from offramp_bench.tracks.yardstick import FIGURES

__all__ = ["alternatives", "complete", "numbers"]

AT_HALF_A_POINT = FIGURES[1]

OTHERS = {
    "one threshold on linear exits": ("linear",),
    "fewer stages and a new head": ("cut network", "cut network, grid"),
}
"""Alternatives on the tracks, by how people know them, and their contestants; the best of these counts."""


def complete(tracks: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tasks of the tracks that were measured with all seeds, in the order of the page.

    Args:
        tracks: Results of the tracks, by task.
    """
    return {name: tracks[name] for name in TITLES if name in tracks and len(tracks[name]["seeds"]) >= SEEDS}


def numbers(int8: Mapping[str, Any], annotation: Mapping[str, Any]) -> str:
    """Return three figures: a text model, an image model, and a bill.

    Args:
        int8: Results of `offramp-bench check int8`.
        annotation: Results of `offramp-bench check annotate`.
    """
    texts, images = (int8[name]["int8"] for name in ("banking77", "cascade"))
    bill = annotation["banking77"]
    asked = bill["inputs"]["0.05"]["asked"]
    low, _, high = bill["inputs"]["0.05"]["asked_quantiles"]
    lines = [
        f"* **{_times(texts, 64)} the throughput** of MiniLM on Banking77 (77 intents) in batches of 64, "
        f"{_times(texts, 1)} one by one; a guarantee of at most 2 points of accuracy lost. "
        "[Serving](docs/evidence/serving.md)",
        f"* **{_times(images, 64)} the throughput** of ResNet-56 on CIFAR-10 in batches of 64 with ResNet-20 in front, "
        f"{_times(images, 1)} one by one; a guarantee of at most 1 point lost. [Serving](docs/evidence/serving.md)",
        f"* **{100 * asked:.0f} % of the calls** to an expensive model for {bill['rows']:,} texts of Banking77 "
        f"({100 * low:.0f} to {100 * high:.0f} %, learning included); a guarantee that at most 5 % of the answers "
        "differ from its own. [Annotation](docs/evidence/annotation.md)",
        "",
        "Speeds are of one CPU core, INT8 on both sides, medians of rounds in turns; guarantees have 95 % confidence.",
    ]
    return "\n".join(lines)


def alternatives(tracks: Mapping[str, Any], clock: Mapping[str, Any]) -> str:
    """Return what else one could do, measured: costs on the tracks, and times of networks.

    Args:
        tracks: Results of the tracks, by task.
        clock: Results of `offramp-bench check runtime`, the part `alternatives`.
    """
    tasks = complete(tracks)
    rows = [
        "Compute needed to lose at most half a point of accuracy on test, as a share of the full network's "
        "(means over five seeds; at most 10,000 training samples):",
        "",
        f"| network and data | `offramp.fit` | {' | '.join(OTHERS)} |",
        "|---" * (2 + len(OTHERS)) + "|",
    ]
    for name, task in tasks.items():
        costs = [_cost(task, (SHIPPED,)), *(_cost(task, others) for others in OTHERS.values())]
        rows.append(f"| {TITLES[name]} | {' | '.join(f'{100 * cost:.0f} %' for cost in costs)} |")
    missing = [title for name, title in TITLES.items() if name not in tasks]
    if missing:
        rows += ["", f"Not measured yet with this default: {'; '.join(missing)}."]
    images = {row["name"]: row for row in clock["images"]}
    quantized, small, both = (
        images[name] for name in ("ResNet-56, ONNX static INT8", "ResNet-20", "offramp cascade, ONNX INT8")
    )
    rows += [
        "",
        "On the clock, against ResNet-56 in float32 on CIFAR-10 in batches of 64 (exits of an earlier default):",
        "",
        "| instead of the full network | times as fast | change of accuracy, points |",
        "|---|---|---|",
        f"| quantize it to INT8 | {_speed(quantized)} | {_change(quantized)} |",
        f"| take a smaller one, ResNet-20 | {_speed(small)} | {_change(small)} |",
        f"| `offramp`: ResNet-20 in front, exits, INT8 | {_speed(both)} | {_change(both)} |",
        "",
        "Distilling into a new small network was not measured. If you have such a network, put it in front.",
    ]
    return "\n".join(rows)


def _times(speeds: Mapping[str, Any], batch: int) -> str:
    speed = speeds[str(batch)]
    return f"{speed['speedup']:.1f} times"


def _cost(task: Mapping[str, Any], names: tuple[str, ...]) -> float:
    return min(float(task["contestants"][name]["figures"][AT_HALF_A_POINT]) for name in names)


def _speed(row: Mapping[str, Any]) -> str:
    speed = row["speedup at 64"]
    return f"{speed['median']:.1f} ({speed['least']:.1f} to {speed['most']:.1f})"


def _change(row: Mapping[str, Any]) -> str:
    return f"{100 * row['change']:+.1f} ± {100 * row['half_width']:.1f}"
