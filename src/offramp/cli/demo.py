"""`offramp demo`."""

from pathlib import Path
from typing import Annotated

import typer

from offramp.cli.console import print_json, print_text, say
from offramp.cli.interrupts import resumable
from offramp.cli.options import JsonOption
from offramp.cli.places import check_writable

__all__ = ["demo"]


def demo(
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="FOLDER", help="Where everything goes: artifact, features, report.")
    ] = Path("offramp-demo"),
    as_json: JsonOption = False,
) -> None:
    r"""See it work in a minute, with nothing downloaded: from training two networks on digits to a report.

    A small transformer is trained on scikit-learn's images of digits, and a cheaper network to go before it; exits are
    fitted to both, saved, and measured on images that nothing has seen.

    Needs [bold]pip install 'offramp\[demo]'[/bold].

    [bold]Example[/bold]: offramp demo
    """
    from offramp.demo import report, run
    from offramp.report import verdict

    check_writable(out, "--out")
    with resumable(f"Run the same command again; delete {out} to start from nothing."):
        frontier = run(out, progress=not as_json)
        found, page = report(frontier, out, progress=not as_json)
    if as_json:
        print_json({**found.to_json(), "artifact": str(out / "artifact"), "report": str(page)})
        return
    print_text(str(frontier))
    print_text(verdict(found))
    say(f"Report, for a browser: {page}")
    say(f"All points, to choose from: offramp inspect {out / 'artifact'}")
