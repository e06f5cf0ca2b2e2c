"""`offramp evaluate`."""

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from offramp.cli.choosing import Wish, asking, choose, timed
from offramp.cli.console import interval, points, print_json, print_table, print_text, say, warn
from offramp.cli.options import (
    AnywayOption,
    ArtifactArgument,
    ClassesOption,
    ColumnOption,
    DataOption,
    JsonOption,
    LabelOption,
    LatencyBatchOption,
    LatencyOption,
    SplitOption,
    StoreOption,
    TrustOption,
)
from offramp.cli.places import check_writable

if TYPE_CHECKING:
    from offramp.frontier import Frontier
    from offramp.report import Findings

__all__ = ["evaluate"]

DOUBTFUL = 0.1
"""Accuracy of the network itself below that on the tune split, by which the data is doubted."""


@asking
def evaluate(
    artifact: ArtifactArgument,
    data: DataOption,
    wish: Wish,
    report: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="Write report.html here, one file to look at, and its pictures as SVG and PNG."
        ),
    ] = None,
    latency: LatencyOption = None,
    latency_batch_size: LatencyBatchOption = None,
    label: LabelOption = "label",
    column: ColumnOption = None,
    split: SplitOption = None,
    classes: ClassesOption = None,
    store: StoreOption = None,
    trust: TrustOption = None,
    anyway: AnywayOption = False,
    as_json: JsonOption = False,
) -> None:
    """Measure an artifact on samples that nothing was fitted on, with 95 % intervals.

    Formats of --data: a folder of images with a sub-folder a class; .csv and .tsv with a header, .txt with one text a
    line (each also with .gz); .npz; and what the datasets library reads: .parquet, .jsonl, a folder of save_to_disk.

    [bold]Example[/bold]: offramp evaluate my-offramp --data test.csv --cost 0.6 --report my-report
    """
    from offramp.cli.datasets import Columns, classes_for, features_of, kept_in, open_labelled
    from offramp.cli.networks import open_artifact
    from offramp.frontier.guessing import check_full_network
    from offramp.report import cautions, find, verdict, write_report

    frontier = timed(open_artifact(artifact, trust), latency, latency_batch_size)
    network = choose(frontier, wish, artifact)
    source = open_labelled(
        data,
        frontier.trunk,
        Columns(label, column, split),
        classes=classes_for(frontier, classes),
        preprocessing=frontier.preprocessing,
    )
    if report is not None:
        check_writable(report, "--report")
        import_module("offramp.report.canvas")  # a missing matplotlib is told of now, not after the long work
    name = Path(data).absolute().name
    with kept_in(store) as folder:
        features = features_of(frontier, source, folder, progress=not as_json)
        check_full_network(features, split="test", classes=source.classes, anyway=anyway)
        found = find(frontier, features, point=network.point, classes=source.classes, name=name)
        bare_ms = None if frontier.bare_ms is None else float(network.costs.average(features.sizes()).bare)
    page = None if report is None else write_report(found, report, source=source)
    if as_json:
        took_ms = None if bare_ms is None else bare_ms * found.chosen.relative_cost
        told = {"bare_ms": bare_ms, "ms": took_ms, "report": None if page is None else str(page)}
        print_json({**found.to_json(), **told})
        return
    curve = found.curves[network.point.policy]
    shown = [*curve[:: max(1, len(curve) // 8)], found.chosen]
    rows = [
        [
            f"{one.relative_cost:.3f}" + (" <" if one == found.chosen else ""),
            *(() if bare_ms is None else (f"{bare_ms * one.relative_cost:.3g}",)),
            f"{100 * one.accuracy:.2f} %",
            points(one.change),
            interval(one.change_interval),
            f"{100 * one.calibration_error:.2f}",
        ]
        for one in sorted({one.relative_cost: one for one in shown}.values(), key=lambda one: one.relative_cost)
    ]
    title = f"{frontier.trunk.name} by {network.point.policy} on {found.samples:,} samples of {name}"
    spent = ["cost"] if bare_ms is None else ["share of time", "ms"]
    print_table(title, [*spent, "accuracy", "change", "95 % interval", "ECE"], rows)
    print_text(verdict(found))
    if found.guarantee is not None:
        print_text(f"Promised: {found.guarantee}.")
    if bare_ms is not None:
        print_text(
            f"The cost is time: {bare_ms * found.chosen.relative_cost:.3g} ms a sample on average, {bare_ms:.3g} ms "
            "the network without exits."
        )
    for sentence in (*cautions(found), *_doubts(frontier, found)):
        warn(sentence)
    if page is not None:
        say(f"Report: {page}")


def _doubts(frontier: "Frontier", found: "Findings") -> Iterator[str]:
    """Reasons to believe that these are not the samples to measure on."""
    if found.full.accuracy < frontier.full_accuracy - DOUBTFUL:
        yield (
            f"the network itself is right on {100 * found.full.accuracy:.1f} % here, and was on "
            f"{100 * frontier.full_accuracy:.1f} % of the tune split: other data, inputs of another kind or size, or "
            "classes in another order?"
        )
