"""`offramp recalibrate`."""

from pathlib import Path
from typing import Annotated

import typer

from offramp.cli.choosing import warn_of_full_sets
from offramp.cli.console import print_json, say
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
from offramp.cli.places import check_artifact
from offramp.errors import InputError

__all__ = ["recalibrate"]


def recalibrate(
    artifact: ArtifactArgument,
    data: DataOption,
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="FOLDER", help="Where to save the artifact as it is then; a new one.")
    ],
    labelled: Annotated[
        bool,
        typer.Option(
            "--labelled",
            metavar="",
            help="Believe the labels of the data: accuracy can be promised too, and prediction sets are calibrated "
            "anew. [dim]Without it: labels, if there are any, are passed over.[/dim]",
        ),
    ] = False,
    label: LabelOption = "label",
    column: ColumnOption = None,
    split: SplitOption = None,
    classes: ClassesOption = None,
    store: StoreOption = None,
    trust: TrustOption = None,
    as_json: JsonOption = False,
) -> None:
    """Calibrate an artifact on new samples, such as recent traffic, for which no labels are needed.

    The full network runs over them once; how often the points agree with it is what [bold]--max-drop --loss
    disagreement[/bold] of the other commands then promises from. Points and their costs stay as they are; without
    labels, prediction sets too. The samples must be others than those that exits were fitted or tuned on.

    [bold]Example[/bold]: offramp recalibrate my-offramp --data recent.csv --out my-offramp-recent
    """
    from offramp.cli.datasets import Columns, check_taken, classes_for, kept_in, open_labelled
    from offramp.cli.networks import open_artifact, trusting
    from offramp.data import open_data
    from offramp.frontier import recalibrated, save

    if out.resolve() == artifact.resolve():
        raise InputError(f"expected --out to be another folder than the artifact's, got {out}; choose a new one")
    frontier = open_artifact(artifact, trust)
    if not labelled and classes is not None:
        raise InputError("expected --labelled with --classes, got only --classes: without it labels are passed over")
    columns = Columns(label, column, split)
    if labelled:
        named = classes_for(frontier, classes)
        source = open_labelled(data, frontier.backbone, columns, classes=named, preprocessing=frontier.preprocessing)
    else:
        source = open_data(data, **vars(columns))
        check_taken(data, source, frontier.backbone, frontier.preprocessing)
    check_artifact(out)
    with kept_in(store) as folder:
        found = recalibrated(frontier, source, labelled=labelled, store=folder, progress=not as_json)
        save(found, out)
    warn_of_full_sets(found)
    samples = found.provenance["recalibrated"]["samples"]
    if as_json:
        print_json({"artifact": str(out), "samples": samples, "labelled": labelled})
        return
    can = "accuracy, disagreement and Brier score" if labelled else "disagreement with the full network"
    sets = "Prediction sets are of them, too." if labelled else "Prediction sets are as they were."
    name = Path(data).absolute().name
    say(f"{found.backbone.name} is calibrated on {samples:,} samples of {name}, saved in {out}. {sets}")
    say(f"Promises can be made of {can}, once; decide on the numbers beforehand:")
    loss = "" if labelled else " --loss disagreement"
    say(f"  offramp predict {out} --max-drop 0.02{loss} --data NEW --out answers.csv{trusting(found)}")
