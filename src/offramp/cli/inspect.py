"""`offramp inspect`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from offramp.cli.choosing import warn_of_busy
from offramp.cli.console import print_json, print_table, print_text, say, warn
from offramp.cli.fit import describe
from offramp.cli.options import (
    DATA,
    DEFAULT_POOLING,
    AnyBackboneOption,
    ColumnOption,
    ExitsOption,
    JsonOption,
    LabelOption,
    MethodOption,
    PoolingOption,
    SplitOption,
    TrustOption,
    fetch_artifact,
)
from offramp.cli.places import check_writable
from offramp.errors import InputError

if TYPE_CHECKING:
    from offramp.backbone._backbone import Backbone
    from offramp.cli.datasets import Columns
    from offramp.methods._settings import JointSettings
    from offramp.model._model import EarlyExitModel
    from offramp.pooling import Pooling, Representation
    from offramp.preprocessing import Preprocessing

__all__ = ["inspect"]

LARGE = 0.3
"""Share of the network's cost in one stage above which a warning says that no sample can leave inside it."""


LENGTHS = 64
"""Number of samples read to find the longest, if times depend on sizes."""

TIMES = "Times"
"""Title of the options for timing."""

OWN_METHODS = ("classifiers", "default", "paper")
"""Methods whose exits are known before they are fitted."""


