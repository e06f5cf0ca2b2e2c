"""Every rival, every ablation and every figure of the paper.

    python -m offramp_bench.paper [--check] [--tasks cifar10 clinc150 ...] [--exits ladder linear ...] [--seeds 3]

A cell is one way to fit exits on one task with one seed. Cells that are there are not computed again, so that a run can
be interrupted, and several can work side by side on different tasks. Tasks and ways to fit exits that were not asked
for are told as they were committed; the default is always asked for. Figures are on test samples that nothing was
fitted on, the same for all seeds; intervals are of paired differences, resampling test samples.

Results are printed: write them to another file and move it to lab/results/paper.json, from which
`python -m offramp_bench.evidence` and `offramp-bench page` tell them. Cells lie in lab/.cache/paper/cells: remove
one to compute it again. A new task is an entry of TASKS in paper/tasks.py, a new way to fit exits one of EXITS
and of CONTESTANTS in paper/contestants.py.

With --check, nothing is printed but bars: those of the committed results, and that of one of their cells, drawn at
random among --tasks and --exits, which is computed again (from seconds to an hour, as large as its task is) and
compared.
"""

import json
import os
import sys

import numpy as np

import offramp_bench.torchvision_ops  # noqa: F401 (before transformers loads a model)
from offramp_bench import places
from offramp_bench.bars import parser, report, say
from offramp_bench.paper.bars import bars
from offramp_bench.paper.cell import identity, run_cell
from offramp_bench.paper.contestants import EXITS, is_tried
from offramp_bench.paper.observations import observations
from offramp_bench.paper.recomputed import drawn, recomputed
from offramp_bench.paper.results import assembled, cell_files, merged
from offramp_bench.paper.tasks import TASKS

COMMITTED = places.RESULTS / "paper.json"


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


def check(tasks: list[str], exits: list[str]) -> int:
    """Hold the committed results against the bars, and one of their cells against itself."""
    committed = json.loads(COMMITTED.read_text())["tasks"]
    cell = drawn({name: committed[name] for name in tasks if name in committed}, exits, np.random.default_rng())
    say(f"computing again: {cell[0]}, {cell[1]}, seed {cell[2]}")
    return report({"cell": cell}, [*bars(committed), *recomputed(*cell)], check=True)


def main() -> int:
    options = parser(__doc__)
    tasks = f"datasets and their networks, of: {', '.join(TASKS)} (all)"
    options.add_argument("--tasks", nargs="+", default=list(TASKS), choices=list(TASKS), metavar="TASK", help=tasks)
    exits = f"ways to fit exits, in quotes, of: {'; '.join(EXITS)} (all)"
    options.add_argument("--exits", nargs="+", default=list(EXITS), choices=list(EXITS), metavar="WAY", help=exits)
    options.add_argument("--seeds", type=int, default=3, metavar="N", help="seeds 0 to N - 1 (3)")
    arguments = options.parse_args()
    if arguments.check:
        return check(arguments.tasks, arguments.exits)
    asked = list(dict.fromkeys(["ladder", *arguments.exits]))  # everything is compared with the default
    for seed in range(arguments.seeds):
        for task in arguments.tasks:
            for exits in asked:
                if is_tried(TASKS[task], exits) and not is_there(task, exits, seed):
                    compute(task, exits, seed)
    committed = json.loads(COMMITTED.read_text())["tasks"]
    results = merged(committed, assembled(arguments.tasks, asked, range(arguments.seeds)), asked)
    missing = [name for name in TASKS if name not in results]
    found = {"tasks": results, "observations": observations(results), "missing": missing}
    return report(found, bars(results), check=False)


if __name__ == "__main__":
    sys.exit(main())
