"""Options that several commands share."""

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
    "ColumnOption",
    "ConfidenceOption",
    "CostOption",
    "DataOption",
    "DeviceOption",
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
    "fetch_artifact",
]

DATA = "The data"
"""Title of the options for data."""

KINDS_OF_DATA = (
    "a folder of images (one sub-folder per class), CSV, TSV or text (also .gz), npz; or, with the extra datasets, "
    "what the datasets library reads: a folder of save_to_disk, Parquet, JSON, Arrow or WebDataset (.tar) files, a "
    "pattern such as 'shards/*.parquet', or an address such as hf://datasets/user/pets/train.parquet."
)
"""Formats of data."""

DEFAULT_POOLING = "rich"
"""The default of `offramp.pooling`, which is not imported here because it imports torch; a test compares the two."""

_NETWORK, _POINT = "The network", "The operating point"

_BACKBONE = typer.Option(
    "--model",
    "-m",
    metavar="NAME",
    help="Your network: [bold]hf:FOLDER[/bold] that save_pretrained wrote, with its tokenizer; "
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
        help="[bold]package:function[/bold] of third-party code that may run: the function that makes the artifact's "
        "network, a method, a policy, exits, a pooling. Repeat it for each. [dim]Without it: only registered "
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
        help="Split to read, if the data has several: a folder of folders, or a Hugging Face dataset saved to disk.",
        rich_help_panel=DATA,
    ),
]

DeviceOption = Annotated[
    str | None,
    typer.Option(
        "--device",
        metavar="NAME",
        help="Device to run the network on, such as cuda. [dim]Without it: the CPU.[/dim]",
        rich_help_panel=_NETWORK,
    ),
]

ClassesOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Names of the classes in the order of the network's outputs, one per line, for a network that does not "
        "know them. [dim]Without it: numbers are used as they are, names are sorted.[/dim]",
        rich_help_panel=DATA,
    ),
]

AnywayOption = Annotated[
    bool,
    typer.Option(
        "--anyway",
        metavar="",
        help="Continue, with a warning, if the full network is no better than guessing the most frequent class.",
    ),
]

StoreOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER",
        help="Keep the network's features here: an interrupted run continues from them, and the network does not run "
        "over the same data again. [dim]Without it: they are deleted at the end.[/dim]",
    ),
]

ExitsOption = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="N",
        help="Maximum number of exits of a network, evenly spread over its cost: each takes time, and in a cascade "
        "three or four do as well as all. [dim]Without it: one after every stage.[/dim]",
    ),
]

MethodOption = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        autocompletion=lambda: ["classifiers", "default", "paper"],
        help="Training of the exits: default; paper, as in JEI-DNN; classifiers, without gates; a method of "
        "an installed package; or [bold]package:function[/bold] with --trust.",
    ),
]

PoolingOption = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="Features that exits see of a stage: grid, mean or first; auto chooses by the shape of the stage's "
        "output, rich adds maxima to the means of maps and patches.",
    ),
]


def fetch_artifact(ctx: typer.Context, artifact: Path | None) -> Path | None:
    """Return the folder of an artifact: for the address of a repository on the Hugging Face Hub, a downloaded one."""
    if ctx.resilient_parsing:  # the shell completes a line: nothing is imported or downloaded for that
        return artifact
    if artifact is None or not artifact.as_posix().startswith("hf:/"):  # `Path` makes one slash of two
        return artifact
    from offramp.model._hub import download  # imports torch

    return download(artifact)


ArtifactArgument = Annotated[
    Path,
    typer.Argument(
        metavar="ARTIFACT",
        help="Folder that [bold]offramp fit[/bold] wrote, or hf://owner/name on the Hugging Face Hub.",
        show_default=False,
        callback=fetch_artifact,
    ),
]

CostOption = Annotated[
    float | None,
    typer.Option(
        metavar="SHARE",
        help="Maximum relative cost on samples like those of the tune split, such as 0.6; harder samples cost more "
        "(--budget of predict keeps an average). [dim]Without it: --max-drop 0.01 if the calibrate split allows it, "
        "else the cheapest point that is not below the full network on the tune split.[/dim]",
        rich_help_panel=_POINT,
    ),
]

AccuracyOption = Annotated[
    float | None,
    typer.Option(
        metavar="SHARE",
        help="Instead of --cost: the cheapest point with this accuracy on the tune split, such as 0.93.",
        rich_help_panel=_POINT,
    ),
]

LatencyMsOption = Annotated[
    float | None,
    typer.Option(
        "--latency-ms",
        metavar="MS",
        help="Instead of --cost: maximum milliseconds per sample on average, such as 2.5, by the times of --latency. "
        "[dim]Without it: the point of --cost or --accuracy.[/dim]",
        rich_help_panel=_POINT,
    ),
]

LatencyOption = Annotated[
    Path | None,
    typer.Option(
        "--latency",
        metavar="FILE",
        help="File that [bold]offramp inspect --measure --out FILE[/bold] wrote: costs are then times on that machine. "
        "[dim]Without it: Mul-Adds, unless the exits were fitted with times.[/dim]",
        rich_help_panel=_POINT,
    ),
]

LatencyBatchOption = Annotated[
    int | None,
    typer.Option(
        "--latency-batch-size",
        min=1,
        metavar="N",
        help="With --latency: batch size that the times are for, interpolated linearly between the sizes measured. "
        "[dim]Without it: the smallest one measured.[/dim]",
        rich_help_panel=_POINT,
    ),
]

MaxDropOption = Annotated[
    float | None,
    typer.Option(
        "--max-drop",
        metavar="SHARE",
        help="Instead of --cost: guarantee that at most this share is lost against the full network, such as 0.01 for "
        "one point; the guarantee comes from the calibrate split. [dim]Without it: 0.01, if no other point is "
        "requested and it can be guaranteed.[/dim]",
        rich_help_panel=_POINT,
    ),
]

ConfidenceOption = Annotated[
    float | None,
    typer.Option(
        metavar="SHARE",
        help="With --max-drop: confidence of the guarantee. [dim]Without it: 0.95.[/dim]",
        rich_help_panel=_POINT,
    ),
]

LossOption = Annotated[
    Literal["accuracy", "disagreement", "brier"] | None,
    typer.Option(
        metavar="NAME",
        help="With --max-drop: the loss. accuracy; disagreement, the share of answers that change, which needs no "
        "labels; brier, the Brier score. [dim]Without it: accuracy.[/dim]",
        rich_help_panel=_POINT,
    ),
]

PolicyOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Rule by which samples leave: threshold, stopping (optimal stopping) or gates. "
        "[dim]Without it: the first policy given to fit, threshold by default.[/dim]",
        rich_help_panel=_POINT,
    ),
]

JsonOption = Annotated[
    bool, typer.Option("--json", metavar="", help="Print JSON, for other programs, instead of a table.")
]