def inspect(
    artifact: Annotated[
        Path | None,
        typer.Argument(
            metavar="ARTIFACT",
            help="Folder that [bold]offramp fit[/bold] wrote, or hf://owner/name on the Hugging Face Hub, to show its "
            "operating points; with --data, its stages too.",
            show_default=False,
            callback=fetch_artifact,
        ),
    ] = None,
    backbone: AnyBackboneOption = None,
    data: Annotated[
        str | None,
        typer.Option(
            "--data",
            "-d",
            metavar="PATH",
            help="Samples to count costs on; the first two are read. [dim]Without it: a black image or a short text, "
            "if the network's preprocessing tells which.[/dim]",
            rich_help_panel=DATA,
        ),
    ] = None,
    label: LabelOption = "label",
    column: ColumnOption = None,
    split: SplitOption = None,
    pooling: PoolingOption = DEFAULT_POOLING,
    exits: ExitsOption = None,
    method: MethodOption = "default",
    measure: Annotated[
        bool,
        typer.Option(
            "--measure",
            metavar="",
            help="Also measure times on this machine, on the CPU. With an artifact and without --backend: whole runs "
            "on every backend, and which backend and batch size are the fastest.",
            rich_help_panel=TIMES,
        ),
    ] = False,
    batch_size: Annotated[
        list[int] | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Batch size to measure; repeat it for more sizes. [dim]Without it: 1; where backends are compared, 1, "
            "8 and 64.[/dim]",
            rich_help_panel=TIMES,
        ),
    ] = None,
    backend: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Backend to measure, stage by stage: eager, bfloat16, onnx or int8. [dim]Without it: all that an "
            "artifact may run on here; of a network, eager.[/dim]",
            rich_help_panel=TIMES,
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="FILE",
            help="File for the measured times and the recommended backend and batch size, for --latency of other "
            "commands. [dim]Without it: not written.[/dim]",
            rich_help_panel=TIMES,
        ),
    ] = None,
    trust: TrustOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the stages of a network and the cost of leaving at each, or the operating points of an artifact.

    A network that cannot be split into stages is refused with the reason, and with what to try.

    The artifact holds every point; [bold]--cost[/bold] or [bold]--accuracy[/bold] of the other commands selects one.
    The figures were measured on the tune split, which also chose the points, so they are slightly optimistic. For
    figures to quote, use [bold]offramp evaluate[/bold].

    [bold]Example[/bold]: offramp inspect --model models:make --data train.csv

    [bold]Example[/bold]: offramp inspect my-offramp

    [bold]Example[/bold]: offramp inspect my-offramp --data new.csv --measure --out times.json
    """
    from offramp.cli.datasets import Columns
    from offramp.cli.networks import find_modules_here, make_network, open_artifact
    from offramp.cli.recommending import describe_recommendation, print_recommendation
    from offramp.cost import count_backbone, keep_exits
    from offramp.methods._initialization import create_exits
    from offramp.model._backend_times import BATCH_SIZES, SAMPLES, measure_backends
    from offramp.policy import POLICIES
    from offramp.policy._policy import DEFAULT_POLICIES
    from offramp.pooling import POOLINGS
    from offramp.preprocessing._blank import blank_input
    from offramp.runtime import BACKENDS, measure_latency

    if (artifact is None) == (not backbone):
        raise InputError(
            expected="an artifact, or a network with --model", got="neither" if artifact is None else "both"
        )
    timing = {"--out": out is not None, "--batch-size": bool(batch_size), "--backend": backend is not None}
    timing_options = [name for name, present in timing.items() if present]
    if timing_options and not measure:
        raise InputError(
            f"{' and '.join(timing_options)} without --measure",
            hint="add --measure: without it no times are measured",
        )
    find_modules_here()
    if backend is not None:
        BACKENDS.get(backend)  # refuse an unknown or missing backend now
    if out is not None:
        check_writable(out.parent, "--out")
    model = None
    if artifact is not None:
        fixed = {"--exits": exits is not None, "--pooling": pooling != DEFAULT_POOLING, "--method": method != "default"}
        if misplaced := [name for name, present in fixed.items() if present]:
            raise InputError(
                expected=f"{misplaced[0]} with --model",
                got="an artifact, whose exits are already fitted",
                hint=f"leave {misplaced[0]} out",
            )
        if measure and data is None:
            raise InputError(
                "--measure of an artifact without --data", hint="add --data with samples to measure times on"
            )
        model = open_artifact(artifact, trust)
        if data is None:
            if as_json:
                print_json({"frontier": describe(model)})
            else:
                _print_frontier(model)
            return
    network = make_network(backbone or ()) if model is None else model.backbone
    preprocessing = network.preprocessing if model is None else model.preprocessing
    count = LENGTHS if measure and network.varies_in_size else 2
    raw = (
        blank_input(network.name, network.preprocessing)
        if data is None
        else _first_samples(data, Columns(label, column, split), network, preprocessing, count)
    )
    example = network.prepare(preprocessing(raw))
    if exits is not None:
        network = keep_exits(network, example, exits=exits)
    pool = POOLINGS.get(pooling, trust=trust or ()) if model is None else model.pooling
    stages = _describe_stages(network, example, pool)
    counted = count_backbone(network, example, pool)
    if model is None:
        widths = tuple(stage["features"] for stage in stages)
        exit_set = create_exits(widths, network.own_heads, network.num_classes, settings=_method_settings(method))
    else:
        exit_set = model.exits
    priced = counted.price(exit_set, POLICIES.get("threshold"))
    table = priced.average(network.sizes(example))
    full = float(table.full)
    leaving = (table.cumulative_costs() / table.full).tolist()
    for index, stage in enumerate(stages):
        stage |= {
            "mul_adds": float(table.stage[index]),
            "share": float(table.stage[index]) / full,
            "leaving": leaving[index],
        }
    times = None
    if measure:
        if model is not None and data is not None and backend is None:
            sizes = sorted(set(batch_size or BATCH_SIZES))
            columns = Columns(label, column, split)
            samples = _first_samples(data, columns, network, preprocessing, max(SAMPLES, sizes[-1]))
            times = measure_backends(model, samples, batch_sizes=sizes, progress=not as_json)
        else:
            times = measure_latency(
                network,
                pool,
                exit_set.eval(),
                example,
                backend=backend or "eager",
                batch_sizes=sorted(set(batch_size or (1,))),
                policies=DEFAULT_POLICIES if model is None else list(model.points),
                progress=not as_json,
            )
        for stage, row in zip(stages, times.stage, strict=True):
            stage["ms"] = list(row)
        if out is not None:
            out.parent.mkdir(parents=True, exist_ok=True)
            times.save(out)
    large = [stage["stage"] for stage in stages if stage["share"] > LARGE]
    content = {
        "network": network.name,
        "captured_by": getattr(network, "captured_by", None),
        "num_classes": network.num_classes,
        "mul_adds": full,
        "preprocessing": [name for name, _ in preprocessing.steps],
        "pooling": pool.name,
        "stages": stages,
        "latency": None if times is None else times.to_json(),
        "recommended": None if times is None else describe_recommendation(times),
        "frontier": None if model is None else describe(model),
    }
    if as_json:
        print_json(content)
        if times is not None:
            warn_of_busy(times)
        return
    rows = [
        [
            str(stage["stage"]) + (" *" if stage["own_head"] else ""),
            _millions(stage["mul_adds"]),
            f"{stage['share']:.3f}",
            stage["sees"],
            f"{stage['features']:,}",
            f"{stage['leaving']:.3f}",
            *(f"{milliseconds:.3g}" for milliseconds in stage.get("ms", ())),
        ]
        for stage in stages
    ]
    title = f"{network.name}: {network.num_exits} stages, {network.num_classes} classes, {_millions(full)} M Mul-Adds"
    titles = ["stage", "M Mul-Adds", "share", "output", "features", "cost of leaving"]
    time_columns = [] if times is None else ["ms" if size == 1 else f"ms for {size}" for size in times.batch_sizes]
    print_table(title, [*titles, *time_columns], rows)
    say("* the network has its own head here. Cost of leaving: all stages and exits so far, relative to the network.")
    if times is not None:
        full_times = ", ".join(
            f"{ms:.3g} ms for {size}" for size, ms in zip(times.batch_sizes, times.full, strict=True)
        )
        say(f"The full network takes {full_times} with {times.backend} on '{times.machine}', threads: {times.threads}.")
        warn_of_busy(times)
        print_recommendation(times)
    if out is not None:
        say(f"Written to {out}: pass it to fit, evaluate or predict with --latency.")
    if model is None and leaving[-1] > 1.1:
        warn(
            f"all default exits together cost {100 * (leaving[-1] - 1):.0f} % of the network, which is small; fit "
            "drops exits without a gain."
        )
    if large:
        names = ", ".join(map(str, large))
        warn(f"no sample can leave inside stage {names}, which is above {LARGE:.0%} of the network's cost.")
    if model is not None:
        _print_frontier(model)


def _print_frontier(model: "EarlyExitModel") -> None:
    """Print the operating points and the sizes of the splits."""
    print_text(str(model.frontier))
    splits = model.provenance.get("splits", {})
    sizes = ", ".join(f"{part['samples']:,} to {name}" for name, part in splits.items())
    tuned = "" if model.tuned_on is None else f"; tuned on the backend '{model.tuned_on.kind}'"
    print_text(f"the full network: {100 * model.full_accuracy:.2f} %{tuned}" + (f"; samples: {sizes}" if sizes else ""))


def _millions(mul_adds: float) -> str:
    """Format a number of Mul-Adds in millions."""
    return f"{mul_adds / 1e6:,.2f}" if mul_adds >= 1e6 else f"{mul_adds / 1e6:.2g}"


def _describe_stages(network: "Backbone", example: Any, pool: "Pooling") -> list[dict[str, Any]]:
    """Describe the output of each stage and the features that its exit sees."""
    import torch

    rows: list[dict[str, Any]] = []
    hidden = example
    with torch.inference_mode(), network.explain_errors(example):
        for index, stage in enumerate(network.stages):
            hidden = stage(hidden)
            output = network.representation(hidden, index)
            width = int(pool(output).shape[1])
            own = index in network.own_heads
            rows.append({"stage": index, "sees": _shape(output), "features": width, "own_head": own})
    return rows


def _shape(output: "Representation") -> str:
    """Format the shape of a stage's output for one sample."""
    from offramp.pooling import Tokens
    from offramp.pooling._pooling import Nodes

    match output:
        case Tokens(values, mask, prefix):
            kind = "words" if mask is not None else "patches" if prefix else "tokens"
            return f"{values.shape[1]} {kind} x {values.shape[2]}"
        case Nodes(values):
            return f"nodes x {values.shape[1]}"
        case _:
            return " x ".join(map(str, output.shape[1:]))


def _method_settings(method: str) -> "JointSettings":
    """Return the settings of a built-in method; exits of other methods are known only after fitting."""
    from offramp.methods import METHODS
    from offramp.methods._method import default_settings

    if method not in OWN_METHODS:
        raise InputError(
            "--method",
            expected=f"one of {', '.join(OWN_METHODS)}",
            got=f"{method}, whose exits are known only after fitting",
        )
    settings: JointSettings = default_settings(METHODS.get(method))
    return settings


def _first_samples(
    path: str, columns: "Columns", network: "Backbone", preprocessing: "Preprocessing", count: int
) -> Any:
    """Read the first samples of the data."""
    from offramp.cli.datasets import check_inputs
    from offramp.data import open_data

    data = open_data(path, **vars(columns))
    check_inputs(path, data, network, preprocessing)
    return data.read(0, min(count, len(data))).inputs
