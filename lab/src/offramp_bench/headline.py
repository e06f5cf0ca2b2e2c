"""The figures of the README, made from the committed results: three numbers, and a table of what else one could do."""

from collections.abc import Mapping, Sequence
from typing import Any

from offramp_bench.page.results import TITLES
from offramp_bench.serving.networks import NETWORKS
from offramp_bench.tracks.contestants import CASCADE, SHIPPED
from offramp_bench.tracks.intervals import SEEDS
from offramp_bench.tracks.yardstick import FIGURES

__all__ = ["alternatives", "complete", "numbers"]

AT_HALF_A_POINT = FIGURES[1]
DISAGREEMENT = "0.05"
"""Guaranteed share of answers of the bill that is shown."""
TIME_SAVED = "docs/evidence/tables.md#whether-time-is-saved-offramp_benchruntime"

OTHERS = {
    "one threshold on linear exits": ("linear", "linear, grid"),
    "fewer stages and a new head": ("cut network", "cut network, grid"),
}
"""Alternatives on the tracks, by how people know them, and their contestants; the best of these counts."""


def complete(tracks: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tasks of the tracks that were measured with all seeds, in the order of the page.

    Args:
        tracks: Results of the tracks, by task.
    """
    return {name: tracks[name] for name in TITLES if name in tracks and len(tracks[name]["seeds"]) >= SEEDS}


def numbers(texts: Sequence[Mapping[str, Any]], int8: Mapping[str, Any], annotation: Mapping[str, Any]) -> str:
    """Return three figures: a text model, an image model, and a bill.

    Args:
        texts: Results of `offramp-bench check runtime`, the part `texts`.
        int8: Results of `offramp-bench check int8`.
        annotation: Results of `offramp-bench check annotate`.
    """
    level, safe = ({row["name"]: row for row in texts}[name] for name in ("level on tune", "guarantee"))
    images = int8["cascade"]["int8"]
    bill = annotation["banking77"]
    calls = bill["inputs"][DISAGREEMENT]["asked"]
    fewest, _, most = bill["inputs"][DISAGREEMENT]["asked_quantiles"]
    lines = [
        f"* **{_median(level, 64)} times the throughput** of MiniLM on Banking77 (77 intents) in batches of 64, "
        f"{_median(level, 1)} times one by one, at its accuracy ({_change(level)} points). With a guarantee of at most "
        f"{100 * safe['max_drop']:g} point lost: {_median(safe, 64)} and {_median(safe, 1)} times. "
        f"[Time saved]({TIME_SAVED})",
        f"* **{images['64']['speedup']:.1f} times the throughput** of ResNet-56 on CIFAR-10 in batches of 64 with "
        f"ResNet-20 in front, {images['1']['speedup']:.1f} times one by one, both sides in INT8; a guarantee of at "
        f"most {100 * NETWORKS['cascade'].max_drop:g} point lost. [Serving](docs/evidence/serving.md)",
        f"* **{100 * (1 - calls):.0f} % fewer calls** to an expensive model for {bill['rows']:,} texts of Banking77 "
        f"({100 * (1 - most):.0f} to {100 * (1 - fewest):.0f} %), with a guarantee that at most "
        f"{100 * float(DISAGREEMENT):g} % of the answers differ from its own. A tuned MiniLM stands in for the "
        "expensive model. [Annotation](docs/evidence/annotation.md)",
        "",
        "Speeds are of one CPU core, medians of runs in turns: the first from raw texts, the second without decoding "
        "images. Guarantees have 95 % confidence. Over HTTP the gain is smaller: [Serving](docs/evidence/serving.md).",
    ]
    return "\n".join(lines)


def alternatives(tasks: Mapping[str, Any], clock: Mapping[str, Any]) -> str:
    """Return what else one could do, measured: costs on the tracks, and times of networks.

    Args:
        tasks: Complete results of the tracks, by task.
        clock: Results of `offramp-bench check runtime`, the part `alternatives`.
    """
    rows = [
        "Compute needed to lose at most half a point of accuracy on test, as a share of the full network's "
        f"(means over {SEEDS} seeds; at most 10,000 training samples):",
        "",
        f"| network and data | `offramp.fit` | {' | '.join(OTHERS)} |",
        "|---" * (2 + len(OTHERS)) + "|",
    ]
    for name, task in tasks.items():
        costs = [_cost(task, (SHIPPED,)), *(_cost(task, others) for others in OTHERS.values())]
        rows.append(f"| {TITLES[name]} | {' | '.join(f'{100 * cost:.0f} %' for cost in costs)} |")
        if CASCADE in task["contestants"]:  # of CIFAR-10 alone
            cost = f"{100 * _cost(task, (CASCADE,)):.0f} %"
            rows.append(f"| {TITLES[name]} with ResNet-20 in front | {cost} | \N{EN DASH} | \N{EN DASH} |")
    nothing_lost = {name: float(task["contestants"][SHIPPED]["figures"][FIGURES[0]]) for name, task in tasks.items()}
    least, most = min(nothing_lost, key=nothing_lost.__getitem__), max(nothing_lost, key=nothing_lost.__getitem__)
    rows += [
        "",
        f"To lose nothing, `offramp.fit` needs {100 * nothing_lost[least]:.0f} % ({TITLES[least]}) to "
        f"{100 * nothing_lost[most]:.0f} % ({TITLES[most]}).",
    ]
    missing = [title for name, title in TITLES.items() if name not in tasks]
    if missing:
        rows += ["", f"Not measured yet: {'; '.join(missing)}."]
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


def _median(row: Mapping[str, Any], batch_size: int) -> str:
    return f"{row[f'speedup at {batch_size}']['median']:.1f}"


def _cost(task: Mapping[str, Any], names: tuple[str, ...]) -> float:
    return min(float(task["contestants"][name]["figures"][AT_HALF_A_POINT]) for name in names)


def _speed(row: Mapping[str, Any]) -> str:
    speed = row["speedup at 64"]
    return f"{speed['median']:.1f} ({speed['least']:.1f} to {speed['most']:.1f})"


def _change(row: Mapping[str, Any]) -> str:
    return f"{100 * row['change']:+.1f} ± {100 * row['half_width']:.1f}"
