"""`offramp demo`."""

from pathlib import Path
from typing import Annotated

import typer

from offramp.cli.console import print_json, print_text, resumable, say
from offramp.cli.options import JsonOption
from offramp.cli.places import check_writable

__all__ = ["demo"]


def demo(
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="FOLDER", help="Folder for artifact, features and report.")
    ] = Path("offramp-demo"),
    as_json: JsonOption = False,
) -> None:
    r"""Run a complete example in a minute, without downloads: from training two networks on digits to a report.

    A small transformer is trained on scikit-learn's images of digits, and a cheaper network to run before it. Exits are
    fitted to both, saved, and evaluated on held-out images.

    Needs [bold]pip install 'offramp\[demo]'[/bold].

    [bold]Example[/bold]: offramp demo
    """
    from offramp.demo._run import report, run
    from offramp.report._words import verdict

    check_writable(out, "--out")
    with resumable(f"Run the same command again; delete {out} to start from the beginning."):
        model = run(out, progress=not as_json)
        findings, page = report(model, out, progress=not as_json)
    if as_json:
        print_json({**findings.to_json(), "artifact": str(out / "artifact"), "report": str(page)})
        return
    print_text(str(model.frontier))
    print_text(verdict(findings))
    say(f"Report, for a browser: {page}")
    say(f"All operating points: offramp inspect {out / 'artifact'}")
    say(f"Serve it: offramp serve {out / 'artifact'} --cost 0.5")
