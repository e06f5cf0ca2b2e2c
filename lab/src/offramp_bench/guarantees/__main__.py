"""Frequency of violated guarantees, and what they cost.

    python -m offramp_bench.guarantees [--check] [--only risk default dial monitoring conformal] [--into FOLDER]

Risk: guarantees of a largest loss, with labels and without, over a thousand redrawn calibration sets. Default: loss and
cost of the default point, over two hundred redrawn tune and calibrate splits. Dial: budgets of one artifact, also on a
stream. Monitoring: false alarms, and the delay until real shifts are detected. Conformal: coverage of prediction sets.
The results of each part are kept in FOLDER, so that each may be run by itself.
"""

import json
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

import offramp_bench.torchvision_ops  # noqa: F401 (before transformers loads a model)
from offramp_bench.bars import Bar, parser, report, say
from offramp_bench.guarantees.pools import CACHE

PARTS = ("risk", "default", "dial", "monitoring", "conformal")
"""Modules of this package, each with a function of the same name that returns figures and bars."""


def run(name: str) -> dict[str, Any]:
    """Measure one part; return its figures and bars in types that JSON has.

    Args:
        name: One of PARTS.
    """
    module = import_module(f"offramp_bench.guarantees.{name}")  # not above: no part needs what the others import
    figures, bars = getattr(module, name)()
    return {"figures": figures, "bars": [[bar.name, bar.figure, bar.at_most] for bar in bars]}


def main() -> int:
    options = parser(__doc__)
    options.add_argument("--only", nargs="+", default=PARTS, choices=PARTS, help="which parts to run")
    options.add_argument("--into", type=Path, default=CACHE / "parts", help="where parts are kept")
    arguments = options.parse_args()
    torch.set_num_threads(1)
    arguments.into.mkdir(parents=True, exist_ok=True)
    files = {name: arguments.into / f"{name}.json" for name in PARTS}
    for name in arguments.only:
        say(f"measuring {name}")
        files[name].write_text(json.dumps(run(name)))
    results = {name: json.loads(file.read_text()) for name, file in files.items() if file.exists()}
    bars = [Bar(f"{part}: {name}", *rest) for part, result in results.items() for name, *rest in result["bars"]]
    return report({name: result["figures"] for name, result in results.items()}, bars, check=arguments.check)


if __name__ == "__main__":
    sys.exit(main())
