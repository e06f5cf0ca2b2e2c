"""`offramp monitor`."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from offramp.cli.console import print_json, print_table, print_text, say, warn
from offramp.cli.options import JsonOption
from offramp.cli.places import check_writable
from offramp.errors import InputError

if TYPE_CHECKING:
    from offramp.monitor import Monitor, Traffic
    from offramp.monitor._monitor import Action, Verdict
    from offramp.monitor._traffic import Summary

__all__ = ["STATUSES", "monitor"]

STATUSES: "Mapping[Action, int]" = {"keep": 0, "recalibrate": 3, "fall back": 4, "wait": 5}
"""Exit status by action; 1 and 2 are errors, as for all commands."""

LAST = 1000
"""Number of latest samples shown in a column of their own, where a late change is easier to see."""

FEW = 500
"""Number of reference samples below which a warning is printed."""

STEPS = 400
"""Maximum number of points of a curve."""

AGAIN = "offramp recalibrate ARTIFACT --data RECENT --out FOLDER"
"""Command that recalibrates."""

ADVICE: "Mapping[Action, str]" = {
    "wait": "Wait: there is too little traffic. Fewer than {fewest} samples are no evidence for or against a change.",
    "keep": "Keep: there is no evidence of a change.",
    "recalibrate": f"Recalibrate without labels ({AGAIN}): the traffic differs from the reference, so the "
    "calibration does not apply to it. A loss of accuracy cannot be detected without labels.",
    "fall back": f"Fall back to the full network, then recalibrate without labels ({AGAIN}): the early answers "
    "disagree with the full network more often than they should.",
}


def monitor(
    traffic: Annotated[
        list[Path],
        typer.Argument(
            metavar="ANSWERS...",
            help="Files that [bold]offramp predict[/bold] wrote (.csv or .jsonl), in the order of time.",
            show_default=False,
        ),
    ],
    reference: Annotated[
        Path,
        typer.Option(
            "--reference",
            "-r",
            metavar="FILE",
            help="File that [bold]offramp predict[/bold] wrote at the same operating point, for held-out samples that "
            "the traffic should be like; 1,000 or more.",
        ),
    ],
    false_alarm: Annotated[
        float,
        typer.Option(
            metavar="SHARE",
            help="Maximum probability of any alarm, ever, while nothing changes. With --max-disagreement, an alarm may "
            "also mean that the guarantee never held.",
        ),
    ] = 0.01,
    max_disagreement: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE",
            help="Guaranteed maximum disagreement with the full network, such as 0.02; more is an alarm. "
            "[dim]Without it: the disagreement in the reference.[/dim]",
        ),
    ] = None,
    picture: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="File for a plot of the evidence over time: .svg or .png. [dim]Without it: no plot.[/dim]",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Detect changes of the traffic against a reference, without labels.

    Compares the exits taken, the confidence of the answers and, for inputs that [bold]predict --shadow[/bold] ran
    through the full network, its disagreement. You may run it as often as you like: give all files since the reference,
    in order, each time; the false-alarm rate holds over all runs together.

    Recommends to keep the model (exit status 0), to recalibrate without labels (3), to fall back to the full network
    until that is done (4), or to wait if there is little traffic (5). To make a reference, run predict with --shadow 1
    on normal samples. After recalibration, make a new reference from recent inputs.

    Reads .csv and .jsonl; folders of Parquet files are not supported yet.

    [bold]Example[/bold]: offramp monitor monday.csv tuesday.csv --reference reference.csv
    """
    from offramp.cli.predictions import read_traffic
    from offramp.monitor import Monitor, Traffic
    from offramp.monitor._traffic import summarise

    if picture is not None:
        if picture.suffix not in (".svg", ".png"):
            raise InputError("--picture", expected="a name that ends with .svg or .png", got=f"'{picture.name}'")
        check_writable(picture.parent, "--picture")
        import_module("offramp.report._canvas")  # refuse a missing matplotlib now
    reference_traffic, points = read_traffic(reference)
    new_traffic = Traffic([], [])
    for file in traffic:
        part, its_points = read_traffic(file)
        _check_comparable(reference, points, file, its_points)
        new_traffic = new_traffic.join(part)
    watcher = Monitor(reference_traffic, false_alarm=false_alarm, max_disagreement=max_disagreement)
    counts, curves = _update(watcher, new_traffic)
    verdict = watcher.verdict
    num_exits = int(max(reference_traffic.exits.max(), new_traffic.exits.max(initial=0))) + 1
    parts = {"reference": reference_traffic, "traffic": new_traffic, f"last {LAST:,}": new_traffic[-LAST:]}
    summaries = {name: summarise(part, num_exits=num_exits) for name, part in parts.items()}
    if picture is not None:
        _draw(picture, counts, curves, verdict)
    if max_disagreement is not None and not summaries["traffic"].shadowed:
        warn("--max-disagreement was not tested: no input ran through the full network; use predict --shadow 0.05")
    if as_json:
        content = {name.replace(f" {LAST:,}", ""): asdict(summary) for name, summary in summaries.items()}
        print_json({**asdict(verdict), "alarms": verdict.alarms, **content})
    else:
        _print_verdict(verdict, summaries)
        if len(reference_traffic) < FEW:
            warn(f"a reference of {len(reference_traffic)} samples shows only large changes; use 1,000 or more")
        if picture is not None:
            say(f"Picture: {picture}")
    if verdict.action != "keep":
        raise typer.Exit(STATUSES[verdict.action])


