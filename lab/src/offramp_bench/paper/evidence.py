"""The section of docs/evidence/tables.md about the comparison of early-exit methods."""

from collections.abc import Iterator, Sequence

from offramp_bench.page.results import TRACKS, Footing, Results, Task
from offramp_bench.page.standing import best_rival, figure_text, lead_text, shortfalls, standing
from offramp_bench.tracks.intervals import SEEDS
from offramp_bench.tracks.yardstick import HALF

__all__ = ["describe_shortfalls", "section"]

SECTION = """## Every rival: `offramp_bench.tracks`
Every method trains exits on the same samples of the same frozen networks. Eight settings are tried for each, but
`offramp.fit` runs as shipped, cut networks have the settings of linear exits, and ablations those of JEI-DNN. Operating
points are chosen on the tune split and measured on test. Below are the costs at half a point lost, as shares of the
full network's, and the default's lead over the cheapest rival with its simultaneous 95 % interval over five seeds and
test samples. The last column is about all seven figures: *behind* is behind a contestant at any of them, *ahead* is not
behind and ahead of every rival at half a point lost, beyond the interval. All contestants, all figures and the claims
of the paper are on one page: `offramp-bench page`.

Where exits after every stage would take more than 2 % of the network's Mul-Adds, they follow only every second, third
or later stage. A *cut network* is the first stages and a new head; *48 pixels, not tuned to it* is the same network on
smaller images; *grid* is on the default's features. Earlier comparisons have already looked at the test samples of the
nine tasks; nothing was chosen on AG News and SST-2, the final test.

{behind}

{tracks}

{missing}
"""


def section(results: Results) -> str:
    """Return the section; tasks with fewer than five seeds are named and not shown.

    Args:
        results: The committed results.
    """
    complete_results = _complete(results)
    missing = [
        *complete_results.missing,
        *(task.title for task in results.tasks if task.seeds < SEEDS and task.title not in complete_results.missing),
    ]
    return SECTION.format(
        behind=describe_shortfalls(results),
        tracks="\n\n".join(table for track in TRACKS for table in _tables(complete_results, track)),
        missing=f"Not measured yet: {'; '.join(missing)}." if missing else "All tasks are measured.",
    )


def describe_shortfalls(results: Results) -> str:
    """Say where the default is behind a contestant; tasks with fewer than five seeds do not count.

    Args:
        results: The committed results.
    """
    complete_results = _complete(results)
    behind = [f"* {sentence}" for sentence in shortfalls(complete_results)]
    if behind:
        return "\n".join(["The default is behind here:", "", *behind])
    if not complete_results.tasks:
        return "No task is measured with five seeds yet."
    return "On none of these tasks is the default behind any contestant beyond the interval."


def _complete(results: Results) -> Results:
    return Results(tuple(task for task in results.tasks if task.seeds >= SEEDS), None)


def _tables(results: Results, track: str) -> Iterator[str]:
    footings = results.footings(track)
    if not footings:
        yield f"{track.capitalize()} track: not measured yet."
    for title, task_footings in footings.items():
        yield f"{track.capitalize()} track, {title}. {TRACKS[track]}\n\n" + "\n".join(_rows(task_footings))


def _rows(footings: Sequence[tuple[Task, Footing]]) -> Iterator[str]:
    yield "| task | full network | default | cheapest rival | the default's lead | in all figures |"
    yield "|---|" + "---|" * 5
    for task, footing in footings:
        best = best_rival(footing)
        rival = lead = ""
        if best is not None:
            rival = f"{figure_text(best, HALF)} {best.label}"
            lead = lead_text(footing.leads[best.name][HALF])
        cells = [task.title, f"{100 * task.full_accuracy:.1f} %", figure_text(footing.default, HALF), rival, lead]
        yield f"| {' | '.join(cells)} | {standing(footing)} |"
