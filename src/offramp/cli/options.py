"""What several verbs take, described once."""

from pathlib import Path
from typing import Annotated, Literal

import typer

__all__ = [
    "DATA",
    "DEFAULT_POOLING",
    "KINDS_OF_DATA",
    "AccuracyOption",
    "AnyBackboneOption",
    "AnywayOption",
    "ArtifactArgument",
    "BackboneOption",
    "ClassesOption",
    "ClusterOption",
    "ColumnOption",
    "ConfidenceOption",
    "CostOption",
    "DataOption",
    "ExitsOption",
    "JsonOption",
    "LabelOption",
    "LatencyBatchOption",
    "LatencyMsOption",
    "LatencyOption",
    "LossOption",
    "MaxDropOption",
    "MethodOption",
    "PolicyOption",
    "PoolingOption",
    "SplitOption",
    "StoreOption",
    "TrustOption",
    "WorkersOption",
]

DATA = "The data"
"""Title of the options that say what to read."""

KINDS_OF_DATA = (
    "a folder of images (a sub-folder a class), CSV, TSV or text (also .gz), npz; or what the datasets library reads "
    "(extra datasets): a folder of save_to_disk, Parquet, JSON, Arrow or WebDataset (.tar) files, a pattern such as "
    "'shards/*.parquet', or an address such as hf://datasets/user/pets/train.parquet."
)
"""What data may be."""

DEFAULT_POOLING = "rich"
"""That of `offramp.backbone`, which would import torch; a test compares the two."""

_NETWORK, _POINT, _MANY = "The network", "The operating point", "Many workers"

_BACKBONE = typer.Option(
    "--model",
    "-t",
    metavar="NAME",
    help="Your network: [bold]hf:FOLDER[/bold] that save_pretrained wrote, tokenizer included; "
    "[bold]timm:NAME[/bold] or [bold]torchvision:NAME[/bold] with [bold],weights=FILE[/bold]; or "
    "[bold]package:function[/bold], in this folder or on Python's path, where the function returns "
    "[bold]offramp.split(model, example)[/bold]. Arguments follow after commas: [bold]models:make,depth=12[/bold]. "
    "Give it twice for a cascade, the cheaper network first.",
    rich_help_panel=_NETWORK,
)

BackboneOption = Annotated[list[str], _BACKBONE]

AnyBackboneOption = Annotated[list[str] | None, _BACKBONE]

TrustOption = Annotated[
    list[str] | None,
    typer.Option(
        "--trust",
        metavar="NAME",
        help="[bold]package:function[/bold] of third-party code that you allow to run: what makes the artifact's "
        "network, a method, a policy, exits, a pooling. Give it again for each. [dim]Without it: only registered "
        "names.[/dim]",
        rich_help_panel=_NETWORK,
    ),
]

DataOption = Annotated[
    str,
    typer.Option(
        "--data",
        "-d",
        metavar="PATH",
        help=KINDS_OF_DATA[0].upper() + KINDS_OF_DATA[1:],
        rich_help_panel=DATA,
    ),
]

LabelOption = Annotated[
    str, typer.Option(metavar="NAME", help="Column of the labels.", rich_help_panel=DATA, show_default=True)
]

ColumnOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Column of the inputs. [dim]Without it: text, else image, else all columns but the label, as numbers."
        "[/dim]",
        rich_help_panel=DATA,
    ),
]

SplitOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Which split, where the data has several: a folder of folders, or a Hugging Face dataset saved to disk.",
        rich_help_panel=DATA,
    ),
]

ClassesOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Names of the classes in the order of the network's outputs, one a line, for a network that does not know "
        "them. [dim]Without it: numbers as they stand, names sorted.[/dim]",
        rich_help_panel=DATA,
    ),
]

AnywayOption = Annotated[
    bool,
    typer.Option(
        "--anyway",
        metavar="",
        help="Go on, with a warning, where the network itself is no better than guessing the commonest class.",
    ),
]

StoreOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER",
        help="Keep the network's features here: an interrupted run goes on from them, and the same data is not run "
        "again. [dim]Without it: they are thrown away at the end.[/dim]",
    ),
]

ExitsOption = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="N",
        help="Exits of a network at most, evenly spread over its cost: each takes time, and in a cascade three or four "
        "do as well as all. [dim]Without it: one after every stage.[/dim]",
    ),
]

