"""The page: one file that needs nothing else."""

from collections.abc import Iterator, Sequence
from importlib.resources import files
from pathlib import Path
from string import Template

from offramp.report._markup import prose, read_style
from offramp_bench.page.results import TITLES, TRACKS, Claim, Results
from offramp_bench.page.standing import headline, near_misses, shortfalls
from offramp_bench.page.tables import claim_figures, contestants, summary
from offramp_bench.tracks.intervals import SEEDS

__all__ = ["write_page"]

PROCEDURE = (
    "Every method trains exits on the same samples of the same frozen networks. Eight settings are tried for each, but "
    "offramp.fit runs as shipped, cut networks have the settings of linear exits, and ablations those of JEI-DNN. "
    "Operating points are chosen on the tune split and measured on test. Where exits after every stage would take more "
    "than 2 % of the network's Mul-Adds, they follow only every second, third or later stage. The default's leads have "
    "simultaneous 95 % intervals over seeds and test samples. Earlier comparisons have looked at the test samples of "
    "the nine tasks; nothing was chosen on AG News and SST-2, the final test."
)

RULES = (
    "That something is better holds if it is better on at least half of the tasks and worse on none; it does not hold "
    "if it is worse on more tasks than better, and is not shown if all tasks are level. That two things are alike "
    "holds if they are on every task, and does not hold if they differ on half of the tasks or more. Everything else "
    "is mixed, and so is a claim whose parts do not agree."
)
"""Rules by which claims of the paper are judged."""

_NOT_MEASURED = "<p>Not measured yet.</p>"


def write_page(results: Results, path: Path) -> Path:
    """Write the page. It needs no network, script or other file, and follows the reader's choice of light or dark.

    Args:
        results: The results.
        path: File to write; its folder is made if it is not there.

    Returns:
        The path of the page.

    Raises:
        MissingExtraError: Without matplotlib.
    """
    template = files("offramp_bench.page").joinpath("page.html").read_text(encoding="utf-8")
    page = Template(template).substitute(
        style=read_style(),
        verdict=_verdict(results),
        how=prose(PROCEDURE),
        notes="\n".join(f"<li>{prose(note)}</li>" for note in _notes(results)),
        pictures="\n".join(_pictures(results, track) for track in TRACKS),
        tables="\n".join(_tables(results, track) for track in TRACKS),
        claims=_claims(results.claims),
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page, encoding="utf-8")
    return path


def _verdict(results: Results) -> str:
    """Return where the default is behind, first and plainly."""
    behind = list(shortfalls(results))
    first = (
        f"The default is behind another contestant beyond the interval on {len(behind)} of "
        f"{sum(len(task.footings) for task in results.tasks)} comparisons, one per task and footing."
        if behind
        else "On no task measured so far is the default behind any contestant beyond the interval."
    )
    parts = [f'<p class="verdict">{prose(first)}</p>', _list(headline(results))]
    parts.append(_fold("Where it is behind, and by how much", behind))
    parts.append(
        _fold("Where a rival is cheaper at half a point lost, within the interval", list(near_misses(results)))
    )
    return "\n".join(parts)


def _fold(title: str, sentences: Sequence[str]) -> str:
    if not sentences:
        return ""
    return f"<details><summary>{prose(title)} ({len(sentences)})</summary>{_list(sentences)}</details>"


def _list(sentences: Sequence[str]) -> str:
    return f'<ul class="list">{"".join(f"<li>{prose(text)}</li>" for text in sentences)}</ul>'


def _notes(results: Results) -> Iterator[str]:
    yield "A footing is what the contestants of a comparison share: trained exits or features."
    yield (
        "Behind: behind any contestant at any of the seven figures beyond the interval, our own variants included. "
        "Ahead: not behind, and ahead of every rival at half a point lost beyond the interval. Level: neither."
    )
    if results.missing:
        yield f"Not measured yet, {len(results.missing)} of {len(TITLES)} tasks: {'; '.join(results.missing)}."
    tasks_with_few_seeds = [task for task in results.tasks if task.seeds < SEEDS]
    if tasks_with_few_seeds:
        titles = "; ".join(f"{task.title} ({task.seeds})" for task in tasks_with_few_seeds)
        yield f"Fewer than {SEEDS} seeds, so that intervals say little or nothing about training: {titles}."


def _pictures(results: Results, track: str) -> str:
    # Imported here: results can be read without matplotlib, pictures cannot be drawn.
    from offramp_bench.page.panels import picture

    parts = [f'<section id="{track}"><h2>{track.capitalize()} track</h2>', f"<p>{prose(TRACKS[track])}</p>"]
    for place, (title, footings) in enumerate(results.footings(track).items()):
        element = picture(footings, name=f"{track}-{place}")
        heading = f"{len(footings)} task{'s' * (len(footings) != 1)}; {title}"
        # The picture of the track is the first; the same on another footing is folded.
        parts.append(
            f"<details><summary>The same track on another footing: {prose(title)}</summary>\n{element}\n</details>"
            if place
            else f"<h3>{prose(heading)}</h3>\n{element}"
        )
    return "\n".join([*parts, "</section>"] if len(parts) > 2 else [*parts, _NOT_MEASURED, "</section>"])


def _tables(results: Results, track: str) -> str:
    parts = [f'<section id="{track}-tables"><h3>{track.capitalize()} track</h3>']
    for title, footings in results.footings(track).items():
        parts.append(summary(f"{track.capitalize()} track, {title}", footings))
        parts += [contestants(task, footing) for task, footing in footings]
    return "\n".join([*parts, "</section>"] if len(parts) > 1 else [*parts, _NOT_MEASURED, "</section>"])


def _claims(claims: tuple[Claim, ...] | None) -> str:
    if claims is None:
        return "<p>The claims of the paper are not judged yet.</p>"
    parts = [f"<p>{prose(RULES)}</p>", _list([f"{claim.name}: {claim.verdict}" for claim in claims])]
    for claim in claims:
        kind = "".join(letter if letter.isalnum() else "-" for letter in claim.verdict)
        parts.append(
            f'<article class="claim {kind}"><h3>{prose(claim.name)}: <span class="badge">{prose(claim.verdict)}</span>'
            f'</h3>\n<p>The paper: {prose(claim.claim)}</p>\n<p class="why">{prose(claim.why)}</p>'
        )
        if claim.figures:
            tables = "\n".join(map(claim_figures, claim.figures))
            parts.append(
                f"<details><summary>Figures; positive ones speak for the claim</summary>\n{tables}\n</details>"
            )
        parts.append("</article>")
    return "\n".join(parts)
