"""Frequency of violated guarantees, and what they cost.

    python -m offramp_bench.guarantees [--check] [--only risk default dial monitoring conformal] [--into FOLDER]

Risk: promises of a loss at most, with labels and without, over a thousand calibration sets drawn again. Default: what
the point that is taken unasked loses and costs, over two hundred tune and calibrate splits drawn again. Dial: budgets
asked of one artifact, and kept on a stream. Monitoring: false alarms, and how soon real shifts are found. Conformal:
coverage of prediction sets. Parts are kept in FOLDER, so that each may be run by itself.
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
"""Each is a module of this package with a function of its name that gives figures and bars."""


def run(name: str) -> dict[str, Any]:
    """One part, as JSON can hold it.

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
    kept = {name: json.loads(file.read_text()) for name, file in files.items() if file.exists()}
    bars = [Bar(f"{part}: {name}", *rest) for part, found in kept.items() for name, *rest in found["bars"]]
    return report({name: found["figures"] for name, found in kept.items()}, bars, check=arguments.check)


if __name__ == "__main__":
    sys.exit(main())
