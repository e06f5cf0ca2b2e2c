"""`offramp recalibrate`."""

from pathlib import Path
from typing import Annotated

import typer

from offramp.cli.choosing import warn_of_full_sets
from offramp.cli.console import print_json, say
from offramp.cli.options import (
    AnywayOption,
    ArtifactArgument,
    ClassesOption,
    ColumnOption,
    DataOption,
    DeviceOption,
    JsonOption,
    LabelOption,
    SplitOption,
    StoreOption,
    TrustOption,
)
from offramp.cli.places import check_artifact
from offramp.errors import InputError

__all__ = ["recalibrate"]


def recalibrate(
    artifact: ArtifactArgument,
    data: DataOption,
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="FOLDER", help="New folder for the recalibrated artifact.")
    ],
    labelled: Annotated[
        bool,
        typer.Option(
            "--labelled",
            metavar="",
            help="Use the labels of the data: accuracy can then be guaranteed too, and prediction sets are "
            "recalibrated. [dim]Without it: labels are ignored.[/dim]",
        ),
    ] = False,
    backend: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Tune the artifact on a backend first: int8, bfloat16, onnx or eager. --data are then labelled "
            "validation samples; those of [bold]fit[/bold] may be used again. [dim]Without it: on the backend that it "
            "has.[/dim]",
        ),
    ] = None,
    label: LabelOption = "label",
    column: ColumnOption = None,
    split: SplitOption = None,
    classes: ClassesOption = None,
    store: StoreOption = None,
    device: DeviceOption = None,
    trust: TrustOption = None,
    anyway: AnywayOption = False,
    as_json: JsonOption = False,
) -> None:
    """Recalibrate an artifact on new samples, such as recent traffic; labels are not needed.

    The full network runs over them once. How often the points agree with it is the basis of the guarantees of
    [bold]--max-drop --loss disagreement[/bold] of the other commands. Points and their costs do not change; without
    labels, prediction sets do not change either. The exits must not have been fitted or tuned on these samples.

    [bold]--backend[/bold] makes an artifact that runs on another backend, such as int8. The network runs over labelled
    validation samples on that backend; one half of them tunes temperatures and points on its numbers, the other half
    calibrates. The exits stay as they are.

    [bold]Example[/bold]: offramp recalibrate my-offramp --data recent.csv --out my-offramp-recent

    [bold]Example[/bold]: offramp recalibrate my-offramp --backend int8 --data validation.csv --out my-offramp-int8
    """
    from offramp.cli.datasets import Columns, check_inputs, classes_for, feature_folder, open_labelled
    from offramp.cli.networks import open_artifact, trust_options
    from offramp.data import open_data
    from offramp.model._backends import backend_name
    from offramp.runtime import BACKENDS

    if out.resolve() == artifact.resolve():
        raise InputError("--out", expected="another folder than the artifact's", got=str(out), hint="choose a new one")
    model = open_artifact(artifact, trust, device=device)
    if backend is not None:
        BACKENDS.get(backend)  # refuse an unknown name before any work
        labelled = True
    if not labelled and classes is not None:
        raise InputError(
            expected="--labelled with --classes",
            got="only --classes",
            hint="add --labelled: without it labels are ignored",
        )
    columns = Columns(label, column, split)
    if labelled:
        named = classes_for(model, classes)
        source = open_labelled(data, model.backbone, columns, classes=named, preprocessing=model.preprocessing)
    else:
        source = open_data(data, **vars(columns))
        check_inputs(data, source, model.backbone, model.preprocessing)
    check_artifact(out)
    with feature_folder(store) as folder:
        if backend is None:
            recalibrated = model.recalibrate(source, labelled=labelled, store=folder, progress=not as_json)
            samples = recalibrated.provenance["recalibrated"]["samples"]
        else:
            recalibrated = model.with_backend(backend, source, store=folder, anyway=anyway, progress=not as_json)
            samples = recalibrated.provenance["splits"]["calibrate"]["samples"]
        recalibrated.save(out)
    warn_of_full_sets(recalibrated)
    if as_json:
        summary = {"artifact": str(out), "samples": samples, "labelled": labelled}
        print_json({**summary, "backend": backend_name(recalibrated)})
        return
    losses = "accuracy, disagreement and Brier score" if labelled else "disagreement with the full network"
    sets = "Prediction sets are recalibrated." if labelled else "Prediction sets are unchanged."
    name = Path(data).absolute().name
    if backend is not None:
        tuned = recalibrated.provenance["splits"]["tune"]["samples"]
        say(f"{recalibrated.backbone.name} is tuned on the backend '{backend}', with {tuned:,} samples of {name}.")
    say(f"{recalibrated.backbone.name} is calibrated on {samples:,} samples of {name}, saved in {out}. {sets}")
    say(f"It can guarantee {losses}, once; decide on the numbers beforehand:")
    loss = "" if labelled else " --loss disagreement"
    say(f"  offramp predict {out} --max-drop 0.02{loss} --data NEW --out answers.csv{trust_options(recalibrated)}")
