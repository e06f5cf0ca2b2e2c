"""`offramp fit`."""

import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from offramp.cli.choosing import read_latency, warn_of_full_sets
from offramp.cli.console import print_json, print_text, say
from offramp.cli.interrupts import resumable
from offramp.cli.options import (
    DATA,
    DEFAULT_POOLING,
    KINDS_OF_DATA,
    AnywayOption,
    BackboneOption,
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
    TrustOption,
)
from offramp.cli.places import check_artifact, check_writable, lock_output
from offramp.errors import InputError

if TYPE_CHECKING:
    from offramp.data import Dataset
    from offramp.frontier import Frontier
    from offramp.methods import Method

__all__ = ["describe", "fit"]


def fit(
    backbone: BackboneOption,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FOLDER", help="Where to save the result, the artifact.")],
    train: Annotated[
        str,
        typer.Option(
            metavar="PATH",
            help=f"Samples to fit exits on: {KINDS_OF_DATA}",
            rich_help_panel=DATA,
        ),
    ],
    validation: Annotated[
        str | None,
        typer.Option(
            metavar="PATH",
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
    policy: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="What may decide who leaves: a policy to offer points of; give it again for each. [dim]Without it: "
            "stopping, threshold, and gates where the method trains some.[/dim]",
        ),
    ] = None,
    trust: TrustOption = None,
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
    anyway: AnywayOption = False,
    as_json: JsonOption = False,
) -> None:
    """Attach exits to a frozen network and learn the whole trade-off between cost and accuracy.

    The network runs once over the data; everything after that works on its features.

    [bold]Example[/bold]: offramp fit --model models:make --train train.csv --validation val.csv --out my-offramp
    """
    from offramp.backbone.spec import is_library_name
    from offramp.cli.datasets import Columns, classes_for, open_labelled
    from offramp.cli.networks import check_trusted, find_modules_here, make_network, trusting
    from offramp.frontier import fit as fit_exits
    from offramp.frontier import save
    from offramp.methods import METHODS

    if no_weights and (named := next((spec for spec in backbone if is_library_name(spec)), None)):
        raise InputError(
            f"expected --no-weights with networks of your own functions, got it with {named}: an artifact of it could "
            "not be loaded; leave --no-weights out"
        )
    find_modules_here()
    check_trusted((method, *(policy or ())), trust or ())
    settings = _settings(METHODS.get(method, trust=trust or ()), seed, epochs)
    network = make_network(backbone, to_save=True)
    columns = Columns(label, column, split)
    data = open_labelled(train, network, columns, classes=classes_for(network, classes))
    fitted, held_out = (
        _halved(data, seed, progress=not as_json)
        if validation is None
        else (data, open_labelled(validation, network, columns, classes=data.classes))
    )
    table, times_of = read_latency(latency, latency_batch_size)
    folder = out.with_name(f"{out.name}.features") if store is None else store
    check_artifact(out)
    check_writable(folder, "--store")
    with resumable(f"Run the same command again: it goes on from {folder}."), lock_output(out):
        frontier = fit_exits(
            network,
            fitted,
            held_out,
            pooling=pooling,
            exits=exits,
            method=method,
            settings=settings,
            policies=policy,
            trust=trust or (),
            classes=data.classes,
            latency=table,
            batch_size=times_of,
            sets_by_class=sets_by_class,
            store=folder,
            anyway=anyway,
            progress=not as_json,
        )
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


def _settings(method: "Method", seed: int, epochs: int | None) -> Any:
    """Return a method's own settings with a seed, and with as many epochs as asked for."""
    from offramp.methods import default_settings

    settings = default_settings(method)
    known = {field.name for field in fields(settings)} if is_dataclass(settings) else set()
    if epochs is not None and not {"warmup_epochs", "epochs"} <= known:
        raise InputError("expected --epochs with a method that has warmup_epochs and epochs; leave --epochs out")
    changes = {"seed": seed} if "seed" in known else {}
    if epochs is not None:
        changes |= {"warmup_epochs": epochs, "epochs": epochs}
    return replace(settings, **changes) if changes else settings


def _halved(data: "Dataset", seed: int, *, progress: bool) -> "tuple[Dataset, Dataset]":
    """Four fifths to fit on, one to validate with, drawn at random; equal rows stay together."""
    from offramp.data import Subset
    from offramp.features import split_by_id
    from offramp.features.source import read_ids

    count = len(data) // 5
    if count < 2:
        raise InputError(f"expected at least 10 samples to hold out a fifth of them, got {len(data)}")
    say("No --validation: a fifth of --train is held out. Make sure the network was not trained on it.")
    ids = read_ids(data, progress=progress)
    rest, held_out = split_by_id(ids, (len(data) - count, count), seed=seed)
    return Subset(data, rest.tolist()), Subset(data, held_out.tolist())


def _remove(folder: Path, stores: Sequence[str]) -> None:
    """Throw away what a fit kept, and nothing else that may lie there."""
    for name in stores:
        shutil.rmtree(folder / name, ignore_errors=True)
    for checkpoint in folder.glob("fit-*.safetensors"):
        checkpoint.unlink()
    with suppress(OSError):  # not empty
        folder.rmdir()


def describe(frontier: "Frontier") -> dict[str, Any]:
    """A frontier as JSON tells it."""
    return {
        "network": frontier.backbone.name,
        "num_exits": frontier.backbone.num_exits,
        "num_classes": frontier.backbone.num_classes,
        "classes": list(frontier.classes),
        "full_accuracy": frontier.full_accuracy,
        "full_ms": frontier.full_ms,
        "preferred": frontier.preferred,
        "points": {
            policy: [{**point.promised, "active": list(point.active)} for point in listed]
            for policy, listed in frontier.points.items()
        },
        "contributions": [vars(one) for one in frontier.contributions],
        "provenance": dict(frontier.provenance),
    }