def _check_comparable(reference: Path, points: set[str], file: Path, its_points: set[str]) -> None:
    """Refuse answers at another operating point than the reference's, if both files name theirs."""
    together = points | its_points
    if points and its_points and len(together) > 1:
        names = [", ".join(f"'{point}'" for point in sorted(group)) for group in (points, its_points)]
        raise InputError(
            expected="answers at one operating point",
            got=f"{names[0]} in {reference} and {names[1]} in {file}",
            hint="make a reference with the artifact and options of the traffic",
        )
    if any(point.startswith("budget ") for point in together):
        warn(f"{file} was answered with --budget: the operating point moved, and so did the exits taken")


def _update(watcher: "Monitor", traffic: "Traffic") -> tuple[list[int], dict[str, list[float]]]:
    """Update the monitor with all traffic and return sample counts and the wealth of each test on the way."""
    step = max(1, -(-len(traffic) // STEPS))
    counts: list[int] = []
    curves: dict[str, list[float]] = {name: [] for name in watcher.verdict.tests}
    for start in range(0, len(traffic), step):
        verdict = watcher.update(traffic[start : start + step])
        counts.append(verdict.samples)
        for name, test in verdict.tests.items():
            curves[name].append(test.wealth)
    return counts, curves


def _print_verdict(verdict: "Verdict", summaries: "Mapping[str, Summary]") -> None:
    from offramp.monitor._monitor import MIN_SAMPLES

    columns = list(summaries.values())
    rows = [
        ["samples", *(f"{column.samples:,}" for column in columns)],
        ["confidence, mean", *(_number(column.confidence) for column in columns)],
        ["run through the full network", *(f"{column.shadowed:,}" for column in columns)],
        ["of these, it disagrees", *(_percent(column.disagreement) for column in columns)],
    ]
    for exit in range(len(columns[0].exit_shares)):
        rows.append([f"leave at exit {exit}", *(_percent(column.exit_shares[exit]) for column in columns)])
    print_table("Traffic", ["", *summaries], rows)
    tests = [
        [
            name,
            f"{test.samples:,}",
            f"{test.wealth:.3g}",
            f"{test.max_wealth:.3g}",
            f"{test.alarm_level:.3g}",
            "none" if test.alarmed_at is None else f"after {test.alarmed_at:,}",
        ]
        for name, test in verdict.tests.items()
    ]
    print_table("Evidence of a change", ["test", "samples", "now", "highest", "alarm from", "alarm"], tests)
    print_text(ADVICE[verdict.action].format(fewest=MIN_SAMPLES))


def _draw(file: Path, counts: Sequence[int], curves: Mapping[str, Sequence[float]], verdict: "Verdict") -> None:
    from offramp.report._canvas import to_png, to_svg
    from offramp.report._pictures import evidence_over_time

    figure = evidence_over_time(counts, curves, needed=next(iter(verdict.tests.values())).alarm_level)
    if file.suffix == ".svg":
        file.write_text(to_svg(figure), encoding="utf-8")
    else:
        file.write_bytes(to_png(figure))


def _percent(share: float) -> str:
    return "-" if share != share else f"{100 * share:.2f} %"


def _number(value: float) -> str:
    return "-" if value != value else f"{value:.3f}"
