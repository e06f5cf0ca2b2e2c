"""Measure the time that exits save.

    python -m offramp_bench.runtime [--check] [--only parity efficiency alternatives texts] [--into FOLDER]

Parity: the engine against the simulator on all 10,000 test images of CIFAR-10. Efficiency: the time of the engine
against that of the stages that the samples need. Alternatives: accuracy, latency and throughput on images, compared
with other ways to save time. Texts: the shipped default on MiniLM, from raw texts. Everything runs on one thread; times
are measured in turns and given as medians over repeats with their range. The results of each part are saved in FOLDER,
so that you can run each by itself when the machine is idle.
"""

import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

import offramp_bench.torchvision_ops  # noqa: F401 (before transformers loads a model)
from offramp.runtime import BACKENDS
from offramp.runtime._eager import EagerBackend
from offramp_bench.bars import Bar, parser, report, say
from offramp_bench.runtime.alternatives import alternatives, measure_images, measure_texts
from offramp_bench.runtime.efficiency import efficiency, full_network
from offramp_bench.runtime.networks import CACHE, COSTS, FRONTIERS, NETWORKS, all_images, held_out_rows
from offramp_bench.runtime.parity import ALLOWED, count_half_precision_flips, parity, simulate_network

PARTS = ["parity", "efficiency", "alternatives", "texts"]

EXACT = ("eager", "onnx")
"""Backends in single precision."""

LEAST = {"float32": {1: 0.85, 64: 0.95, 256: 0.95}, "bfloat16": {1: 0.75, 64: 0.85, 256: 0.85}}
"""Least efficiency at each batch size."""

AS_ACCURATE = 0.001
"""Rivals whose accuracy is lower by at most this count as equally accurate."""

MOST_PASSING = {1: 0.08, 64: 0.03}
"""Largest time that exits may add for samples that leave at none of them, as a share, at each batch size."""

COUNTS = {1: 60, 64: 256, 256: 512}
"""Samples timed at each batch size."""

HEAVY = {1: 20, 64: 64, 256: 256}
"""The same for T2T-ViT-14, where a sample takes fifty times as long."""


def parities() -> dict[str, Any]:
    """Measure the parity of every exact backend."""
    rows, flips = [], {}
    for network in FRONTIERS:
        simulation = simulate_network(network)
        flips[network] = count_half_precision_flips(simulation)
        frontier = simulation.frontier
        parts = frontier.backbone, frontier.pooling, frontier.exits
        for name in EXACT if network == "ResNet-56" else EXACT[:1]:
            rows += parity(name, BACKENDS.get(name)(*parts, all_images()[:2]), simulation)
    return {"cells": rows, "flipped by half precision": flips}


def efficiencies(name: str, repeats: int) -> dict[str, Any]:
    """Measure the efficiency of one network at every batch size, in both precisions."""
    cells: dict[str, Any] = {}
    network, heavy = NETWORKS[name](), name == "T2T-ViT-14"
    for precision, dtype in (("float32", None), ("bfloat16", torch.bfloat16)):
        backend = EagerBackend(network.backbone, network.pooling, network.exits, dtype=dtype)
        full = full_network(network.backbone, dtype)
        for size, count in (HEAVY if heavy else COUNTS).items():
            turns = min(repeats, 3) if heavy else repeats
            cell = efficiency(network, backend, full, size, count=count, repeats=turns)
            cells.setdefault(precision, {})[size] = cell
            efficiencies_at = [round(cell[f"at {cost}"]["efficiency"]["median"], 3) for cost in COSTS]
            passing = cell["passing all exits"]["median"]
            say(f"{name}, {precision}, batch {size}: {efficiencies_at}, passing all exits {100 * passing:+.1f} %")
    return cells


def image_alternatives(repeats: int) -> dict[str, Any]:
    """Measure all alternatives on images."""
    return {"count": len(held_out_rows()), "images": measure_images(alternatives(), repeats=repeats)}


