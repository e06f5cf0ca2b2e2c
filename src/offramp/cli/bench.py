"""`offramp bench`."""

import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from offramp.cli.console import print_json, print_table, print_text, say
from offramp.cli.interrupts import resumable
from offramp.cli.options import JsonOption
from offramp.cli.places import check_writable
from offramp.errors import InputError

if TYPE_CHECKING:
    from offramp.report.paper import PaperResults

__all__ = ["bench"]

RESULTS = Path("benchmarks") / "results" / "paper.json"
"""Where a checkout keeps the results."""

COMMAND: Sequence[str] = (sys.executable, "-m", "benchmarks.paper")
"""What computes them, in a checkout."""


def bench(
    what: Annotated[
        Literal["paper"], typer.Argument(metavar="WHAT", help="[bold]paper[/bold]: every figure and table of JEI-DNN.")
    ],
    results: Annotated[
        Path | None,
        typer.Argument(
            metavar="RESULTS",
            help="What the benchmark printed. [dim]Without it: benchmarks/results/paper.json below this folder.[/dim]",
            show_default=False,
        ),
    ] = None,
    into: Annotated[
        Path, typer.Option("--into", "-o", metavar="FILE", help="The page to write, one file for a browser.")
    ] = Path("paper.html"),
    recompute: Annotated[
        bool,
        typer.Option(
            "--recompute",
            metavar="",
            help="Compute the results first, in the checkout of offramp that RESULTS is in: hours from nothing, "
            "seconds where all is there. The real data is found through OFFRAMP_DATA.",
        ),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    r"""See every figure and table of the paper beside what a fair comparison gives, on one page.

    The benchmark fits the paper's method, its rivals, its ablations and offramp on the same frozen networks, cached
    features, splits and costs, and tests each claim of the paper: it holds, it does not, it is mixed, or it cannot be
    tested here. Its results are in a checkout of offramp; the page is written from them within a minute.

    With [bold]--recompute[/bold], what is there is not computed again: stop with Ctrl-C, go on with the same command.

    Needs [bold]pip install 'offramp\[report]'[/bold].

    [bold]Example[/bold]: offramp bench paper --into paper.html

    [bold]Example[/bold]: offramp bench paper ~/offramp/benchmarks/results/paper.json --recompute
    """
    from offramp.report.paper import read_results, write_paper_page

    check_writable(into.parent, "--into")
    import_module("offramp.report.canvas")  # a missing matplotlib is told of now, not after the long work
    where = RESULTS if results is None else results
    if recompute:
        with resumable("Run the same command again: what is computed is kept."):
            _compute(where)
    elif not where.exists():
        raise InputError(
            f"expected results of the benchmark at {where}, there are none; go to a checkout of offramp, name the file "
            "(offramp bench paper RESULTS), or compute it there with --recompute"
        )
    found = read_results(where)
    page = write_paper_page(found, into)
    if as_json:
        verdicts = {name: one.verdict for name, one in found.observations.items()}
        print_json({"page": str(page), "bars": [asdict(bar) for bar in found.bars], "verdicts": verdicts})
        return
    _tell(found)
    say(f"Page, for a browser: {page}")


def _compute(results: Path) -> None:
    """Run the benchmark and put what it prints where the results are, all of it or nothing."""
    # RESULTS is benchmarks/results/paper.json of a checkout.
    checkout = results.absolute().parents[2] if len(results.absolute().parents) > 2 else results.absolute().parent
    if not (checkout / "benchmarks" / "paper" / "__main__.py").exists():
        raise InputError(
            f"expected a checkout of offramp with benchmarks/paper around {results}, {checkout} is none; go to one, or "
            "name the results in it: CHECKOUT/benchmarks/results/paper.json"
        )
    results.parent.mkdir(parents=True, exist_ok=True)
    waiting = results.with_suffix(".part")
    try:
        with waiting.open("w", encoding="utf-8") as file:
            status = subprocess.run(COMMAND, cwd=checkout, stdout=file, check=False).returncode
        if status:
            raise InputError(
                f"'python -m benchmarks.paper' in {checkout} ended with status {status}; mend what it says above and "
                "run the same command again: what is computed is kept"
            )
        waiting.replace(results)
    finally:
        with suppress(OSError):
            waiting.unlink()


def _tell(found: "PaperResults") -> None:
    """The verdicts as a table, and the rest in a few sentences."""
    from offramp.report.paper.page import headline

    if found.observations:
        rows = [[name, one.verdict] for name, one in found.observations.items()]
        print_table("Claims of the paper", ["claim", "here"], rows)
    print_text(headline(found))
