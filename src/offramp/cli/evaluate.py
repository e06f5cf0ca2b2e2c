"""`offramp evaluate`."""

from collections.abc import Iterator
from dataclasses import asdict
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
from offramp.errors import InputError

if TYPE_CHECKING:
    from offramp.frontier import Comparison, Frontier
    from offramp.report import Findings

__all__ = ["evaluate"]

AGAINST = "Comparison"
"""Title of the options that say what to compare with."""

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
    against: Annotated[
        Path | None,
        typer.Option(
            metavar="ARTIFACT",
            help="Another artifact: compare the two on the same samples. [dim]Without it: no comparison.[/dim]",
            rich_help_panel=AGAINST,
        ),
    ] = None,
    against_backbone: Annotated[
        list[str] | None,
        typer.Option(
            "--against-model",
            metavar="NAME",
            help="The network after an update, as [bold]fit[/bold] takes it with --model: compare, to see whether the "
            "exits still serve it. [dim]Without it: no comparison.[/dim]",
            rich_help_panel=AGAINST,
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

    [bold]Example[/bold]: offramp evaluate old --data test.csv --against new
    """
    from offramp.cli.datasets import (
        Columns,
        check_taken,
        check_unused,
        classes_for,
        features_of,
        kept_in,
        open_labelled,
    )
    from offramp.cli.networks import make_network, open_artifact
    from offramp.frontier import check_comparable, compare, on_backbone
    from offramp.frontier.guessing import check_full_network
    from offramp.report import cautions, find, verdict, write_report

    if against is not None and against_backbone:
        raise InputError("expected --against or --against-model, got both; leave one")
    frontier = timed(open_artifact(artifact, trust), latency, latency_batch_size)
    other = None if against is None else timed(open_artifact(against, trust), latency, latency_batch_size)
    if other is not None:
        check_comparable(frontier, other)
    network = choose(frontier, wish, artifact)
    other_point = network.point if other is None or against is None else choose(other, wish, against).point
    source = open_labelled(
        data,
        frontier.backbone,
        Columns(label, column, split),
        classes=classes_for(frontier, classes) or (() if other is None else other.classes),
        preprocessing=frontier.preprocessing,
    )
    if against_backbone:
        updated = make_network(against_backbone)
        check_taken(data, source, updated, updated.preprocessing)
        other = on_backbone(frontier, updated, source.read(0, 1).inputs)
    elif other is not None:
        check_taken(data, source, other.backbone, other.preprocessing)
    names = _names(artifact, against)
    artifacts = [(names[0], frontier)] + ([] if other is None or against is None else [(names[1], other)])
    used = {f"{part} of {name}": sketch for name, made in artifacts for part, sketch in made.splits.items()}
    if report is not None:
        check_writable(report, "--report")
        import_module("offramp.report.canvas")  # a missing matplotlib is told of now, not after the long work
    name = Path(data).absolute().name
    compared = None
    with kept_in(store) as folder, check_unused(source, used, folder, name=name, progress=not as_json):
        features = features_of(frontier, source, folder, progress=not as_json)
        check_full_network(features, split="test", classes=source.classes, anyway=anyway)
        found = find(frontier, features, point=network.point, classes=source.classes, name=name)
        full_ms = None if frontier.full_ms is None else float(network.costs.average(features.sizes()).full)
        if other is not None:
            others = features_of(other, source, folder / "against", progress=not as_json)
            compared = compare((frontier, network.point, features), (other, other_point, others))
    page = None if report is None else write_report(found, report, source=source)
    if as_json:
        took_ms = None if full_ms is None else full_ms * found.chosen.relative_cost
        told = {"full_ms": full_ms, "ms": took_ms, "report": None if page is None else str(page)}
        comparison = None if compared is None else {"names": names, **asdict(compared)}
        print_json({**found.to_json(), **told, "against": comparison})
        return
    curve = found.curves[network.point.policy]
    shown = [*curve[:: max(1, len(curve) // 8)], found.chosen]
    rows = [
        [
            f"{one.relative_cost:.3f}" + (" <" if one == found.chosen else ""),
            *(() if full_ms is None else (f"{full_ms * one.relative_cost:.3g}",)),
            f"{100 * one.accuracy:.2f} %",
            points(one.change),
            interval(one.change_interval),
            f"{100 * one.calibration_error:.2f}",
        ]
        for one in sorted({one.relative_cost: one for one in shown}.values(), key=lambda one: one.relative_cost)
    ]
    title = f"{frontier.backbone.name} by {network.point.policy} on {found.samples:,} samples of {name}"
    spent = ["cost"] if full_ms is None else ["share of time", "ms"]
    print_table(title, [*spent, "accuracy", "change", "95 % interval", "ECE"], rows)
    print_text(verdict(found))
    if found.guarantee is not None:
        print_text(f"Promised: {found.guarantee}.")
    if full_ms is not None:
        print_text(
            f"The cost is time: {full_ms * found.chosen.relative_cost:.3g} ms a sample on average, {full_ms:.3g} ms "
            "the network without exits."
        )
    if compared is not None:
        _print_comparison(compared, names, name, "multiply-adds" if frontier.full_ms is None else "milliseconds")
    for sentence in (*cautions(found), *_doubts(frontier, found)):
        warn(sentence)
    if page is not None:
        say(f"Report: {page}")


def _names(artifact: Path, against: Path | None) -> tuple[str, str]:
    """Name the two sides: folders in different places may have the same name."""
    if against is None:
        return artifact.name, "after the update"
    return (str(artifact), str(against)) if artifact.name == against.name else (artifact.name, against.name)


def _print_comparison(compared: "Comparison", names: tuple[str, str], data: str, unit: str) -> None:
    rows = [
        ["full network", *(f"{100 * one:.2f} %" for one in compared.full_accuracies)],
        ["with exits", *(f"{100 * one:.2f} %" for one in compared.accuracies)],
        ["cost, of its own network", *(f"{one:.3f}" for one in compared.relative_costs)],
    ]
    print_table(f"{compared.samples:,} samples of {data}", ["", *names], rows)
    ends = compared.cost_ratio_interval
    told = "n/a: one row" if ends is None else f"{ends[0]:.2f} to {ends[1]:.2f}"
    print_text(
        f"{names[1]} changes accuracy by {points(compared.gain)} points ({interval(compared.gain_interval)}) at "
        f"{compared.cost_ratio:.2f} ({told}) times the {unit}. They agree on {100 * compared.agreement:.1f} % of the "
        f"samples; {100 * compared.newly_wrong:.2f} % were right and are wrong now."
    )


def _doubts(frontier: "Frontier", found: "Findings") -> Iterator[str]:
    """Reasons to believe that these are not the samples to measure on."""
    if found.full.accuracy < frontier.full_accuracy - DOUBTFUL:
        yield (
            f"the network itself is right on {100 * found.full.accuracy:.1f} % here, and was on "
            f"{100 * frontier.full_accuracy:.1f} % of the tune split: other data, inputs of another kind or size, or "
            "classes in another order?"
        )
