"""Compare early-exit methods on three tracks, with one yardstick and the same tuning for everyone.

    python -m offramp_bench.tracks [--check] [--tasks nci1 superpixels ...] [--trainings linear ladder ...] [--seeds 5]

A cell is one training on one task, look and seed. Cells that are there are not computed again, so that a run can be
interrupted, and several can work side by side on different tasks. The results of a task are written to
lab/results/tracks/ once the cells of all contestants are there.
"""

import json
import sys

import offramp_bench.torchvision_ops  # noqa: F401 (before transformers loads a model)
from offramp_bench.bars import parser, say
from offramp_bench.paper.tasks import TASKS
from offramp_bench.tracks.cell import cell_files, read_cell, run_cell, save_cell
from offramp_bench.tracks.contestants import TRAININGS, cells_of
from offramp_bench.tracks.results import assemble, result_file

SEEDS = 5


def main() -> int:
    """Run the comparison."""
    single = [name for name, task in TASKS.items() if task.alone is None]
    options = parser(__doc__)
    options.add_argument("--tasks", nargs="+", default=single, choices=single, metavar="TASK", help="names of tasks")
    options.add_argument("--trainings", nargs="+", default=list(TRAININGS), choices=list(TRAININGS), metavar="NAME")
    options.add_argument("--seeds", type=int, default=SEEDS, metavar="N", help=f"seeds 0 to N - 1 ({SEEDS})")
    arguments = options.parse_args()
    for name in arguments.tasks:
        task = TASKS[name]
        for training, look in cells_of(arguments.trainings):
            for seed in range(arguments.seeds):
                if read_cell(task, training, look, seed) is None:
                    cell = run_cell(task, training, look, seed)
                    save_cell(cell, cell_files(task, training, look, seed))
                    say(f"{name}, {training.name}, {look}, seed {seed}: {cell.figures['CPU seconds']:.0f} s of CPU")
        results = assemble(task, range(arguments.seeds))
        file = result_file(name)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
        say(f"{name}: results of {len(results['contestants'])} contestants in {file}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
