"""`offramp fit`."""

import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from offramp.cli.choosing import read_latency, warn_of_full_sets
from offramp.cli.console import print_json, print_text, say, warn
from offramp.cli.datasets import Columns, open_labelled, read_classes
from offramp.cli.interrupts import resumable
from offramp.cli.networks import make_network, trusting
from offramp.cli.options import (
    DATA,
    KINDS_OF_DATA,
    ClassesOption,
    ColumnOption,
    ExitsOption,
    JsonOption,
    LabelOption,
    LatencyBatchOption,
    MethodOption,
    PoolingOption,
    SplitOption,
    StoreOption,
    TrunkOption,
)
from offramp.cli.places import check_artifact, check_writable
from offramp.data import Dataset, Location, Subset, locate
from offramp.errors import InputError
from offramp.features import sample_ids, split_by_id
from offramp.frontier import Frontier, save
from offramp.frontier import fit as fit_exits
from offramp.methods import DEFAULT, PAPER
from offramp.trunk import DEFAULT_POOLING

__all__ = ["describe", "fit"]


def fit(
    trunk: TrunkOption,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FOLDER", help="Where to save the result, the artifact.")],
    train: Annotated[
        Location,
        typer.Option(
            metavar="PATH",
            parser=locate,
            help=f"Samples to fit exits on: {KINDS_OF_DATA}",
            rich_help_panel=DATA,
        ),
    ],
    validation: Annotated[
        Location | None,
        typer.Option(
            metavar="PATH",
            parser=locate,
            help="Samples the network was not trained on: they choose the points and calibrate them. [dim]Without it: "
            "a fifth of --train, which is right only if the network has not seen --train.[/dim]",
            rich_help_panel=DATA,
        ),
    ] = None,
    label: LabelOption = "label",
    column: ColumnOption = None,
    split: SplitOption = None,
    classes: ClassesOption = None,
    method: MethodOption = "default",
    epochs: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Passes over the features, first for classifiers, then as many for gates. [dim]Without it: 8 and 2; "
            "of the paper's method 5 and 10.[/dim]",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(metavar="N", help="Every random number follows from it.")] = 0,
    exits: ExitsOption = None,
    latency: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="What [bold]offramp inspect --measure --out FILE[/bold] measured of this network, with the same "
            "--exits and --method: exits are then trained and chosen by time. [dim]Without it: by Mul-Adds.[/dim]",
        ),
    ] = None,
    latency_batch_size: LatencyBatchOption = None,
    pooling: PoolingOption = DEFAULT_POOLING,
    sets_by_class: Annotated[
        bool,
        typer.Option(
            "--sets-by-class",
            metavar="",
            help="Calibrate prediction sets within each class: they then hold the true class as often in every class "
            "as overall, and are larger. A class needs some dozens of validation samples.",
        ),
    ] = False,
    store: StoreOption = None,
    no_weights: Annotated[
        bool,
        typer.Option(
            "--no-weights",
            metavar="",
            help="Leave the network's own weights out of the artifact; it is smaller, and your function has to bring "
            "them again.",
        ),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Attach exits to a frozen network and learn the whole trade-off between cost and accuracy.

    The network runs once over the data; everything after that works on its features.

    [bold]Example[/bold]: offramp fit --trunk models:make --train train.csv --validation val.csv --out my-offramp
    """
    network = make_network(trunk, to_save=True)
    columns = Columns(label, column, split)
    data = open_labelled(train, network, columns, classes=read_classes(classes))
    fitted, held_out = (
        _halved(data, seed)
        if validation is None
        else (data, open_labelled(validation, network, columns, classes=data.classes))
    )
    _check_apart(fitted, held_out)
    settings = replace(PAPER if method == "paper" else DEFAULT, seed=seed)
    if epochs is not None:
        settings = replace(settings, warmup_epochs=epochs, epochs=epochs)
    table, times_of = read_latency(latency, latency_batch_size)
    folder = out.with_name(f"{out.name}.features") if store is None else store
    check_artifact(out)
    check_writable(folder, "--store")
    with resumable(f"Run the same command again: it goes on from {folder}."):
        frontier = fit_exits(
            network,
            fitted,
            held_out,
            pooling=pooling,
            exits=exits,
            settings=settings,
            classes=data.classes,
            latency=table,
            batch_size=times_of,
            sets_by_class=sets_by_class,
            store=folder,
            progress=not as_json,
        )
        _check_classes(frontier, data.classes)
        save(frontier, out, weights=not no_weights)
    if store is None:
        _remove(folder, (fitted.name, held_out.name))
    warn_of_full_sets(frontier)
    if as_json:
        print_json({"artifact": str(out), **describe(frontier)})
        return
    print_text(str(frontier))
    say(f"Saved in {out}. Next, on samples that neither network nor exits have seen:")
    say(f"  offramp evaluate {out} --data TEST --report {out}-report{trusting(frontier)}")


def _halved(data: Dataset, seed: int) -> tuple[Dataset, Dataset]:
    """Four fifths to fit on, one to validate with, drawn at random."""
    count = len(data) // 5
    if count < 2:
        raise InputError(f"expected at least 10 samples to hold out a fifth of them, got {len(data)}")
    say("No --validation: a fifth of --train is held out. Make sure the network was not trained on it.")
    ids = sample_ids(data.name, range(len(data)))  # the data's own would be read with all inputs
    rest, held_out = split_by_id(ids, (len(data) - count, count), seed=seed)
    return Subset(data, rest.tolist()), Subset(data, held_out.tolist())


def _check_apart(fitted: Dataset, held_out: Dataset) -> None:
    """Refuse the same file as both: ids are of content and row, so the first rows tell."""
    if fitted.read(0, 1).ids[0] == held_out.read(0, 1).ids[0]:
        raise InputError(
            "--train and --validation are the same samples; give others, or leave --validation out to hold out a fifth"
        )


def _remove(folder: Path, stores: Sequence[str]) -> None:
    """Throw away what a fit kept, and nothing else that may lie there."""
    for name in stores:
        shutil.rmtree(folder / name, ignore_errors=True)
    for checkpoint in folder.glob("fit-*.safetensors"):
        checkpoint.unlink()
    with suppress(OSError):  # not empty
        folder.rmdir()


def _check_classes(frontier: Frontier, classes: Sequence[str]) -> None:
    """Notice classes in another order than the network's: nothing else would."""
    chance = 1 / frontier.trunk.num_classes
    if frontier.full_accuracy < 2 * chance and frontier.full_accuracy < 0.5:
        order = f" The order now is: {', '.join(classes[:5])}, ..." if classes else ""
        warn(
            f"the network itself is right {100 * frontier.full_accuracy:.1f} % of the time, hardly more than chance. "
            "Are the classes in the order of its outputs? Say so with --classes FILE. Is the preprocessing its own?"
            f"{order}"
        )


def describe(frontier: Frontier) -> dict[str, Any]:
    """A frontier as JSON tells it."""
    return {
        "network": frontier.trunk.name,
        "num_exits": frontier.trunk.num_exits,
        "num_classes": frontier.trunk.num_classes,
        "classes": list(frontier.classes),
        "full_accuracy": frontier.full_accuracy,
        "bare_ms": frontier.bare_ms,
        "preferred": frontier.preferred,
        "points": {
            policy: [{**point.promised, "active": list(point.active)} for point in listed]
            for policy, listed in frontier.points.items()
        },
        "contributions": [vars(one) for one in frontier.contributions],
        "provenance": dict(frontier.provenance),
    }
