"""`offramp export`."""

from pathlib import Path
from typing import Annotated

import typer

from offramp.cli.choosing import Wish, asking, choose
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
"""Samples that show the ranges of numbers, for eight bits."""


@asking
def export(
    format: Annotated[str, typer.Argument(metavar="onnx", help="What to write: onnx.", show_default=False)],
    artifact: ArtifactArgument,
    out: Annotated[Path, typer.Argument(metavar="FOLDER", help="A new folder for the graphs.", show_default=False)],
    data: DataOption,
    wish: Wish,
    single: Annotated[
        bool,
        typer.Option(
            "--single",
            metavar="",
            help="Also write single.onnx: all stages in one graph, for one sample at a time, at the point asked for.",
        ),
    ] = False,
    int8: Annotated[
        bool,
        typer.Option(
            "--int8",
            metavar="",
            help="Compute stages in whole numbers of eight bits, calibrated on the data; of images, not of texts.",
        ),
    ] = False,
    label: LabelOption = "label",
    column: ColumnOption = None,
    split: SplitOption = None,
    trust: TrustOption = None,
    as_json: Annotated[bool, typer.Option("--json", metavar="", help="Print a summary as JSON.")] = False,
) -> None:
    """Write the network as ONNX graphs, to run where there is no PyTorch.

    One graph a stage, an exit and a policy, and a manifest with the settings of that policy: all operating points that
    a budget can pick. offramp_onnx.load(FOLDER) runs them with numpy and onnxruntime alone; every graph is compared
    with PyTorch while it is written. The data shows what inputs look like; it needs no labels. --cost, --accuracy,
    --max-drop and --policy say at which point --single decides.

    [bold]Example[/bold]: offramp export onnx my-offramp graphs --data new.txt
    """
    from offramp.cli.datasets import check_taken
    from offramp.cli.networks import open_artifact
    from offramp.data import open_data
    from offramp.runtime import Dial, same_setting
    from offramp.runtime.onnx import export_onnx, write_single
    from offramp.runtime.onnx.int8 import check_int8

    if format != "onnx":
        raise InputError(f"expected onnx, the format that can be written, got '{format}'; offramp export onnx ...")
    asked = next((name for name, value in vars(wish).items() if value is not None), None)
    if asked is not None and not single:
        option = f"--{asked.replace('_', '-')}"
        raise InputError(f"{option} is for --single, which was not asked for; the graphs hold all settings without it")
    if int8 and wish.max_drop is not None:
        raise InputError(
            "expected --max-drop without --int8, got both: the promise is of the network that was calibrated, not of "
            "one in eight bits; leave one"
        )
    check_writable(out, "folder")
    frontier = open_artifact(artifact, trust)
    if int8:
        check_int8(frontier.backbone)
    source = open_data(data, label=label, column=column, split=split)
    check_taken(data, source, frontier.backbone, frontier.preprocessing)
    rows = source.read(0, min(len(source), CALIBRATION_ROWS if int8 else 1)).inputs
    inputs = frontier.backbone.prepare(frontier.preprocessing(rows))
    chosen = choose(frontier, wish, artifact).point if single else None
    if int8 and chosen is not None and chosen.guarantee is not None:
        warn("nothing is promised: the network was calibrated in its own precision, and eight bits compute coarser")
    policy = frontier.preferred if chosen is None else chosen.policy
    points = list(Dial(frontier.points[policy]).settings)
    at = None
    if chosen is not None:
        at = next((row for row, point in enumerate(points) if same_setting(point, chosen)), len(points))
        points[at : at + 1] = [chosen]  # with what is promised of it; one chosen for a promise need be no setting
    export_onnx(
        frontier.backbone,
        frontier.pooling,
        frontier.bank,
        inputs,
        out,
        points=points,
        costs=frontier.costs,
        classes=frontier.classes,
        int8=inputs if int8 else None,
    )
    if at is not None:
        write_single(out, at)
    size = sum(path.stat().st_size for path in out.iterdir())
    summary = {"out": str(out), "points": len(points), "bytes": size, "single": at}
    if as_json:
        print_json(summary)
        return
    say(f"{frontier.backbone.num_exits} stages and {len(points)} operating points in {out}, {size / 1e6:.1f} MB")
    example = len(points) // 2 if at is None else at
    say(f"run them: offramp_onnx.load({str(out)!r}).predict(inputs, point={example}); .points says what each promises")
