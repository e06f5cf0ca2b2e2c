"""`offramp predict`."""

from dataclasses import asdict, replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from offramp._progress import Advance, progress_bar
from offramp.cli.choosing import (
    PointOptions,
    choose_point,
    read_run,
    warn_of_backend,
    with_latency_file,
    with_point_options,
)
from offramp.cli.console import print_json, resumable, say, warn
from offramp.cli.options import (
    ArtifactArgument,
    ColumnOption,
    DataOption,
    DeviceOption,
    LabelOption,
    LatencyBatchOption,
    LatencyOption,
    SplitOption,
    TrustOption,
)
from offramp.cli.places import lock_output
from offramp.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor

    from offramp.cli.predictions import Predictions
    from offramp.data._dataset import Dataset
    from offramp.model._model import EarlyExitModel
    from offramp.runtime import BudgetController

__all__ = ["predict"]


@with_point_options
def predict(
    artifact: ArtifactArgument,
    data: DataOption,
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            "-o",
            metavar="FILE",
            help="File to write: .csv; .jsonl with all probabilities.",
        ),
    ],
    point_options: PointOptions,
    latency: LatencyOption = None,
    latency_batch_size: LatencyBatchOption = None,
    budget: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE",
            help="Instead of --cost: average relative cost over all inputs, such as 0.6, however hard they are. The "
            "operating point changes from batch to batch. [dim]Without it: one point for all inputs.[/dim]",
            rich_help_panel="The operating point",
        ),
    ] = None,
    label: LabelOption = "label",
    column: ColumnOption = None,
    split: SplitOption = None,
    miscoverage: Annotated[
        float, typer.Option(metavar="SHARE", help="Share of prediction sets that may miss the true class: 0.05 or 0.1.")
    ] = 0.05,
    batch_size: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Samples per batch. [dim]Without it: as --latency recommends, else 64.[/dim]",
        ),
    ] = None,
    backend: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Backend: eager, bfloat16 (less precise; faster on processors that support it) or onnx (fastest for "
            "small batches; needs the extra onnx). [dim]Without it: as measured in --latency, else the one that the "
            "artifact was tuned on with [bold]offramp recalibrate --backend[/bold], else eager.[/dim]",
        ),
    ] = None,
    shadow: Annotated[
        float,
        typer.Option(
            min=0,
            max=1,
            metavar="SHARE",
            help="Share of the inputs to run through the full network as well, whose label is written too: offramp "
            "monitor tests the disagreement. At 0.05 it adds 5 % of the full network's cost.",
        ),
    ] = 0.0,
    device: DeviceOption = None,
    trust: TrustOption = None,
    as_json: Annotated[bool, typer.Option("--json", metavar="", help="Print a summary as JSON.")] = False,
) -> None:
    """Answer new inputs: label, confidence, the exit taken, its cost, and a prediction set.

    A prediction set may be empty if no class is likely enough; over all inputs, sets contain the true class as often as
    guaranteed.

    Inputs need no labels: a folder of images, texts one per line (.txt), a table; a column of labels is ignored. If
    interrupted, the same command continues where it stopped.

    [bold]Example[/bold]: offramp predict my-offramp --data new.txt --cost 0.6 --out answers.csv

    [bold]Example[/bold]: offramp predict my-offramp --data images --budget 0.4 --out answers.csv

    It runs in one process; docs/how-to/scale.md shows many, with Ray Data, Spark or a pool.
    """
    import torch

    from offramp.cli.datasets import check_inputs
    from offramp.cli.networks import open_artifact
    from offramp.cli.predictions import Predictions
    from offramp.data import open_data
    from offramp.model._backends import backend_name

    backend, batch_size = read_run(latency, backend, batch_size)
    batch_size = batch_size or 64
    _check_device(device, backend=backend)
    model = open_artifact(artifact, trust, device=device)
    assert model.saved is not None
    digest = model.saved.sha256  # of the files that were loaded: others may take their place
    model = with_latency_file(model, latency, latency_batch_size)
    if device is not None:
        model.exits.to(device)
    backend = backend_name(model) if backend is None else backend
    warn_of_backend(model, backend)
    chosen = choose_point(model, point_options, artifact, budget=budget)
    controller = None if budget is None else chosen.controller(budget)
    if chosen.point.conformal_thresholds and miscoverage not in chosen.point.conformal_thresholds:
        calibrated = ", ".join(map(str, sorted(chosen.point.conformal_thresholds)))
        raise InputError("--miscoverage", expected=f"one that was calibrated ({calibrated})", got=f"{miscoverage}")
    source = open_data(data, label=label, column=column, split=split)
    check_inputs(data, source, model.backbone, model.preprocessing)
    running = chosen.on(backend, example=source.read(0, min(2, len(source))).inputs)
    if chosen.point.guarantee is not None and running.point.guarantee is None:
        warn(f"nothing is guaranteed: the network was calibrated in its own precision, and '{backend}' is less precise")
    shadowed = torch.empty(0, dtype=torch.bool)
    if shadow:
        shadowed = torch.rand(len(source), generator=torch.Generator().manual_seed(0)) < shadow
    with resumable("Run the same command again: it continues where it stopped."):
        key = f"{digest} {running.point.policy} {running.point.tune_metrics} {budget} {backend}"
        cost = f"{running.point.policy} {running.point.tune_metrics['cost']:.3f}"
        with lock_output(out):
            predictions = Predictions(
                out,
                f"{key} {source.name} {miscoverage} {shadow}",
                point=f"{cost if budget is None else f'budget {budget:g}'} {sha256(key.encode()).hexdigest()[:8]}",
                batch_size=batch_size,
                classes=model.classes,
                miscoverage=miscoverage,
                shadowed=shadow > 0,
            )
            with progress_bar(
                "predicting", len(source), done=predictions.done, unit="inputs", show=not as_json
            ) as advance:
                _answer(running, source, data, predictions, controller, shadowed, batch_size, advance)
            summary = predictions.finish()
    unit = model.unit
    # If inputs differ in size, times and prices are for the sizes of the tune split.
    summary |= {"unit": asdict(unit), "mean_cost": None if unit.full is None else unit.full * summary["cost"]}
    point = running.point
    if as_json:
        guarantee = None if point.guarantee is None else asdict(point.guarantee)
        print_json({"out": str(out), **summary, "policy": point.policy, "budget": budget, "guarantee": guarantee})
    else:
        spent = f"{summary['cost']:.3f} of the network's {unit.noun}"
        if unit.full is not None:
            sizes = ", for the input sizes of the tune split" if model.backbone.varies_in_size else ""
            spent += f" ({unit.show(summary['cost'])} of {unit.show(1)}{sizes})"
        on_tune = f"tune split: {point.tune_metrics['cost']:.3f}, {100 * point.tune_metrics['accuracy']:.2f} % right"
        say(
            f"{summary['rows']:,} answers in {out}, at {spent} on average, by {point.policy} "
            f"({on_tune if budget is None else f'requested: {budget:.3f}'})"
        )
        if shadow > 0:
            say(
                f"{int(shadowed.sum()):,} of them ran through the full network as well, which is not part of that cost."
            )
        if point.guarantee is not None:
            say(f"Guaranteed: {point.guarantee}.")


