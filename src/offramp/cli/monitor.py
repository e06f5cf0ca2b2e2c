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
    from offramp.monitor import Action, Monitor, Summary, Traffic, Verdict

__all__ = ["STATUSES", "monitor"]

STATUSES: "Mapping[Action, int]" = {"keep": 0, "recalibrate": 3, "fall back": 4, "wait": 5}
"""What the command ends with; 1 and 2 are errors, as everywhere."""

LAST = 1000
"""Samples at the end of the traffic that are told of by themselves: over all of it, a late change is hard to see."""

FEW = 500
"""Reference samples below which a word is said."""

STEPS = 400
"""Points of a curve at most."""

AGAIN = "offramp recalibrate ARTIFACT --data RECENT --out FOLDER"
"""What re-calibrates."""

ADVICE: "Mapping[Action, str]" = {
    "wait": "Wait: there is no traffic to speak of. Fewer than {fewest} samples say nothing for or against a change.",
    "keep": "Keep: nothing speaks for a change.",
    "recalibrate": f"Re-calibrate without labels ({AGAIN}): traffic is not what the reference was, so what was "
    "calibrated does not speak of it. Whether accuracy has suffered cannot be known without labels.",
    "fall back": f"Fall back to the full network, then re-calibrate without labels ({AGAIN}): the early answers differ "
    "from its answers more often than they should.",
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
            help="What [bold]offramp predict[/bold] wrote, at the same operating point, of samples that nothing was "
            "fitted on and that traffic should be like; 1,000 or more.",
        ),
    ],
    false_alarm: Annotated[
        float,
        typer.Option(
            metavar="SHARE",
            help="Probability of any alarm, ever, while nothing changes: at most this. With --promised, an alarm may "
            "also mean that the promise was broken from the start.",
        ),
    ] = 0.01,
    promised: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE",
            help="The most disagreement with the full network that was promised, such as 0.02: more is an alarm. "
            "[dim]Without it: more than in the reference is.[/dim]",
        ),
    ] = None,
    picture: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Draw the evidence over time: .svg or .png. [dim]Without it: nothing.[/dim]"),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Tell whether traffic is still what the network was calibrated for, without labels.

    Compares where inputs leave, how sure the answers are and, for those that [bold]predict --shadow[/bold] ran to full
    depth, how often the full network disagrees with a reference. Look as often as you like: give all files since the
    reference, in order, each time; the false-alarm rate holds over all looks together.

    Recommends to keep (exit status 0), to re-calibrate without labels (3), to fall back to the full network until
    that is done (4), or to wait, where there is hardly any traffic (5). A reference is what predict says of samples as
    they are when all is well, with --shadow 1. After re-calibration, begin with a new one, of recent inputs.

    Reads .csv and .jsonl; folders of Parquet, as many workers write them, are not read yet.

    [bold]Example[/bold]: offramp monitor monday.csv tuesday.csv --reference reference.csv
    """
    from offramp.cli.predictions import read_traffic
    from offramp.monitor import Monitor, Traffic, summarise

    if picture is not None:
        if picture.suffix not in (".svg", ".png"):
            raise InputError(f"expected --picture to end with .svg or .png, got '{picture.name}'")
        check_writable(picture.parent, "--picture")
        import_module("offramp.report.canvas")  # a missing matplotlib is told of now
    known, points = read_traffic(reference)
    seen = Traffic([], [])
    for file in traffic:
        part, its_points = read_traffic(file)
        _check_comparable(reference, points, file, its_points)
        seen = seen.joined(part)
    watching = Monitor(known, false_alarm=false_alarm, promised=promised)
    counts, curves = _watched(watching, seen)
    verdict = watching.verdict
    num_exits = int(max(known.exits.max(), seen.exits.max(initial=0))) + 1
    parts = {"reference": known, "traffic": seen, f"last {LAST:,}": seen[-LAST:]}
    summaries = {name: summarise(part, num_exits=num_exits) for name, part in parts.items()}
    if picture is not None:
        _draw(picture, counts, curves, verdict)
    if promised is not None and not summaries["traffic"].shadowed:
        warn("--promised was not looked into: no input was run to full depth; predict --shadow 0.05 does that")
    if as_json:
        told = {name.replace(f" {LAST:,}", ""): asdict(one) for name, one in summaries.items()}
        print_json({**asdict(verdict), "alarms": verdict.alarms, **told})
    else:
        _tell(verdict, summaries)
        if len(known) < FEW:
            warn(f"a reference of {len(known)} samples shows large changes only; 1,000 or more are best")
        if picture is not None:
            say(f"Picture: {picture}")
    if verdict.action != "keep":
        raise typer.Exit(STATUSES[verdict.action])


def _check_comparable(reference: Path, points: set[str], file: Path, its_points: set[str]) -> None:
    """Refuse answers at another operating point than the reference's, where both files say theirs."""
    together = points | its_points
    if points and its_points and len(together) > 1:
        told = [", ".join(f"'{point}'" for point in sorted(one)) for one in (points, its_points)]
        raise InputError(
            f"expected answers at one operating point, got {told[0]} in {reference} and {told[1]} in {file}: inputs "
            "leave elsewhere at another one though nothing has changed; make a reference with the artifact and options "
            "of the traffic"
        )
    if any(point.startswith("budget ") for point in together):
        warn(f"{file} was answered within a budget: the operating point moved, and with it where inputs leave")