def bars(parts: dict[str, Any]) -> list[Bar]:
    """Return the bars of the parts that were run."""
    checks = []
    if "parity" in parts:
        cells = parts["parity"]["cells"]
        for backend in EXACT:
            own = [cell for cell in cells if cell["backend"] == backend]
            checks.append(
                Bar(f"{backend}: differences in the worst cell", max(cell["differ"] for cell in own), ALLOWED)
            )
            checks.append(Bar(f"{backend}: of them far from any boundary", sum(cell["far"] for cell in own), 0))
    for name, precisions in parts.get("efficiency", {}).items():
        for precision, sizes in precisions.items():
            for size, cell in sizes.items():
                least = LEAST[precision][int(size)]
                for cost in COSTS:
                    lost = 1 - cell[f"at {cost}"]["efficiency"]["median"]
                    checks.append(Bar(f"{name}, {precision}, batch {size}, at {cost}: lost", lost, 1 - least))
                if precision == "float32" and int(size) in MOST_PASSING:
                    passing = cell["passing all exits"]["median"]
                    checks.append(Bar(f"{name}, batch {size}: passing all exits", passing, MOST_PASSING[int(size)]))
    if "alternatives" in parts:
        checks += _alternative_bars(parts["alternatives"])
    if "texts" in parts:
        text = {row["name"]: row for row in parts["texts"]}
        checks += [
            Bar("MiniLM, guarantee: points lost", -100 * text["guarantee"]["change"], 1.0),
            Bar(
                "MiniLM, level on tune: time at 64, of the full network's", _relative_time(text["level on tune"]), 1 / 3
            ),
        ]
    return checks


def _alternative_bars(results: dict[str, Any]) -> list[Bar]:
    rows = {row["name"]: row for row in results["images"]}
    cascade = rows["offramp cascade"]
    return [
        Bar("cascade: points lost", -100 * cascade["change"], 0.0),
        Bar("cascade: time at 64, of the full network's", 1 / cascade["speedup at 64"]["median"], 1 / 1.8),
        Bar("cascade: time at 1, of the full network's", 1 / cascade["speedup at 1"]["median"], 1 / 1.5),
        Bar("cascade: time at 64, of earlyon's as accurate", _time_ratio(cascade, rows, graphs=False), 1 / 1.5),
        Bar("the same, both in ONNX Runtime", _time_ratio(rows["offramp cascade, ONNX"], rows, graphs=True), 1 / 1.5),
    ]


def _relative_time(row: dict[str, Any]) -> float:
    return float(1 / row["speedup at 64"]["median"])


def _time_ratio(ours: dict[str, Any], rows: dict[str, Any], *, graphs: bool) -> float:
    """Return our time at batch 64 over that of the fastest equally accurate alternative of earlyon; NaN without one."""
    rivals = [
        row["speedup at 64"]["median"]
        for name, row in rows.items()
        if name.startswith("earlyon") and name.endswith("ONNX") == graphs
        if row["accuracy"] >= ours["accuracy"] - AS_ACCURATE
    ]
    return float(max(rivals, default=float("nan")) / ours["speedup at 64"]["median"])


def main() -> int:
    options = parser(__doc__)
    options.add_argument("--only", nargs="+", default=PARTS, help="beginnings of names of parts")
    options.add_argument("--repeats", type=int, default=9, help="of every timing")
    options.add_argument("--into", type=Path, default=CACHE / "parts", help="where parts are kept")
    arguments = options.parse_args()
    torch.set_num_threads(1)
    measurements: dict[str, Callable[[], Any]] = {
        "parity": parities,
        **{f"efficiency of {name}": partial(efficiencies, name, arguments.repeats) for name in NETWORKS},
        "alternatives": lambda: image_alternatives(arguments.repeats),
        "texts": lambda: measure_texts(repeats=arguments.repeats),
    }
    arguments.into.mkdir(parents=True, exist_ok=True)
    files = {name: arguments.into / f"{name}.json" for name in measurements}
    for name in measurements:
        if any(name.startswith(prefix) for prefix in arguments.only):
            files[name].write_text(json.dumps(measurements[name]()))
    kept = {name: json.loads(file.read_text()) for name, file in files.items() if file.exists()}
    parts = {name: results for name, results in kept.items() if name in PARTS}
    parts["efficiency"] = {name: kept[f"efficiency of {name}"] for name in NETWORKS if f"efficiency of {name}" in kept}
    return report(parts, bars(parts), check=arguments.check)


if __name__ == "__main__":
    sys.exit(main())