def _check_device(device: str | None, *, backend: str | None) -> None:
    """Refuse a device where the ONNX Runtime chooses its own."""
    if device is not None and backend == "onnx":
        raise InputError(expected="--device without --backend onnx", got="both", hint="leave --device out")


def _answer(
    model: "EarlyExitModel",
    source: "Dataset",
    place: str,
    predictions: "Predictions",
    controller: "BudgetController | None",
    shadowed: "Tensor",
    batch_size: int,
    advance: Advance,
) -> None:
    """Answer the remaining inputs, batch by batch, in this process."""
    from offramp.monitor import full_labels
    from offramp.preprocessing import Preprocessing

    unprepared = replace(model, preprocessing=Preprocessing())  # inputs are prepared once, for both networks
    if controller is not None:
        for start in range(0, predictions.done, batch_size):  # in the same batches as before the interruption
            controller.record(predictions.costs_before[start : start + batch_size])
    for start in range(predictions.done, len(source), batch_size):
        stop = min(start + batch_size, len(source))
        try:
            inputs = model.preprocessing(source.read(start, stop).inputs)
            answer = unprepared.predict(inputs, budget=None if controller is None else controller.next_budget)
            rows = shadowed[start:stop].nonzero().squeeze(1)
            full = dict(zip(rows.tolist(), full_labels(unprepared, inputs, rows).tolist(), strict=True))
        except InputError as error:
            raise InputError(
                f"rows {start} to {stop - 1} of {place}: {error.problem}".removesuffix(": "),
                expected=error.expected,
                got=error.got,
                hint=error.hint,
            ) from error
        costs = predictions.add(source.keys(start, stop), answer, full)
        if controller is not None:
            controller.record(costs)
        advance(stop - start)
