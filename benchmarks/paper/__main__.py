"""Every rival, every ablation and every figure of the paper.

    python -m benchmarks.paper [--check] [--tasks cifar10 clinc150 ...] [--exits ladder linear ...] [--seeds 3]

A cell is one way to fit exits on one task with one seed. Cells that are there are not computed again, so that a run can
be interrupted, and several can work side by side on different tasks. Figures are on test samples that nothing was
fitted on, the same for all seeds; intervals are of paired differences, resampling test samples.
"""

import json
import os
import sys
from typing import Any

import numpy as np

import benchmarks.torchvision_ops  # noqa: F401 (before transformers loads a model)
from benchmarks.bars import parser, report, say
from benchmarks.paper.bars import bars
from benchmarks.paper.cell import identity, run_cell
from benchmarks.paper.contestants import EXITS, ON_CHAINS
from benchmarks.paper.observations import observations
from benchmarks.paper.results import assembled, cell_files
from benchmarks.paper.tasks import TASKS


def compute(task: str, exits: str, seed: int) -> None:
    """Compute a cell and keep it."""
    figures, areas = cell_files(task, exits, seed)
    figures.parent.mkdir(parents=True, exist_ok=True)
    cell = run_cell(TASKS[task], EXITS[exits], seed)
    np.savez_compressed(areas, **{rule: rows.astype(np.float32) for rule, rows in cell.areas.items()})  # type: ignore[arg-type]
    waiting = figures.with_suffix(f".{os.getpid()}")
    waiting.write_text(json.dumps(cell.figures))
    waiting.rename(figures)
    told = {rule: round(100 * found["area"], 2) for rule, found in cell.figures["rules"].items()}
    say(f"{task}, {exits}, seed {seed}: {told}, {cell.figures['CPU seconds']:.0f} s of CPU to fit")


def is_there(task: str, exits: str, seed: int) -> bool:
    """Whether a cell is kept that was computed in the same way."""
    figures, _ = cell_files(task, exits, seed)
    if not figures.exists():
        return False
    kept: str = json.loads(figures.read_text())["identity"]
    return kept == identity(TASKS[task], EXITS[exits])


def main() -> int:
    options = parser(__doc__)
    options.add_argument("--tasks", nargs="+", default=list(TASKS), choices=list(TASKS), help="which")
    options.add_argument("--exits", nargs="+", default=list(EXITS), choices=list(EXITS), help="which")
    options.add_argument("--seeds", type=int, default=3, help="how many")
    arguments = options.parse_args()
    for seed in range(arguments.seeds):
        for task in arguments.tasks:
            for exits in arguments.exits:
                fits = exits in ON_CHAINS if TASKS[task].alone else exits != "ends"
                if fits and not is_there(task, exits, seed):
                    compute(task, exits, seed)
    results: dict[str, Any] = assembled(range(arguments.seeds))
    return report({"tasks": results, "observations": observations(results)}, bars(results), check=arguments.check)


if __name__ == "__main__":
    sys.exit(main())
