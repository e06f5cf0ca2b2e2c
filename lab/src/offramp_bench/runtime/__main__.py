"""Whether the time is really saved.

    python -m offramp_bench.runtime [--check] [--only parity efficiency alternatives texts] [--into FOLDER]

Parity: the engine against the simulator on all 10,000 test images of CIFAR-10. Efficiency: the engine against the full
stages that the samples need. Alternatives: accuracy, latency and throughput of images beside what could be used
instead. Texts: the shipped default on MiniLM, from raw texts. One thread; times are compared in turns, medians of
repeats with their range. Parts are kept in FOLDER, so that each may be run by itself when the machine is quiet.
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
from offramp_bench.runtime.alternatives import alternatives, measured, texts
from offramp_bench.runtime.efficiency import efficiency, full_network
from offramp_bench.runtime.networks import CACHE, COSTS, FRONTIERS, NETWORKS, all_images, held_out_rows
from offramp_bench.runtime.parity import ALLOWED, expected, flipped_by_half, parity

PARTS = ["parity", "efficiency", "alternatives", "texts"]

EXACT = ("eager", "onnx")
"""Backends in single precision."""

LEAST = {"float32": {1: 0.85, 64: 0.95, 256: 0.95}, "bfloat16": {1: 0.75, 64: 0.85, 256: 0.85}}
"""Efficiencies that must be reached."""

AS_ACCURATE = 0.001
"""A rival whose accuracy is lower by no more is as accurate."""

MOST_PASSING = {1: 0.08, 64: 0.03}
"""What exits may cost those who pass them all."""

COUNTS = {1: 60, 64: 256, 256: 512}
"""Samples timed at each batch size."""

HEAVY = {1: 20, 64: 64, 256: 256}
"""Those of T2T-ViT-14, where one takes as long as fifty of the others."""


def parities() -> dict[str, Any]:
    """Every cell of every exact backend."""
    rows, flipped = [], {}
    for network in FRONTIERS:
        wanted = expected(network)
        flipped[network] = flipped_by_half(wanted)
        frontier = wanted.frontier
        parts = frontier.backbone, frontier.pooling, frontier.exits
        for name in EXACT if network == "ResNet-56" else EXACT[:1]:
            rows += parity(name, BACKENDS.get(name)(*parts, all_images()[:2]), wanted)
    return {"cells": rows, "flipped by half precision": flipped}


def efficiencies(name: str, repeats: int) -> dict[str, Any]:
    """One network at every batch size, in both precisions."""
    found: dict[str, Any] = {}
    network, heavy = NETWORKS[name](), name == "T2T-ViT-14"
    for precision, dtype in (("float32", None), ("bfloat16", torch.bfloat16)):
        backend = EagerBackend(network.backbone, network.pooling, network.exits, dtype=dtype)
        full = full_network(network.backbone, dtype)
        for size, count in (HEAVY if heavy else COUNTS).items():
            turns = min(repeats, 3) if heavy else repeats
            cell = efficiency(network, backend, full, size, count=count, repeats=turns)
            found.setdefault(precision, {})[size] = cell
            reached = [round(cell[f"at {cost}"]["efficiency"]["median"], 3) for cost in COSTS]
            passing = cell["passing all exits"]["median"]
            say(f"{name}, {precision}, batch {size}: {reached}, passing all exits {100 * passing:+.1f} %")
    return found


def felt(repeats: int) -> dict[str, Any]:
    """Images by all alternatives."""
    return {"count": len(held_out_rows(0)), "images": measured(alternatives(), repeats=repeats)}


def bars(parts: dict[str, Any]) -> list[Bar]:
    """What must hold."""
    made = []
    if "parity" in parts:
        cells = parts["parity"]["cells"]
        for backend in EXACT:
            own = [cell for cell in cells if cell["backend"] == backend]
            made.append(Bar(f"{backend}: differences in the worst cell", max(cell["differ"] for cell in own), ALLOWED))
            made.append(Bar(f"{backend}: of them far from any boundary", sum(cell["far"] for cell in own), 0))
    for name, precisions in parts.get("efficiency", {}).items():
        for precision, sizes in precisions.items():
            for size, cell in sizes.items():
                least = LEAST[precision][int(size)]
                for cost in COSTS:
                    lost = 1 - cell[f"at {cost}"]["efficiency"]["median"]
                    made.append(Bar(f"{name}, {precision}, batch {size}, at {cost}: lost", lost, 1 - least))
                if precision == "float32" and int(size) in MOST_PASSING:
                    passing = cell["passing all exits"]["median"]
                    made.append(Bar(f"{name}, batch {size}: passing all exits", passing, MOST_PASSING[int(size)]))
    if "alternatives" in parts:
        made += _felt_bars(parts["alternatives"])
    if "texts" in parts:
        text = {row["name"]: row for row in parts["texts"]}
        made += [
            Bar("MiniLM, guarantee: points lost", -100 * text["guarantee"]["change"], 1.0),
            Bar("MiniLM, level on tune: time at 64, of the full network's", _time_of(text["level on tune"]), 1 / 3),
        ]
    return made


def _felt_bars(found: dict[str, Any]) -> list[Bar]:
    rows = {row["name"]: row for row in found["images"]}
    cascade = rows["offramp cascade"]
    return [
        Bar("cascade: points lost", -100 * cascade["change"], 0.0),
        Bar("cascade: time at 64, of the full network's", 1 / cascade["speedup at 64"]["median"], 1 / 1.8),
        Bar("cascade: time at 1, of the full network's", 1 / cascade["speedup at 1"]["median"], 1 / 1.5),
        Bar("cascade: time at 64, of earlyon's as accurate", _against(cascade, rows, graphs=False), 1 / 1.5),
        Bar("the same, both in ONNX Runtime", _against(rows["offramp cascade, ONNX"], rows, graphs=True), 1 / 1.5),
    ]


def _time_of(row: dict[str, Any]) -> float:
    return float(1 / row["speedup at 64"]["median"])


def _against(ours: dict[str, Any], rows: dict[str, Any], *, graphs: bool) -> float:
    """Our time at batch 64 over that of the fastest of earlyon's ways that is as accurate; NaN if there is none."""
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
    works: dict[str, Callable[[], Any]] = {
        "parity": parities,
        **{f"efficiency of {name}": partial(efficiencies, name, arguments.repeats) for name in NETWORKS},
        "alternatives": lambda: felt(arguments.repeats),
        "texts": lambda: texts(repeats=arguments.repeats),
    }
    arguments.into.mkdir(parents=True, exist_ok=True)
    files = {name: arguments.into / f"{name}.json" for name in works}
    for name in works:
        if any(name.startswith(asked) for asked in arguments.only):
            files[name].write_text(json.dumps(works[name]()))
    kept = {name: json.loads(file.read_text()) for name, file in files.items() if file.exists()}
    parts = {name: found for name, found in kept.items() if name in PARTS}
    parts["efficiency"] = {name: kept[f"efficiency of {name}"] for name in NETWORKS if f"efficiency of {name}" in kept}
    return report(parts, bars(parts), check=arguments.check)


if __name__ == "__main__":
    sys.exit(main())
