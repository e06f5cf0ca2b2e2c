"""`offramp export`."""

from pathlib import Path
from typing import Annotated

import typer

from offramp.cli.choosing import PointOptions, choose_point, with_point_options
from offramp.cli.console import print_json, say
from offramp.cli.options import (
    DATA,
    ArtifactArgument,
    ColumnOption,
    LabelOption,
    SplitOption,
    TrustOption,
)
from offramp.cli.places import check_writable
from offramp.errors import InputError

__all__ = ["export"]


@with_point_options
def export(
    format: Annotated[str, typer.Argument(metavar="onnx", help="Format to write: onnx.", show_default=False)],
    artifact: ArtifactArgument,
    out: Annotated[Path, typer.Argument(metavar="FOLDER", help="A new folder to write.", show_default=False)],
    point_options: PointOptions,
    data: Annotated[
        str | None,
        typer.Option(
            "--data",
            "-d",
            metavar="PATH",
            help="Inputs that graphs are checked with; the first is used. [dim]Without it: an error, unless the "
            "artifact was tuned on onnx or int8 and holds its graphs.[/dim]",
            rich_help_panel=DATA,
        ),
    ] = None,
    single: Annotated[
        bool,
        typer.Option(
            "--single",
            metavar="",
            help="Also write single.onnx: all stages in one graph, for one sample at a time, at the selected point.",
        ),
    ] = False,
    label: LabelOption = "label",
    column: ColumnOption = None,
    split: SplitOption = None,
    trust: TrustOption = None,
    as_json: Annotated[bool, typer.Option("--json", metavar="", help="Print a summary as JSON.")] = False,
) -> None:
    """Write the model into a folder that runs without PyTorch and without offramp.

    Writes ONNX graphs, a manifest with the operating points and the preprocessing, offramp_onnx.py, which runs them,
    and a README.md with the commands. It needs numpy and onnxruntime; tokenizers for texts, Pillow for images. Every
    graph is compared with PyTorch on the first input of --data, which needs no labels. --cost, --accuracy, --max-drop
    and --policy select the default point of the folder. A model that was tuned in int8 is exported in int8.

    [bold]Example[/bold]: offramp export onnx my-offramp graphs --data new.txt
    """
    from offramp.cli.datasets import check_inputs
    from offramp.cli.networks import open_artifact
    from offramp.data import open_data
    from offramp.runtime.onnx import export_onnx
    from offramp_onnx import read_manifest

    if format != "onnx":
        raise InputError("format", expected="onnx", got=f"'{format}'", hint="offramp export onnx ...")
    check_writable(out, "folder")
    model = choose_point(open_artifact(artifact, trust), point_options, artifact)
    example = None
    if data is not None:
        source = open_data(data, label=label, column=column, split=split)
        check_inputs(data, source, model.backbone, model.preprocessing)
        example = source.read(0, 1).inputs
    elif model.tuned_on is None:
        raise InputError(expected="--data PATH", got="none", hint="give a file of inputs that graphs are checked with")
    export_onnx(model, out, example=example, single=single)
    manifest = read_manifest(out)
    size, points = sum(path.stat().st_size for path in out.iterdir()), len(manifest["points"])
    summary = {"out": str(out), "points": points, "bytes": size, "default_point": manifest["default_point"]}
    if as_json:
        print_json(summary)
        return
    say(f"{model.backbone.num_exits} stages and {points} operating points in {out}, {size / 1e6:.1f} MB")
    say(f"run them: python {out}/offramp_onnx.py {out} --input FILE; {out}/README.md says more")
