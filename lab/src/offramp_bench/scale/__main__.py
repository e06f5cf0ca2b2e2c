"""Whether work on a cluster is as fast as without one, survives what is lost, and stays small whatever the rows.

    python -m offramp_bench.scale [--check] [--small] [--only extraction failures ...] [--into FOLDER]

Extraction and inference: throughput of Ray's workers against as many bare processes. Failures: a worker, a node and the
driver killed in the middle. Rows: time and memory of a fit as rows grow. Faults: a full disk, a read-only folder, a
vanished file, a truncated shard. Forecasts: CPU times foretold from few rows and one worker against those of more.
Parts are kept in FOLDER, so that each may be run by itself.
"""

import json
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

import offramp_bench.torchvision_ops  # noqa: F401 (before transformers loads a model)
from offramp_bench import places
from offramp_bench.bars import Bar, parser, report, say

PARTS = ("extraction", "failures", "inference", "rows", "faults", "forecasts")
"""Each is a module of this package with a function of its name that gives figures and bars."""

EXTRA = ("dense", "shuffling", "enough_rows")
"""Parts that need stores of other benchmarks and promise nothing: run when they are asked for."""

CACHE = places.CACHE / "scale"
"""Where parts and what they need are kept."""


def run(name: str, *, small: bool) -> dict[str, Any]:
    """One part, as JSON can hold it.

    Args:
        name: One of PARTS or EXTRA.
        small: Fewer inputs and repetitions.
    """
    module = import_module(f"offramp_bench.scale.{name}")  # not above: no part needs what the others import
    figures, bars = getattr(module, name)(small=small)
    return {"figures": figures, "bars": [[bar.name, bar.figure, bar.at_most] for bar in bars]}


def main() -> int:
    options = parser(__doc__)
    options.add_argument("--only", nargs="+", default=PARTS, choices=PARTS + EXTRA, help="which parts to run")
    options.add_argument("--small", action="store_true", help="a size for every day: a minute or two in all")
    options.add_argument("--into", type=Path, help="where parts are kept")
    arguments = options.parse_args()
    torch.set_num_threads(1)
    # Apart from the full size's: figures of the small one are no evidence.
    folder: Path = arguments.into or CACHE / ("small" if arguments.small else "parts")
    folder.mkdir(parents=True, exist_ok=True)
    files = {name: folder / f"{name}.json" for name in PARTS + EXTRA}
    for name in arguments.only:
        say(f"measuring {name}")
        files[name].write_text(json.dumps(run(name, small=arguments.small)))
    kept = {name: json.loads(file.read_text()) for name, file in files.items() if file.exists()}
    bars = [Bar(f"{part}: {name}", *rest) for part, found in kept.items() for name, *rest in found["bars"]]
    return report({name: found["figures"] for name, found in kept.items()}, bars, check=arguments.check)


if __name__ == "__main__":
    sys.exit(main())
