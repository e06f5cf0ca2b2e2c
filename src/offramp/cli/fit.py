"""`offramp fit`."""

import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from offramp.cli.choosing import read_latency, warn_of_full_sets
from offramp.cli.console import print_json, print_text, resumable, say
from offramp.cli.options import (
    DATA,
    DEFAULT_POOLING,
    KINDS_OF_DATA,
    AnywayOption,
    BackboneOption,
    ClassesOption,
    ColumnOption,
    DeviceOption,
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
    from offramp.data._dataset import Dataset
    from offramp.methods import Method
    from offramp.model._model import EarlyExitModel

__all__ = ["describe", "fit"]


def fit(
    backbone: BackboneOption,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FOLDER", help="Folder to save the artifact in.")],
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
            help="Samples the network was not trained on, to tune and calibrate the points. [dim]Without it: a fifth "
            "of --train, which is valid only if the network was not trained on it.[/dim]",
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
            help="Passes over the features: of the exits and, if the method trains gates, as many with gates. "
            "[dim]Without it: 10; with the paper's method 5 and 10.[/dim]",
        ),
    ] = None,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Policy to offer operating points of; repeat it for each. [dim]Without it: threshold, stopping, and "
            "gates if the method trains some.[/dim]",
        ),
    ] = None,
    trust: TrustOption = None,
    seed: Annotated[int, typer.Option(metavar="N", help="Seed of all random numbers.")] = 0,
    exits: ExitsOption = None,
    latency: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="File that [bold]offramp inspect --measure --out FILE[/bold] wrote for this network, with the same "
            "--exits and --method: costs are then times. [dim]Without it: Mul-Adds.[/dim]",
        ),
    ] = None,
    latency_batch_size: LatencyBatchOption = None,
    pooling: PoolingOption = DEFAULT_POOLING,
    sets_by_class: Annotated[
        bool,
        typer.Option(
            "--sets-by-class",
            metavar="",
            help="Calibrate prediction sets within each class: they then have the same coverage in every class, and "
            "are larger. A class needs some dozens of validation samples.",
        ),
    ] = False,
    store: StoreOption = None,
    device: DeviceOption = None,
    no_weights: Annotated[
        bool,
        typer.Option(
            "--no-weights",
            metavar="",
            help="Leave the network's own weights out of the artifact: it is smaller, and your function has to load "
            "them again.",
        ),
    ] = False,
    anyway: AnywayOption = False,
    as_json: JsonOption = False,
) -> None:
    """Attach exits to a frozen network and learn the trade-off between cost and accuracy.

    The network runs once over the data; everything after that works on its features.

    [bold]Example[/bold]: offramp fit --model models:make --train train.csv --validation val.csv --out my-offramp
    """
    from offramp.backbone._making import is_library_name
    from offramp.cli.datasets import Columns, classes_for, open_labelled
    from offramp.cli.networks import check_trusted, find_modules_here, make_network, trust_options
    from offramp.methods import METHODS
    from offramp.model._fitting import fit as fit_exits
    from offramp.model._options import CalibrationOptions, CostOptions, FittingOptions

    if no_weights and (named := next((spec for spec in backbone if is_library_name(spec)), None)):
        raise InputError(
            "--no-weights",
            expected="a network made by a function of yours, package:function",
            got=f"{named}, whose artifact could not be loaded without weights",
            hint="remove --no-weights",
        )
    find_modules_here()
    check_trusted((method, *(policy or ())), trust or ())
    settings = _method_settings(METHODS.get(method, trust=trust or ()), seed, epochs)
    network = make_network(backbone, to_save=True, device=device)
    columns = Columns(label, column, split)
    data = open_labelled(train, network, columns, classes=classes_for(network, classes))
    fitted, held_out = (
        _hold_out(data, seed, progress=not as_json)
        if validation is None
        else (data, open_labelled(validation, network, columns, classes=data.classes))
    )
    table, measured_batch_size = read_latency(latency, latency_batch_size)
    folder = out.with_name(f"{out.name}.features") if store is None else store
    check_artifact(out)
    check_writable(folder, "--store")
    with resumable(f"Run the same command again: it continues from {folder}."), lock_output(out):
        model = fit_exits(
            network,
            fitted,
            held_out,
            method=method,
            settings=settings,
            policies=policy,
            trust=trust or (),
            classes=data.classes,
            fitting=FittingOptions(pooling=pooling, max_exits=exits),
            calibration=CalibrationOptions(sets_by_class=sets_by_class),
            cost=CostOptions(table, measured_batch_size),
            device=device,
            store=folder,
            anyway=anyway,
            progress=not as_json,
        )
        model.save(out, weights=not no_weights)
        if store is None:
            _delete_features(folder, (fitted.name, held_out.name))
    warn_of_full_sets(model)
    if as_json:
        print_json({"artifact": str(out), **describe(model)})
        return
    print_text(str(model.frontier))
    say(f"Saved in {out}. Next, evaluate it on samples that neither the network nor the exits were fitted on:")
    say(f"  offramp evaluate {out} --data TEST --report {out}-report{trust_options(model)}")


def _method_settings(method: "Method", seed: int, epochs: int | None) -> Any:
    """Return a method's own settings with a seed and, if given, a number of epochs."""
    from offramp.methods._method import default_settings

    settings = default_settings(method)
    known = {field.name for field in fields(settings)} if is_dataclass(settings) else set()
    if epochs is not None and not {"warmup_epochs", "epochs"} <= known:
        raise InputError(
            expected="--epochs with a method that has warmup_epochs and epochs",
            got="another method",
            hint="leave --epochs out",
        )
    changes = {"seed": seed} if "seed" in known else {}
    if epochs is not None:
        changes |= {"warmup_epochs": epochs, "epochs": epochs if settings.epochs else 0}
    return replace(settings, **changes) if changes else settings


def _hold_out(data: "Dataset", seed: int, *, progress: bool) -> "tuple[Dataset, Dataset]":
    """Split data at random: four fifths to fit on and one to validate with; equal rows stay together."""
    from offramp.data._dataset import Subset
    from offramp.features import split_by_id
    from offramp.features._source import read_ids

    count = len(data) // 5
    if count < 2:
        raise InputError(expected="at least 10 samples to hold out a fifth of them", got=f"{len(data)}")
    say("No --validation: a fifth of --train is held out. Make sure the network was not trained on it.")
    ids = read_ids(data, progress=progress)
    rest, held_out = split_by_id(ids, (len(data) - count, count), seed=seed)
    return Subset(data, rest.tolist()), Subset(data, held_out.tolist())


def _delete_features(folder: Path, stores: Sequence[str]) -> None:
    """Delete the stores and checkpoints of a fit, and nothing else in the folder."""
    for name in stores:
        shutil.rmtree(folder / name, ignore_errors=True)
    for checkpoint in folder.glob("fit-*.safetensors"):
        checkpoint.unlink()
    with suppress(OSError):  # not empty
        folder.rmdir()


def describe(model: "EarlyExitModel") -> dict[str, Any]:
    """Return a model's properties and points as JSON content."""
    return {
        "network": model.backbone.name,
        "num_exits": model.backbone.num_exits,
        "num_classes": model.backbone.num_classes,
        "classes": list(model.classes),
        "full_accuracy": model.full_accuracy,
        "unit": {"name": model.unit.name, "full": model.unit.full},
        "preferred": model.policy,
        "points": {
            policy: [{**point.tune_metrics, "active": list(point.active)} for point in points]
            for policy, points in model.points.items()
        },
        "contributions": [vars(contribution) for contribution in model.contributions],
        "provenance": dict(model.provenance),
    }
