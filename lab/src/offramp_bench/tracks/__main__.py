"""Compare early-exit methods on three tracks, with one yardstick and the same tuning for everyone.

    python -m offramp_bench.tracks [--task nci1 superpixels ...] [--training linear ladder ...] [--seeds 5]
    python -m offramp_bench.tracks --method mine:fit --trust mine:fit --track exits --task superpixels
    python -m offramp_bench.tracks --check [--task ...]

A cell is one training on one task, look and seed; cells lie in lab/.cache/tracks and are not computed again, so that a
run can be interrupted, and several can work side by side on different tasks. The results of a task are written to
lab/results/tracks/, from which `offramp-bench page` tells them. With --method, a method of your own joins the committed
results of the tasks. With --check, the committed results are held against their bars, and one cell per task is computed
again and compared (minutes for a small task, up to an hour for all).
"""

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np

import offramp_bench.torchvision_ops  # noqa: F401 (before transformers loads a model)
from offramp_bench.bars import Bar, parser, report, say
from offramp_bench.json_files import write_json
from offramp_bench.paper.tasks import COMPARED, FINAL, TASKS
from offramp_bench.tracks.bars import bars
from offramp_bench.tracks.cell import run_cell, samples_key, tuned_variant
from offramp_bench.tracks.contestants import CONTESTANTS, TRAININGS, cells_of
from offramp_bench.tracks.intervals import SEEDS
from offramp_bench.tracks.joining import complete_cells, join_track
from offramp_bench.tracks.results import RESULTS, assemble, read_results, result_file
from offramp_bench.tracks.yardstick import figures_of

ALIKE = 0.002
"""Largest difference in mean accuracy when a cell is computed again: another machine sums in another order."""


def compare_trainings(arguments: argparse.Namespace) -> int:
    """Compute the cells that are missing, and write the results of each task."""
    for name in arguments.task:
        # Trainings on the same samples one after the other, so that these are loaded once per seed.
        cells = sorted(cells_of(name, arguments.training), key=lambda cell: samples_key(TASKS[name], *cell))
        for training, look in cells:
            if training.is_tuned:
                tuned_variant(TASKS[name], training, look)
        for seed in range(arguments.seeds):
            for training, look in cells:
                complete_cells(TASKS[name], training, look, [seed])
        _write(assemble(TASKS[name], range(arguments.seeds)), arguments.into)
    results = read_results(arguments.into)
    return report({"written": sorted(results)}, bars(results, COMPARED), check=False)


def join(arguments: argparse.Namespace) -> int:
    """Let a method of one's own join the results of each task."""
    committed_results = read_results() | read_results(arguments.into)
    for name in arguments.task:
        if name not in committed_results:
            raise SystemExit(f"{name} has no committed results to join; known: {', '.join(committed_results)}")
        seeds = range(arguments.seeds)
        results = join_track(
            committed_results[name], TASKS[name], arguments.method, arguments.look, seeds, trust=arguments.trust
        )
        _write(results, arguments.into)
    return report({"written": list(arguments.task)}, [], check=False)


def check(arguments: argparse.Namespace) -> int:
    """Hold the committed results against the bars, and one cell per task against what is computed again."""
    results = read_results()
    all_bars = bars(results, COMPARED)
    generator = np.random.default_rng()
    for name in (name for name in arguments.task if name in results):
        rows = [row for row in results[name]["contestants"].values() if row["name"] in CONTESTANTS]
        row = rows[int(generator.integers(len(rows)))]
        seed = int(generator.integers(len(row["mean accuracies"])))
        say(f"computing again: {name}, {row['name']}, seed {seed}")
        cell = run_cell(TASKS[name], TRAININGS[row["training"]], row["look"], seed)
        mean_accuracy = figures_of(cell.curves[row["policy"]], results[name]["range"]["start"])["mean accuracy"][0]
        title = f"{name}, {row['name']}, seed {seed}: difference in mean accuracy when computed again"
        all_bars.append(Bar(title, abs(float(mean_accuracy) - row["mean accuracies"][seed]), ALIKE))
    return report({}, all_bars, check=True)


def _write(results: dict[str, Any], folder: Path) -> None:
    file = result_file(results["task"], folder)
    write_json(file, results)
    say(f"{results['task']}: {len(results['contestants'])} contestants in {file}")


def main() -> int:
    """Run the comparison."""
    options = parser(__doc__)
    options.add_argument(
        "--task", nargs="+", default=COMPARED, choices=[*COMPARED, *FINAL], metavar="TASK",
        help=f"datasets and their networks: {', '.join(COMPARED)} (all of these); {', '.join(FINAL)}: the final test",
    )  # fmt: skip
    options.add_argument(
        "--training", nargs="+", default=list(TRAININGS), choices=list(TRAININGS), metavar="NAME",
        help=f"ways to train exits: {'; '.join(TRAININGS)} (all)",
    )  # fmt: skip
    options.add_argument("--seeds", type=int, default=SEEDS, metavar="N", help=f"seeds 0 to N - 1 ({SEEDS})")
    options.add_argument("--method", metavar="MODULE:FUNCTION", help="a method of your own that joins the results")
    options.add_argument("--trust", nargs="+", default=[], metavar="NAME", help="third-party code that may be imported")
    options.add_argument("--track", choices=["exits"], default="exits", help="the track it joins (exits)")
    options.add_argument("--look", choices=["means", "grid"], default="means", help="what its exits see (means)")
    options.add_argument("--into", type=Path, default=RESULTS, metavar="FOLDER", help="folder of the results")
    arguments = options.parse_args()
    if arguments.check:
        return check(arguments)
    return join(arguments) if arguments.method else compare_trainings(arguments)


if __name__ == "__main__":
    sys.exit(main())
