"""`offramp evaluate`."""

from collections.abc import Iterator
from dataclasses import asdict, replace
from importlib import import_module
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from offramp.cli.choosing import PointOptions, choose_point, with_latency_file, with_point_options
from offramp.cli.console import interval, points, print_json, print_table, print_text, say, warn
from offramp.cli.options import (
    AnywayOption,
    ArtifactArgument,
    ClassesOption,
    ColumnOption,
    DataOption,
    DeviceOption,
    JsonOption,
    LabelOption,
    LatencyBatchOption,
    LatencyOption,
    SplitOption,
    StoreOption,
    TrustOption,
)
from offramp.cli.places import check_writable, find_address, find_name
from offramp.errors import InputError

if TYPE_CHECKING:
    from offramp.model._compare import Comparison
    from offramp.model._model import EarlyExitModel
    from offramp.report._findings import Findings

__all__ = ["evaluate"]

AGAINST = "Comparison"
"""Title of the options for a comparison."""

DOUBTFUL = 0.1
"""Drop of the full network's accuracy against the tune split above which a warning doubts the data."""


@with_point_options
def evaluate(
    artifact: ArtifactArgument,
    data: DataOption,
    point_options: PointOptions,
    report: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Folder for report.html, a single file, and its figures as SVG and PNG."),
    ] = None,
    against: Annotated[
        Path | None,
        typer.Option(
            metavar="ARTIFACT",
            help="Artifact to compare with on the same samples. [dim]Without it: no comparison.[/dim]",
            rich_help_panel=AGAINST,
        ),
    ] = None,
    against_backbone: Annotated[
        list[str] | None,
        typer.Option(
            "--against-model",
            metavar="NAME",
            help="Updated network to compare with, in the form of --model of [bold]fit[/bold], to check that the exits "
            "still fit it. [dim]Without it: no comparison.[/dim]",
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
    device: DeviceOption = None,
    trust: TrustOption = None,
    anyway: AnywayOption = False,
    as_json: JsonOption = False,
) -> None:
    """Evaluate an artifact on held-out samples, with 95 % intervals.

    Formats of --data: a folder of images with one sub-folder per class; .csv and .tsv with a header, .txt with one text
    per line (each also with .gz); .npz; and formats of the datasets library: .parquet, .jsonl, a folder of
    save_to_disk.

    [bold]Example[/bold]: offramp evaluate my-offramp --data test.csv --cost 0.6 --report my-report

    [bold]Example[/bold]: offramp evaluate old --data test.csv --against new
    """
    from offramp.cli.datasets import (
        Columns,
        check_inputs,
        check_unused,
        classes_for,
        extract_features,
        feature_folder,
        open_labelled,
    )
    from offramp.cli.networks import make_network, open_artifact, trust_options
    from offramp.model import compare_models
    from offramp.model._compare import check_comparable, on_backbone
    from offramp.model._guessing import check_full_network
    from offramp.report import find, write_report
    from offramp.report._words import list_cautions, verdict

    if against is not None and against_backbone:
        raise InputError(expected="--against or --against-model", got="both", hint="leave one out")

    def open_model(path: Path) -> "EarlyExitModel":
        return with_latency_file(open_artifact(path, trust, device=device), latency, latency_batch_size)

    model = open_model(artifact)
    other = None if against is None else open_model(against)
    if other is not None:
        check_comparable(model, other)
    model = choose_point(model, point_options, artifact)
    other_point = model.point
    if other is not None and against is not None:
        other_point = choose_point(other, point_options, against).point
    source = open_labelled(
        data,
        model.backbone,
        Columns(label, column, split),
        classes=classes_for(model, classes) or (() if other is None else other.classes),
        preprocessing=model.preprocessing,
    )
    if against_backbone:
        updated = make_network(against_backbone, device=device)
        check_inputs(data, source, updated, updated.preprocessing)
        other = on_backbone(model, updated, source.read(0, 1).inputs)
    elif other is not None:
        check_inputs(data, source, other.backbone, other.preprocessing)
    names = _names(artifact, against)
    artifacts = [(names[0], model)] + ([] if other is None or against is None else [(names[1], other)])
    used = {f"{part} of {name}": sketch for name, entry in artifacts for part, sketch in entry.splits.items()}
    if report is not None:
        check_writable(report, "--report")
        import_module("offramp.report._canvas")  # refuse a missing matplotlib before the long work
    name = Path(data).absolute().name
    comparison = None
    with feature_folder(store) as folder, check_unused(source, used, folder, name=name, progress=not as_json):
        features = extract_features(model, source, folder, progress=not as_json)
        check_full_network(features, split="test", classes=source.classes, anyway=anyway)
        findings = find(model, features, point=model.point, classes=source.classes, name=name)
        unit = findings.unit
        if other is not None:
            others = extract_features(other, source, folder / "against", progress=not as_json)
            comparison = compare_models((model, features), (replace(other, chosen=other_point), others))
    used_latency = {"--latency": latency, "--latency-batch-size": latency_batch_size}
    given = "".join(f" {option} {quote(str(value))}" for option, value in used_latency.items() if value is not None)
    command = (
        f"offramp predict {quote(find_address(artifact))} --data INPUTS --out answers.csv{trust_options(model)}{given}"
    )
    page = None if report is None else write_report(findings, report, source=source, command=command)
    if as_json:
        spent = None if unit.full is None else unit.full * findings.chosen.relative_cost
        more = {"unit": asdict(unit), "mean_cost": spent, "report": None if page is None else str(page)}
        against_json = None if comparison is None else {"names": names, **asdict(comparison)}
        print_json({**findings.to_json(), **more, "against": against_json})
        return
    curve = findings.curves[model.point.policy]
    some = [*curve[:: max(1, len(curve) // 8)], findings.chosen]
    rows = [
        [
            f"{point.relative_cost:.3f}" + (" <" if point == findings.chosen else ""),
            *((unit.figure(point.relative_cost),) if unit.heading else ()),
            f"{100 * point.accuracy:.2f} %",
            points(point.change),
            interval(point.change_interval),
            f"{100 * point.calibration_error:.2f}",
        ]
        for _, point in sorted({point.relative_cost: point for point in some}.items())
    ]
    title = f"{model.backbone.name} by {model.point.policy} on {findings.samples:,} samples of {name}"
    costs = [f"share of {unit.noun}", *([unit.heading] if unit.heading else [])]
    print_table(title, [*costs, "accuracy", "change", "95 % interval", "ECE"], rows)
    print_text(verdict(findings))
    if findings.guarantee is not None:
        print_text(f"Guaranteed: {findings.guarantee}.")
    if unit.full_ms is not None:
        print_text(
            f"The cost is measured time: {unit.show(findings.chosen.relative_cost)} per sample on average, "
            f"{unit.show(1)} for the full network."
        )
    if comparison is not None:
        _print_comparison(comparison, names, name, "milliseconds" if unit.full_ms is not None else unit.name)
    for sentence in (*list_cautions(findings), *_doubts(model, findings)):
        warn(sentence)
    if page is not None:
        say(f"Report: {page}")


def _names(artifact: Path, against: Path | None) -> tuple[str, str]:
    """Return a name for each side; two folders may have the same name in different places."""
    if against is None:
        return find_name(artifact), "after the update"
    names = find_name(artifact), find_name(against)
    return names if names[0] != names[1] else (find_address(artifact), str(against))


def _print_comparison(comparison: "Comparison", names: tuple[str, str], data: str, unit: str) -> None:
    rows = [
        ["full network", *(f"{100 * share:.2f} %" for share in comparison.full_accuracies)],
        ["with exits", *(f"{100 * share:.2f} %" for share in comparison.accuracies)],
        ["cost, relative to its full network", *(f"{cost:.3f}" for cost in comparison.relative_costs)],
    ]
    print_table(f"{comparison.samples:,} samples of {data}", ["", *names], rows)
    ends = comparison.cost_ratio_interval
    span = "n/a: one row" if ends is None else f"{ends[0]:.2f} to {ends[1]:.2f}"
    print_text(
        f"{names[1]} changes accuracy by {points(comparison.gain)} points ({interval(comparison.gain_interval)}) at "
        f"{comparison.cost_ratio:.2f} ({span}) times the {unit}. They agree on {100 * comparison.agreement:.1f} % of "
        f"the samples; {100 * comparison.newly_wrong:.2f} % were right before and are wrong now."
    )


def _doubts(model: "EarlyExitModel", findings: "Findings") -> Iterator[str]:
    """Yield reasons why these may not be the right samples to evaluate on."""
    if findings.full.accuracy < model.full_accuracy - DOUBTFUL:
        yield (
            f"the full network is right on {100 * findings.full.accuracy:.1f} % of these samples, and was on "
            f"{100 * model.full_accuracy:.1f} % of the tune split. Check for other data, inputs of another kind or "
            "size, and classes in another order."
        )
