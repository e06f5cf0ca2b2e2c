"""`offramp predict`."""

from dataclasses import asdict, replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from offramp.cli.choosing import Wish, asking, choose, timed, warn_of_backend
from offramp.cli.console import print_json, say, warn
from offramp.cli.interrupts import resumable
from offramp.cli.options import (
    ArtifactArgument,
    ClusterOption,
    ColumnOption,
    DataOption,
    LabelOption,
    LatencyBatchOption,
    LatencyOption,
    SplitOption,
    TrustOption,
    WorkersOption,
)
from offramp.cli.places import lock_output
from offramp.errors import InputError
from offramp.progress import Advance, progress_bar

if TYPE_CHECKING:
    from torch import Tensor

    from offramp.cli.predictions import Predictions
    from offramp.data import Dataset
    from offramp.network import EarlyExitNetwork
    from offramp.runtime import BudgetController

__all__ = ["predict"]


@asking
def predict(
    artifact: ArtifactArgument,
    data: DataOption,
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            "-o",
            metavar="FILE",
            help="Where to write: .csv; .jsonl with all probabilities; with --workers or --cluster, .parquet, a folder "
            "of files.",
        ),
    ],
    wish: Wish,
    latency: LatencyOption = None,
    latency_batch_size: LatencyBatchOption = None,
    budget: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE",
            help="Instead of --cost: spend this share on average over all inputs, such as 0.6, however hard they are. "
            "The operating point moves from batch to batch. [dim]Without it: one for all inputs.[/dim]",
            rich_help_panel="The operating point",
        ),
    ] = None,
    label: LabelOption = "label",
    column: ColumnOption = None,
    split: SplitOption = None,
    miscoverage: Annotated[
        float, typer.Option(metavar="SHARE", help="Prediction sets may miss the true class this often: 0.05 or 0.1.")
    ] = 0.05,
    batch_size: Annotated[int, typer.Option(min=1, metavar="N", help="Samples at a time.")] = 64,
    backend: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="What computes: eager, bfloat16 (faster where the processor has it, rounded) or onnx "
            "(fastest for few samples at a time; needs the extra onnx).",
        ),
    ] = "eager",
    shadow: Annotated[
        float,
        typer.Option(
            min=0,
            max=1,
            metavar="SHARE",
            help="Run this share of the inputs through the full network as well, and write its label beside: how often "
            "it disagrees is what offramp monitor watches. At 0.05 it costs 5 % of the full network more.",
        ),
    ] = 0.0,
    workers: WorkersOption = None,
    cluster: ClusterOption = None,
    trust: TrustOption = None,
    as_json: Annotated[bool, typer.Option("--json", metavar="", help="Print a summary as JSON.")] = False,
) -> None:
    """Answer new inputs: label, confidence, the exit taken, its cost, and a set that holds the true class.

    A set may be empty, where no class is likely enough; sets hold the true class as often as promised, over all inputs.

    Inputs need no labels: a folder of images, texts one a line (.txt), a table; a column of labels is passed over.
    Interrupted, the same command goes on where it stopped.

    [bold]Example[/bold]: offramp predict my-offramp --data new.txt --cost 0.6 --out answers.csv

    [bold]Example[/bold]: offramp predict my-offramp --data images --budget 0.4 --workers 8 --out answers.parquet
    """
    import torch

    from offramp.cli.datasets import check_taken
    from offramp.cli.networks import open_artifact
    from offramp.cli.predictions import Predictions
    from offramp.data import open_data

    many = workers is not None or cluster is not None
    _check_out(out, many=many, shadow=shadow)
    frontier = timed(open_artifact(artifact, trust), latency, latency_batch_size)
    warn_of_backend(frontier, backend)
    network = choose(frontier, wish, artifact, budget=budget)
    controller = None if budget is None else network.controller(budget)
    if miscoverage not in network.point.conformal_thresholds:
        known = ", ".join(map(str, sorted(network.point.conformal_thresholds)))
        raise InputError(f"expected --miscoverage to be one that was calibrated ({known}), got {miscoverage}")
    source = open_data(data, label=label, column=column, split=split)
    check_taken(data, source, frontier.backbone, frontier.preprocessing)
    chosen, network = network, network.on(backend, example=source.read(0, min(2, len(source))).inputs)
    if chosen.point.guarantee is not None and network.point.guarantee is None:
        warn(f"nothing is promised: the network was calibrated in its own precision, and '{backend}' computes coarser")
    shadowed = torch.empty(0, dtype=torch.bool)
    if shadow:
        shadowed = torch.rand(len(source), generator=torch.Generator().manual_seed(0)) < shadow
    with resumable("Run the same command again: it goes on where it stopped."):
        if many:
            from offramp.scale import predict_on_cluster  # not above: others need not have what it builds on

            made = predict_on_cluster(
                chosen,
                source,
                out,
                workers=workers,
                address=cluster,
                budget=budget,
                miscoverage=miscoverage,
                classes=frontier.classes,
                batch_size=batch_size,
                backend=backend,
                progress=not as_json,
            )
            summary: dict[str, Any] = {"rows": made.rows, "cost": made.cost}
        else:
            saved = sha256((artifact / "manifest.json").read_bytes()).hexdigest()  # which has all other files' hashes
            at = f"{saved} {network.point.policy} {network.point.promised} {budget} {backend}"
            cost = f"{network.point.policy} {network.point.promised['cost']:.3f}"
            with lock_output(out):
                predictions = Predictions(
                    out,
                    f"{at} {source.name} {miscoverage} {shadow}",
                    point=f"{cost if budget is None else f'budget {budget:g}'} {sha256(at.encode()).hexdigest()[:8]}",
                    batch_size=batch_size,
                    classes=frontier.classes,
                    miscoverage=miscoverage,
                    shadowed=shadow > 0,
                )
                with progress_bar(
                    "predicting", len(source), done=predictions.done, unit="inputs", show=not as_json
                ) as advance:
                    _answer(network, source, data, predictions, controller, shadowed, batch_size, advance)
                summary = predictions.finish()
    full_ms = frontier.full_ms
    # Where inputs differ in size, as if they were of the sizes of the tune split: times are known of those.
    summary |= {"full_ms": full_ms, "ms": None if full_ms is None else full_ms * summary["cost"]}
    point = network.point
    if as_json:
        guarantee = None if point.guarantee is None else asdict(point.guarantee)
        print_json({"out": str(out), **summary, "policy": point.policy, "budget": budget, "guarantee": guarantee})
    else:
        spent = f"{summary['cost']:.3f} of the network's {'cost' if full_ms is None else 'time'}"
        if full_ms is not None:
            sizes = ", inputs being as long as those of the tune split" if frontier.backbone.grows else ""
            spent += f" ({summary['ms']:.3g} of {full_ms:.3g} ms{sizes})"
        on_tune = f"tune split: {point.promised['cost']:.3f}, {100 * point.promised['accuracy']:.2f} % right"
        say(
            f"{summary['rows']:,} answers in {out}, at {spent} on average, by {point.policy} "
            f"({on_tune if budget is None else f'asked for: {budget:.3f}'})"
        )
        if shadow > 0:
            say(
                f"{int(shadowed.sum()):,} of them were run through the full network as well, which is not in that cost."
            )
        if point.guarantee is not None:
            say(f"Promised: {point.guarantee}.")


