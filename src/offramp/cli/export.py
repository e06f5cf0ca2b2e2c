"""`offramp export`."""

from pathlib import Path
from typing import Annotated

import typer

from offramp.cli.choosing import PointOptions, choose_point, with_point_options
from offramp.cli.console import print_json, say, warn
from offramp.cli.options import (
    ArtifactArgument,
    ColumnOption,
    DataOption,
    LabelOption,
    SplitOption,
    TrustOption,
)
from offramp.cli.places import check_writable
from offramp.errors import InputError

__all__ = ["export"]

CALIBRATION_ROWS = 256
"""Number of samples that calibrate the ranges of 8-bit numbers."""


@with_point_options
def export(
    format: Annotated[str, typer.Argument(metavar="onnx", help="Format to write: onnx.", show_default=False)],
    artifact: ArtifactArgument,
    out: Annotated[Path, typer.Argument(metavar="FOLDER", help="A new folder for the graphs.", show_default=False)],
    data: DataOption,
    point_options: PointOptions,
    single: Annotated[
        bool,
        typer.Option(
            "--single",
            metavar="",
            help="Also write single.onnx: all stages in one graph, for one sample at a time, at the selected point.",
        ),
    ] = False,
    int8: Annotated[
        bool,
        typer.Option(
            "--int8",
            metavar="",
            help="Compute stages in 8-bit integers, calibrated on the data; for images, not for texts.",
        ),
    ] = False,
    label: LabelOption = "label",
    column: ColumnOption = None,
    split: SplitOption = None,
    trust: TrustOption = None,
    as_json: Annotated[bool, typer.Option("--json", metavar="", help="Print a summary as JSON.")] = False,
) -> None:
    """Write the model as ONNX graphs, to run without PyTorch.

    Writes one graph per stage, exit and policy, and a manifest with all operating points of that policy that a budget
    can pick. offramp_onnx.load(FOLDER) runs them with numpy and onnxruntime alone. Every graph is compared with PyTorch
    while it is written. The data provides example inputs; it needs no labels. --cost, --accuracy, --max-drop and
    --policy select the point of --single.

    [bold]Example[/bold]: offramp export onnx my-offramp graphs --data new.txt
    """
    from offramp.cli.datasets import check_inputs
    from offramp.cli.networks import open_artifact
    from offramp.data import open_data
    from offramp.runtime import Dial
    from offramp.runtime._dial import same_decisions
    from offramp.runtime.onnx import export_onnx
    from offramp.runtime.onnx._int8 import check_int8

    if format != "onnx":
        raise InputError("format", expected="onnx", got=f"'{format}'", hint="offramp export onnx ...")
    field = next((name for name, value in vars(point_options).items() if value is not None), None)
    if field is not None and not single:
        option = f"--{field.replace('_', '-')}"
        raise InputError(
            expected=f"--single with {option}",
            got=f"only {option}",
            hint=f"add --single, or leave {option} out: the graphs hold all operating points",
        )
    if int8 and point_options.max_drop is not None:
        raise InputError(
            expected="--max-drop without --int8",
            got="both: the guarantee is for the network that was calibrated, not for 8-bit integers",
            hint="leave one out",
        )
    check_writable(out, "folder")
    model = open_artifact(artifact, trust)
    if int8:
        check_int8(model.backbone)
    source = open_data(data, label=label, column=column, split=split)
    check_inputs(data, source, model.backbone, model.preprocessing)
    rows = source.read(0, min(len(source), CALIBRATION_ROWS if int8 else 1)).inputs
    inputs = model.backbone.prepare(model.preprocessing(rows))
    chosen = choose_point(model, point_options, artifact).point if single else None
    if int8 and chosen is not None and chosen.guarantee is not None:
        warn("nothing is guaranteed: the network was calibrated in its own precision, and 8-bit integers are coarser")
    policy = model.policy if chosen is None else chosen.policy
    points = list(Dial(model.points[policy]).front)
    at = None
    if chosen is not None:
        at = next((row for row, point in enumerate(points) if same_decisions(point, chosen)), len(points))
        points[at : at + 1] = [chosen]  # with its guarantee; a point chosen for a guarantee need not be on the front
    export_onnx(
        model.backbone,
        model.pooling,
        model.exits,
        inputs,
        out,
        points=points,
        costs=model.costs,
        classes=model.classes,
        int8=inputs if int8 else None,
        single=at,
    )
    size = sum(path.stat().st_size for path in out.iterdir())
    summary = {"out": str(out), "points": len(points), "bytes": size, "single": at}
    if as_json:
        print_json(summary)
        return
    say(f"{model.backbone.num_exits} stages and {len(points)} operating points in {out}, {size / 1e6:.1f} MB")
    example = len(points) // 2 if at is None else at
    say(f"run them: offramp_onnx.load({str(out)!r}).predict(inputs, point={example}); .points lists the points")
