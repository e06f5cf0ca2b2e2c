"""The section of docs/evidence.md about the comparison of early-exit methods."""

from collections.abc import Iterator, Sequence

from offramp_bench.page.results import TRACKS, Footing, Results, Task
from offramp_bench.page.standing import best_rival, figure_text, lead_text, shortfalls, standing
from offramp_bench.tracks.intervals import SEEDS
from offramp_bench.tracks.yardstick import HALF

__all__ = ["section"]

SECTION = """## Every rival: `offramp_bench.tracks`
Every method trains exits on the same samples of the same frozen networks with the same tuning budget; its operating
points are chosen on the tune split and measured on test. Below are the costs at half a point lost, as shares of the
full network's, and the default's lead over the cheapest rival with its simultaneous 95 % interval over five seeds and
test samples. *Behind* is behind anybody at any of seven figures, *ahead* is ahead of every rival at half a point lost,
both beyond the interval. All contestants, all figures and the claims of the paper are on one page:
`offramp-bench page`. Earlier comparisons have looked at these test samples already: this is not a final test.

{behind}

{tracks}

{missing}
"""


def section(results: Results) -> str:
    """Return the section; tasks with fewer than five seeds are named and not shown.

    Args:
        results: The committed results.
    """
    done = Results(tuple(task for task in results.tasks if task.seeds >= SEEDS), None)
    behind = [f"* {sentence}" for sentence in shortfalls(done)]
    missing = [
        *done.missing,
        *(task.title for task in results.tasks if task.seeds < SEEDS and task.title not in done.missing),
    ]
    return SECTION.format(
        behind="\n".join(["The default is behind here:", "", *behind]) if behind else _nowhere(done),
        tracks="\n\n".join(table for track in TRACKS for table in _tables(done, track)),
        missing=f"Not measured with five seeds yet: {'; '.join(missing)}." if missing else "All tasks are measured.",
    )


def _nowhere(results: Results) -> str:
    if not results.tasks:
        return "No task is measured with five seeds yet."
    return "On none of these tasks is the default behind anybody beyond the interval."


def _tables(results: Results, track: str) -> Iterator[str]:
    footings = results.footings(track)
    if not footings:
        yield f"{track.capitalize()} track: not measured yet."
    for title, found in footings.items():
        yield f"{track.capitalize()} track, {title}. {TRACKS[track]}\n\n" + "\n".join(_rows(found))


def _rows(found: Sequence[tuple[Task, Footing]]) -> Iterator[str]:
    yield "| task | full network | default | cheapest rival | the default's lead | the default is |"
    yield "|---|" + "---|" * 5
    for task, footing in found:
        best = best_rival(footing)
        rival = lead = ""
        if best is not None:
            rival = f"{figure_text(best, HALF)} {best.label}"
            lead = lead_text(footing.leads[best.name][HALF])
        cells = [task.title, f"{100 * task.full_accuracy:.1f} %", figure_text(footing.default, HALF), rival, lead]
        yield f"| {' | '.join(cells)} | {standing(footing)} |"
