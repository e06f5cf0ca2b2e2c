"""`offramp frontier`."""

from offramp.cli.console import print_json, print_text
from offramp.cli.fit import describe
from offramp.cli.options import ArtifactArgument, JsonOption, TrustOption

__all__ = ["frontier"]


def frontier(artifact: ArtifactArgument, trust: TrustOption = None, as_json: JsonOption = False) -> None:
    """Show the points of an artifact: what each costs, and how accurate it was on the tune split.

    Every point is in the artifact; [bold]--cost[/bold] or [bold]--accuracy[/bold] of the other commands picks one. The
    figures are of the split that chose the points: a little optimistic. Figures to quote come from [bold]offramp
    evaluate[/bold].

    [bold]Example[/bold]: offramp frontier my-offramp
    """
    from offramp.cli.networks import open_artifact

    found = open_artifact(artifact, trust)
    if as_json:
        print_json(describe(found))
    else:
        splits = found.provenance.get("splits", {})
        print_text(str(found))
        sizes = ", ".join(f"{part['samples']:,} to {name}" for name, part in splits.items())
        print_text(f"the full network: {100 * found.full_accuracy:.2f} %" + (f"; samples: {sizes}" if sizes else ""))