MethodOption = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        autocompletion=lambda: ["classifiers", "default", "distilled", "paper"],
        help="How exits are trained: default, ours; paper, as JEI-DNN does; distilled; classifiers, without gates; a "
        "method of an installed package; or [bold]package:function[/bold] with --trust.",
    ),
]

PoolingOption = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="What exits see of a stage: grid, mean or first; auto chooses by what the stage gives, rich adds the "
        "largest numbers to the means of maps and patches.",
    ),
]

ArtifactArgument = Annotated[
    Path, typer.Argument(metavar="ARTIFACT", help="Folder that [bold]offramp fit[/bold] wrote.", show_default=False)
]

CostOption = Annotated[
    float | None,
    typer.Option(
        metavar="SHARE",
        help="Spend at most this share of the network's compute on samples like those of the tune split, such as 0.6; "
        "harder ones cost more (--budget of predict keeps an average). [dim]Without it: --max-drop 0.01 where "
        "the calibrate split allows that, else the cheapest point not below the full network on the tune split.[/dim]",
        rich_help_panel=_POINT,
    ),
]

AccuracyOption = Annotated[
    float | None,
    typer.Option(
        metavar="SHARE",
        help="Instead of --cost: reach this accuracy on the tune split, such as 0.93, as cheaply as can be.",
        rich_help_panel=_POINT,
    ),
]

LatencyMsOption = Annotated[
    float | None,
    typer.Option(
        "--latency-ms",
        metavar="MS",
        help="Instead of --cost: take at most so many milliseconds a sample on average, such as 2.5, by what --latency "
        "says. [dim]Without it: as --cost or --accuracy say.[/dim]",
        rich_help_panel=_POINT,
    ),
]

LatencyOption = Annotated[
    Path | None,
    typer.Option(
        "--latency",
        metavar="FILE",
        help="What [bold]offramp inspect --measure --out FILE[/bold] measured: costs are then times on that machine. "
        "[dim]Without it: Mul-Adds, unless the exits were fitted by times.[/dim]",
        rich_help_panel=_POINT,
    ),
]

LatencyBatchOption = Annotated[
    int | None,
    typer.Option(
        "--latency-batch-size",
        min=1,
        metavar="N",
        help="With --latency: times are those of batches of so many samples, read off straight lines between the sizes "
        "measured. [dim]Without it: 1.[/dim]",
        rich_help_panel=_POINT,
    ),
]

MaxDropOption = Annotated[
    float | None,
    typer.Option(
        "--max-drop",
        metavar="SHARE",
        help="Instead of --cost: lose at most this share to the full network, such as 0.01 for one point, as a promise "
        "made from the calibrate split. [dim]Without it: 0.01, if nothing else is asked for and it can be promised."
        "[/dim]",
        rich_help_panel=_POINT,
    ),
]

ConfidenceOption = Annotated[
    float | None,
    typer.Option(
        metavar="SHARE",
        help="With --max-drop: how sure the promise is. [dim]Without it: 0.95.[/dim]",
        rich_help_panel=_POINT,
    ),
]

LossOption = Annotated[
    Literal["accuracy", "disagreement", "brier"] | None,
    typer.Option(
        metavar="NAME",
        help="With --max-drop: what is lost. accuracy; disagreement, the share of answers that change, which needs no "
        "labels; brier, the Brier score. [dim]Without it: accuracy.[/dim]",
        rich_help_panel=_POINT,
    ),
]

PolicyOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="What decides who leaves: stopping (where going on is not worth its price), threshold or gates. "
        "[dim]Without it: the first that fit was asked for, stopping by default.[/dim]",
        rich_help_panel=_POINT,
    ),
]

WorkersOption = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="N",
        help="Share the work among N processes of this machine; with --cluster, among at most N of the cluster's. "
        "[dim]Without it and --cluster: this process alone.[/dim]",
        rich_help_panel=_MANY,
    ),
]

ClusterOption = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS",
        help="Share it among the machines of a Ray cluster: host:port, or auto for the one this machine is of. They "
        "need the same packages, and must find all files under the same paths. [dim]Without it: this machine.[/dim]",
        rich_help_panel=_MANY,
    ),
]

JsonOption = Annotated[
    bool, typer.Option("--json", metavar="", help="Print JSON, for other programs, instead of a table.")
]
