"""`offramp compare`."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from offramp.cli.choosing import Wish, asking, choose
from offramp.cli.console import interval, points, print_json, print_table, print_text
from offramp.cli.options import (
    ArtifactArgument,
    ClassesOption,
    ColumnOption,
    DataOption,
    JsonOption,
    LabelOption,
    SplitOption,
    StoreOption,
    TrustOption,
)
from offramp.errors import InputError

__all__ = ["compare"]


@asking
def compare(
    artifact: ArtifactArgument,
    data: DataOption,
    wish: Wish,
    other: Annotated[Path | None, typer.Argument(metavar="OTHER", help="Another artifact.", show_default=False)] = None,
    trunk: Annotated[
        list[str] | None,
        typer.Option(
            "--trunk",
            "-t",
            metavar="NAME",
            help="Instead of another artifact: the network after an update, as [bold]fit[/bold] takes it, to see "
            "whether the exits still serve it.",
        ),
    ] = None,
    label: LabelOption = "label",
    column: ColumnOption = None,
    split: SplitOption = None,
    classes: ClassesOption = None,
    store: StoreOption = None,
    trust: TrustOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compare two artifacts on the same samples, or one before and after an update of its network.

    [bold]Example[/bold]: offramp compare old new --data test.csv

    [bold]Example[/bold]: offramp compare old --trunk models:updated --data test.csv
    """
    from offramp.cli.datasets import Columns, check_taken, classes_for, features_of, kept_in, open_labelled
    from offramp.cli.networks import make_network, open_artifact
    from offramp.frontier import check_comparable, on_trunk
    from offramp.frontier import compare as compare_frontiers

    first = open_artifact(artifact, trust)
    if (other is None) == (not trunk):
        raise InputError("expected another artifact, or the updated network with --trunk: one of the two")
    updated = make_network(trunk or ()) if other is None else None
    second = first if other is None else open_artifact(other, trust)
    check_comparable(first, second)
    networks = [choose(one, wish, path) for one, path in ((first, artifact), (second, other or artifact))]
    source = open_labelled(
        data,
        first.trunk,
        Columns(label, column, split),
        classes=classes_for(first, classes) or second.classes,
        preprocessing=first.preprocessing,
    )
    if updated is None:
        check_taken(data, source, second.trunk, second.preprocessing)
    else:
        check_taken(data, source, updated, updated.preprocessing)
        second = on_trunk(first, updated, source.read(0, 1).inputs)
    names = _names(artifact, other)
    with kept_in(store) as folder:
        sides = [
            (frontier, network.point, features_of(frontier, source, folder / place, progress=not as_json))
            for frontier, network, place in zip((first, second), networks, ("first", "second"), strict=True)
        ]
        found = compare_frontiers(sides[0], sides[1])
    if as_json:
        print_json({"names": names, **asdict(found)})
        return
    rows = [
        ["full network", *(f"{100 * one:.2f} %" for one in found.full_accuracies)],
        ["with exits", *(f"{100 * one:.2f} %" for one in found.accuracies)],
        ["cost, of its own network", *(f"{one:.3f}" for one in found.relative_costs)],
    ]
    print_table(f"{found.samples:,} samples of {Path(data).absolute().name}", ["", *names], rows)
    ends = found.cost_ratio_interval
    told = "n/a: one row" if ends is None else f"{ends[0]:.2f} to {ends[1]:.2f}"
    unit = "multiply-adds" if first.bare_ms is None else "milliseconds"
    print_text(
        f"{names[1]} changes accuracy by {points(found.gain)} points ({interval(found.gain_interval)}) at "
        f"{found.cost_ratio:.2f} ({told}) times the {unit}. They agree on "
        f"{100 * found.agreement:.1f} % of the samples; {100 * found.newly_wrong:.2f} % were right and are wrong now."
    )


def _names(artifact: Path, other: Path | None) -> tuple[str, str]:
    """What to call the two: folders in different places may have the same name."""
    if other is None:
        return artifact.name, "after the update"
    return (str(artifact), str(other)) if artifact.name == other.name else (artifact.name, other.name)
