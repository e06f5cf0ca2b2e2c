"""A method of a reader's own on a track, beside the committed results."""

from collections.abc import Collection, Sequence
from typing import Any

from offramp.methods import METHODS
from offramp_bench.bars import say
from offramp_bench.paper.tasks import Task
from offramp_bench.tracks.cell import Cell, cell_files, read_cell, run_cell, save_cell
from offramp_bench.tracks.contestants import CONTESTANTS, DEFAULTS, TRAININGS, Contestant, Training
from offramp_bench.tracks.intervals import bootstrap_figures, compare
from offramp_bench.tracks.results import describe_contestant, describe_leads
from offramp_bench.tracks.samples import Look

__all__ = ["complete_cells", "join_track"]


def complete_cells(task: Task, training: Training, look: Look, seeds: Sequence[int]) -> list[Cell]:
    """Return the cells of one training, computing those that are not there.

    Args:
        task: The task.
        training: The way to train exits.
        look: What exits see.
        seeds: Seeds of the fits.
    """
    cells = []
    for seed in seeds:
        cell = read_cell(task, training, look, seed)
        if cell is None:
            cell = run_cell(task, training, look, seed)
            save_cell(cell, cell_files(task, training, look, seed))
            say(f"{task.name}, {training.name}, {look}, seed {seed}: {cell.figures['CPU seconds']:.0f} s of CPU")
        cells.append(cell)
    return cells


def join_track(
    results: dict[str, Any], task: Task, method: str, look: Look, seeds: Sequence[int], *, trust: Collection[str]
) -> dict[str, Any]:
    """Return results with a method of one's own on the exits track, compared with the default on the same look.

    The method runs with its own default settings and one threshold; the default is fitted again where its cells are not
    there. Its intervals are simultaneous over its own figures alone, and so are narrower than those of the others.

    Args:
        results: Results of the task, as `assemble` gives them.
        task: The task.
        method: `package.module:function`, or a registered name.
        look: What its exits see.
        seeds: Seeds of the fits.
        trust: Names of third-party code that may be imported.
    """
    METHODS.get(method, trust=trust)  # imports it, and says what is wrong with its name
    training = Training(method, method, ("threshold",), (look,))
    name = method if look == "means" else f"{method}, {look}"
    contestant = Contestant(name, "exits", method, look, "threshold", "rival")
    default = next(
        candidate
        for candidate in DEFAULTS
        if CONTESTANTS[candidate].track == "exits" and CONTESTANTS[candidate].look == look
    )
    default_training = TRAININGS[CONTESTANTS[default].training]
    cells = {
        name: complete_cells(task, training, look, seeds),
        default: complete_cells(task, default_training, look, seeds),
    }
    curves = {
        name: [cell.curves["threshold"] for cell in cells[name]],
        default: [cell.curves[CONTESTANTS[default].policy] for cell in cells[default]],
    }
    start = float(results["range"]["start"])
    figures_on_draws, figures_on_samples = bootstrap_figures(curves, start)
    leads = compare(
        figures_on_draws, figures_on_samples, {default: [name]}, dict.fromkeys((default, name), results["figures"])
    )[default][name]
    row = describe_contestant(contestant, cells[name], start, results["figures"], {})
    new_results = dict(results)
    new_results["contestants"] = {**results["contestants"], name: row}
    new_results["leads"] = {
        **results["leads"],
        default: {
            **results["leads"].get(default, {}),
            name: describe_leads(leads),
        },
    }
    return new_results
