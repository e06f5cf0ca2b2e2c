"""`offramp-bench`: what the benchmarks promise, run again; the page about the paper; the data and feature stores."""

import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from offramp.errors import InputError, OfframpError
from offramp_bench.json_files import write_json
from offramp_bench.places import RESULTS, STORES

__all__ = ["CHECKS", "WITHOUT_DATA", "app", "main"]

CHECKS = {
    "annotate": "annotation",
    "architectures": "architectures",
    "artifact": "artifact",
    "catalogue": "catalogue",
    "claims": "paper",
    "costs": "costs",
    "efficientnet": "scale.efficientnet",
    "frontier-time": "frontier_time",
    "guarantees": "guarantees",
    "hostile": "serving.hostile",
    "int8": "serving.int8",
    "large": "scale.large",
    "overload": "serving.overload",
    "paper": "tracks",
    "peer": "serving.peer",
    "replicas": "serving.replicas",
    "runtime": "runtime",
    "scale": "scale",
    "serve": "serving",
    "store": "store",
}
"""Modules of the benchmarks, by the names of the command line."""

WITHOUT_DATA = ("architectures", "catalogue", "costs", "hostile", "replicas")
"""Benchmarks that need no data."""

OWN_FILES = ("claims", "paper")
"""Benchmarks that write several files themselves."""

app = typer.Typer(name="offramp-bench", add_completion=False, pretty_exceptions_enable=False, no_args_is_help=True)

features = typer.Typer(no_args_is_help=True, help="Exchange the feature stores of a task as one file, by hash.")
app.add_typer(features, name="features")

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help=f"One of {', '.join(CHECKS)}.")]
OPTIONS = {"allow_extra_args": True, "ignore_unknown_options": True}


@app.callback()
def offramp_bench() -> None:
    """Run the benchmarks of offramp. Real data is found through OFFRAMP_DATA."""


@app.command(context_settings=OPTIONS)
def check(context: typer.Context, name: NameArgument) -> None:
    """Run a benchmark and say whether its bars hold; the exit status is 0 only if all do.

    Further options go to the benchmark: offramp-bench check scale --small; `-- --help` lists them.
    """
    status, printed = _run(name, "--check", *context.args)
    if "--help" in context.args:
        raise typer.Exit(status)
    print(f"{name}: {verdict(printed)}" if printed else f"{name}: no figures, status {status}")
    raise typer.Exit(status or (0 if printed and printed.get("held", True) else 1))


@app.command(context_settings=OPTIONS)
def run(
    context: typer.Context,
    into: Annotated[
        Path | None,
        typer.Option(
            metavar="PLACE",
            help="Where to write the results: a file, of paper a folder; without it lab/results/, as the module is "
            "called.",
        ),
    ] = None,
) -> None:
    """Run a benchmark, "paper" if you name none, and write its results: offramp-bench run frontier-time.

    Further options go to the benchmark: offramp-bench run paper --task nci1; `-- --help` lists them. A method of your
    own joins a track: offramp-bench run --method mine:fit --trust mine:fit --track exits --task superpixels.
    """
    named = bool(context.args) and not context.args[0].startswith("-")
    name, options = (context.args[0], context.args[1:]) if named else ("paper", context.args)
    module = _module(name)
    if into is not None and name == "claims":
        raise InputError(
            "--into", expected="no place: claims are judged on lab/results and written there", got=str(into)
        )
    place = ["--into", str(into)] if into is not None and name in OWN_FILES else []
    status, printed = _run(name, *options, *place)
    if not printed:
        raise typer.Exit(status if "--help" in options else status or 1)
    if name in OWN_FILES:
        print(f"{name}: {verdict(printed)}; results in {into or RESULTS}")
        raise typer.Exit(status)
    file = RESULTS / f"{module}.json" if into is None else into
    write_json(file, printed, indent=2)
    print(f"{name}: {verdict(printed)}; results in {file}")
    raise typer.Exit(status)


@app.command()
def page(
    results: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="Folder with tracks/*.json and perhaps claims.json; lab/results.")
    ] = RESULTS,
    into: Annotated[Path, typer.Option("--into", "-o", metavar="FILE", help="The page, for a browser.")] = Path(
        "comparison.html"
    ),
) -> None:
    """Write the comparison of early-exit methods on one page: three tracks, all figures, the claims of the paper.

    python -m offramp_bench.tracks measures: hours from nothing, seconds where all is there.
    """
    from offramp_bench.page import read_results, write_page
    from offramp_bench.page.standing import headline

    found = read_results(results)
    import_module("offramp.report._canvas")  # an error now if matplotlib is missing
    written = write_page(found, into)
    for line in headline(found):
        print(line)
    if found.missing:
        print(f"not measured yet: {'; '.join(found.missing)}")
    print(f"Page, for a browser: {written}")