def _watched(watching: "Monitor", seen: "Traffic") -> tuple[list[int], dict[str, list[float]]]:
    """Look at all traffic, and keep what the fortunes were on the way."""
    step = max(1, -(-len(seen) // STEPS))
    counts: list[int] = []
    curves: dict[str, list[float]] = {name: [] for name in watching.verdict.tests}
    for start in range(0, len(seen), step):
        verdict = watching.update(seen[start : start + step])
        counts.append(verdict.samples)
        for name, test in verdict.tests.items():
            curves[name].append(test.fortune)
    return counts, curves


def _tell(verdict: "Verdict", summaries: "Mapping[str, Summary]") -> None:
    from offramp.monitor import FEWEST

    columns = list(summaries.values())
    rows = [
        ["samples", *(f"{one.samples:,}" for one in columns)],
        ["confidence, mean", *(_number(one.confidence) for one in columns)],
        ["run to full depth", *(f"{one.shadowed:,}" for one in columns)],
        ["of these the full network disagrees", *(_percent(one.disagreement) for one in columns)],
    ]
    for exit in range(len(columns[0].exit_shares)):
        rows.append([f"leave at exit {exit}", *(_percent(one.exit_shares[exit]) for one in columns)])
    print_table("What was seen", ["", *summaries], rows)
    tests = [
        [
            name,
            f"{test.samples:,}",
            f"{test.fortune:.3g}",
            f"{test.most:.3g}",
            f"{test.needed:.3g}",
            "none" if test.alarmed_at is None else f"after {test.alarmed_at:,}",
        ]
        for name, test in verdict.tests.items()
    ]
    print_table("Evidence of a change", ["test", "samples", "now", "highest", "alarm from", "alarm"], tests)
    print_text(ADVICE[verdict.action].format(fewest=FEWEST))


def _draw(file: Path, counts: Sequence[int], curves: Mapping[str, Sequence[float]], verdict: "Verdict") -> None:
    from offramp.report.canvas import to_png, to_svg
    from offramp.report.evidence import evidence_over_time

    figure = evidence_over_time(counts, curves, needed=next(iter(verdict.tests.values())).needed)
    if file.suffix == ".svg":
        file.write_text(to_svg(figure), encoding="utf-8")
    else:
        file.write_bytes(to_png(figure))


def _percent(share: float) -> str:
    return "-" if share != share else f"{100 * share:.2f} %"


def _number(value: float) -> str:
    return "-" if value != value else f"{value:.3f}"
