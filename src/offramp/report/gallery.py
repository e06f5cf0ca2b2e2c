"""Which pictures a report has, and how each is to be read."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from offramp.features import Source
from offramp.report import pictures as draw
from offramp.report import tables
from offramp.report.answers import Sample
from offramp.report.canvas import Figure
from offramp.report.findings import Findings
from offramp.report.inputs import Image, look_up
from offramp.report.words import percent

__all__ = ["Picture", "pictures", "samples"]


@dataclass(frozen=True)
class Picture:
    """A picture of the report."""

    name: str
    """Of its files, and what its ids begin with."""
    caption: str
    """How to read it."""
    figure: Figure
    """Drawn in the light colours."""


def pictures(findings: Findings) -> Iterator[Picture]:
    """The pictures of the numbers."""
    yield Picture(
        "accuracy-against-cost",
        "Further left is cheaper, higher is better. Bands hold 95 %. The dashed line is the full network; a cross or a "
        "square above a curve is something simpler that does better at that cost.",
        draw.accuracy_against_cost(findings),
    )
    yield Picture(
        "exits-used",
        "How many samples leave at each exit: the more of them to the left, the cheaper. Exits are numbered from 0.",
        draw.exits_used(findings),
    )
    yield Picture(
        "accuracy-by-exit",
        "A circle well above its diamond: the easy samples leave there, as they should. A bar above its circle: the "
        "full network would have known better.",
        draw.accuracy_by_exit(findings),
    )
    yield Picture(
        "reliability",
        "On the dashed line, answers given with 90 % confidence are right 90 % of the time; below it the network is "
        f"too sure, above it not sure enough. By chance alone it would read {percent(findings.calibration_floor)}.",
        draw.reliability_diagram(findings),
    )
    yield Picture(
        "change-by-class",
        "To the left, classes that lose against the full network; to the right, classes that gain. A thin line that "
        "crosses zero may be chance, and of many classes some lie off zero by chance alone.",
        draw.change_by_class(findings),
    )


def samples(findings: Findings, source: Source | None) -> Iterator[Picture | str]:
    """Pictures or tables of who leaves first and last, or a sentence on why there are none."""
    if source is None:
        yield "<p>No samples are shown, as the report was written without their source.</p>"
        return
    groups = (("first", "They leave first", findings.first), ("last", "They leave last", findings.last))
    for name, title, group in groups:
        shown = look_up(source, group) if group else []
        if shown is None:
            yield "<p>No samples are shown: these inputs are neither images nor texts.</p>"
            return
        if not shown:
            yield f"<p>All samples leave at exit {findings.first[0].exit}: nobody is last.</p>"
        elif isinstance(shown[0], str):
            texts = [one for one in shown if isinstance(one, str)]
            yield tables.texts(title, group, texts, findings.classes)
        else:
            images = [one for one in shown if not isinstance(one, str)]
            yield _sheet(name, title, group, images, findings)


def _sheet(name: str, title: str, samples: Sequence[Sample], images: Sequence[Image], findings: Findings) -> Picture:
    exits = sorted({sample.exit for sample in samples})
    where = f"exit {exits[0]}" if len(exits) == 1 else f"exits {exits[0]} to {exits[-1]}"
    right = sum(sample.predicted == sample.label for sample in samples)
    caption = (
        f"The first {len(samples)} rows of those who do, at {where}, none picked by hand: {right} of them right. The "
        "answer is below each; wrong ones are framed, with the true class."
    )
    return Picture(f"leave-{name}", caption, draw.contact_sheet(samples, images, findings.classes, title=title))