def _check_out(out: Path, *, many: bool, shadow: float) -> None:
    """Refuse a format that the answers are not written in."""
    if many and out.suffix != ".parquet":
        raise InputError(
            f"expected --out to end with .parquet with --workers or --cluster, got '{out.name}': many workers write a "
            "folder of Parquet files"
        )
    if not many and out.suffix == ".parquet":
        raise InputError(f"expected --workers N with --out {out.name}, got none; --workers 1 will do")
    if many and shadow:
        raise InputError("expected --shadow without --workers and --cluster, got both; leave one")


def _answer(
    network: "EarlyExitNetwork",
    source: "Dataset",
    place: str,
    predictions: "Predictions",
    controller: "BudgetController | None",
    shadowed: "Tensor",
    batch_size: int,
    advance: Advance,
) -> None:
    """Answer what is not answered yet, batch by batch, in this process."""
    from offramp.backbone import Preprocessing
    from offramp.monitor import full_labels

    prepared = replace(network, preprocessing=Preprocessing())  # inputs are, once, for both networks
    if controller is not None:
        for start in range(0, predictions.done, batch_size):  # as it was told of them before it was interrupted
            controller.record(predictions.costs_before[start : start + batch_size])
    for start in range(predictions.done, len(source), batch_size):
        stop = min(start + batch_size, len(source))
        try:
            inputs = network.preprocessing(source.read(start, stop).inputs)
            answer = prepared.predict(inputs, budget=None if controller is None else controller.asked)
            rows = shadowed[start:stop].nonzero().squeeze(1)
            full = dict(zip(rows.tolist(), full_labels(prepared, inputs, rows).tolist(), strict=True))
        except InputError as error:
            raise InputError(f"rows {start} to {stop - 1} of {place}: {error}") from error
        costs = predictions.add(source.keys(start, stop), answer, full)
        if controller is not None:
            controller.record(costs)
        advance(stop - start)