@app.command()
def data(
    folder: Annotated[Path | None, typer.Argument(metavar="FOLDER", help="A folder to check; OFFRAMP_DATA's.")] = None,
) -> None:
    """Say where to get the files that benchmarks need and how to make them; check those of a folder.

    The exit status is 0 only if all files are there and have the expected content.
    """
    from offramp_bench.data import FOLDERS, check_folder, describe_folder, describe_packages, files_of

    for name in FOLDERS:
        print(f"{describe_folder(name)}\n")
    print(f"{describe_packages()}\n")
    wrong = check_folder(folder)  # without a folder, an error whose message says what to set
    for line in wrong:
        print(line)
    total = sum(len(files_of(name)) for name in FOLDERS)
    print(f"{len(wrong)} of {total} files are missing or differ" if wrong else f"all {total} files are as expected")
    raise typer.Exit(1 if wrong else 0)


@features.command("export")
def export_features(
    task: Annotated[str, typer.Argument(metavar="TASK", help="A task of the paper, such as nci1.")],
    into: Annotated[Path, typer.Option("--into", "-o", metavar="FILE", help="The archive to write, FILE.tar.")],
    fingerprint: Annotated[
        str | None,
        typer.Option(metavar="HEX", help="Beginning of the backbone's fingerprint, if there are stores of several."),
    ] = None,
) -> None:
    """Write the feature stores of a task into one tar file. The same stores give the same bytes."""
    from offramp_bench.feature_archive import export_stores

    archive = export_stores(STORES, task, into, fingerprint=fingerprint)
    for name in archive.stores:
        print(name)
    print(f"{into}: {len(archive.stores)} stores, {archive.num_files} files, SHA-256 {archive.sha256}")


@features.command("import")
def import_features(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="An archive that `features export` wrote.")],
    sha256: Annotated[
        str | None, typer.Option(metavar="HEX", help="SHA-256 that the archive must have, as its author told it.")
    ] = None,
) -> None:
    """Put the feature stores of an archive in place, once every hash is checked."""
    from offramp_bench.feature_archive import import_stores

    archive = import_stores(file, STORES, sha256=sha256)
    for name in archive.stores:
        print(f"{name}: {'in place' if name in archive.new else 'already there, the same'}")
    print(f"{len(archive.new)} of {len(archive.stores)} stores are new in {STORES}, SHA-256 {archive.sha256}")


def verdict(printed: dict[str, Any]) -> str:
    """Say in one line how many bars hold, and which figure is nearest to its bar or farthest beyond.

    Args:
        printed: The results of a benchmark.

    Example:
        >>> verdict({"bars": [{"name": "lost", "figure": 0.5, "at_most": 1.0, "held": True}], "held": True})
        'held, 1 of 1 bars; nearest: lost 0.5 (at most 1)'
    """
    bars = printed.get("bars", [])
    if not bars:
        return "no bars"
    held = sum(bar["held"] for bar in bars)
    worst = max(bars, key=lambda bar: (not bar["held"], bar["figure"] / bar["at_most"] if bar["at_most"] else 0.0))
    word = "held" if held == len(bars) else "MISSED"
    nearest = f"{worst['name']} {worst['figure']:.4g} (at most {worst['at_most']:g})"
    return f"{word}, {held} of {len(bars)} bars; nearest: {nearest}"


def _module(name: str) -> str:
    if name not in CHECKS:
        raise InputError(f"expected one of {', '.join(CHECKS)}, got '{name}'")
    return CHECKS[name]


def _run(name: str, *options: str) -> tuple[int, dict[str, Any]]:
    """Run a benchmark in a process of its own; its progress is seen as it goes."""
    module = _module(name)
    judges_only = name == "claims" and "--check" in options  # compares committed files
    if name not in WITHOUT_DATA and not judges_only and "--help" not in options:
        from offramp_bench.cifar import data_folder

        data_folder()  # now, with one line that says what to set; the benchmark would end with a traceback
    command = [sys.executable, "-m", f"offramp_bench.{module}", *options]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    try:
        printed = json.loads(done.stdout)
    except ValueError:
        print(done.stdout, end="")
        return done.returncode, {}
    return done.returncode, printed


def main() -> None:
    """Run the command line; an error of offramp is one line."""
    try:
        app()
    except OfframpError as error:
        print(f"offramp-bench: {error}", file=sys.stderr)
        sys.exit(1)
