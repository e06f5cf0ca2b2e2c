"""Work on a cluster: its speed, its recovery from losses and faults, and its time and memory as rows grow.

    python -m offramp_bench.scale [--check] [--small] [--only extraction failures ...] [--into FOLDER]

Extraction and inference: throughput of Ray's workers against as many bare processes. Failures: a worker, a node and the
driver killed in the middle. Rows: time and memory of a fit as rows grow. Faults: a full disk, a read-only folder, a
missing file, a truncated shard. Forecasts: CPU times forecast from few rows and one worker, against measured ones.
The results of each part are kept in FOLDER, so that each may be run by itself.
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
"""Modules of this package, each with a function of the same name that returns figures and bars."""

EXTRA = ("dense", "shuffling", "enough_rows")
"""Parts that need stores of other benchmarks and have no bars: run only if named."""

CACHE = places.CACHE / "scale"
"""Folder of the results of parts, and of their inputs."""


def run(name: str, *, small: bool) -> dict[str, Any]:
    """Measure one part; return its figures and bars in types that JSON has.

    Args:
        name: One of PARTS or EXTRA.
        small: Use fewer inputs and repetitions.
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
    # Not in the folder of the full size: figures of the small one are no evidence.
    folder: Path = arguments.into or CACHE / ("small" if arguments.small else "parts")
    folder.mkdir(parents=True, exist_ok=True)
    files = {name: folder / f"{name}.json" for name in PARTS + EXTRA}
    for name in arguments.only:
        say(f"measuring {name}")
        files[name].write_text(json.dumps(run(name, small=arguments.small)))
    results = {name: json.loads(file.read_text()) for name, file in files.items() if file.exists()}
    bars = [Bar(f"{part}: {name}", *rest) for part, result in results.items() for name, *rest in result["bars"]]
    return report({name: result["figures"] for name, result in results.items()}, bars, check=arguments.check)


if __name__ == "__main__":
    sys.exit(main())
