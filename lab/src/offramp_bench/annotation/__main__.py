"""Measure annotation with an expensive model: its calls, guarantees, kills, memory and estimated bills.

    python -m offramp_bench.annotation [--check] [--only banking77 clinc150 killed memory dry_run mixed] [--into FOLDER]

The tuned MiniLM plays the expensive model, because no language model can be reached from here.
* banking77, clinc150: all calls, beside those of BARGAIN with the same cheap member; the share of broken guarantees
  over a thousand random samples; CPU time of learning.
* killed: a job over 10,000 inputs through a local server that fails one request in ten; the job is killed ten times.
* memory: jobs with 10,000 and 1,000,000 embeddings.
* dry_run: estimated bills beside real ones.
* mixed: a network with exits, a function and a language model as one cascade.
Results of each part are kept in FOLDER, so that parts can be run one by one.
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
from offramp_bench.json_files import write_json

PARTS = {
    "banking77": ("calls", "banking77"),
    "clinc150": ("calls", "clinc150"),
    "killed": ("killed",),
    "memory": ("memory",),
    "dry_run": ("dry_run",),
    "mixed": ("mixed",),
}
"""For each part, a module of this package with a function of the same name, and the arguments of that function."""


def run(name: str) -> dict[str, Any]:
    """Measure one part, and return its figures and bars as JSON can hold them.

    Args:
        name: One of PARTS.
    """
    module, *arguments = PARTS[name]
    measure = getattr(import_module(f"offramp_bench.annotation.{module}"), module)
    figures, bars = measure(*arguments)
    return {"figures": figures, "bars": [[bar.name, bar.figure, bar.at_most] for bar in bars]}


def main() -> int:
    options = parser(__doc__)
    options.add_argument("--only", nargs="+", default=list(PARTS), choices=list(PARTS), help="which parts to run")
    options.add_argument("--into", type=Path, default=places.CACHE / "annotation", help="where parts are kept")
    arguments = options.parse_args()
    torch.set_num_threads(1)
    files = {name: arguments.into / f"{name}.json" for name in PARTS}
    for name in arguments.only:
        say(f"measuring {name}")
        write_json(files[name], run(name))
    parts = {name: json.loads(file.read_text()) for name, file in files.items() if file.exists()}
    bars = [Bar(f"{part}: {name}", *rest) for part, results in parts.items() for name, *rest in results["bars"]]
    return report({name: results["figures"] for name, results in parts.items()}, bars, check=arguments.check)


if __name__ == "__main__":
    sys.exit(main())
