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
)
from offramp.cli.places import check_writable
from offramp.errors import InputError

if TYPE_CHECKING:
    from offramp.backbone import Backbone, Pooling, Preprocessing, Representation
    from offramp.cli.datasets import Columns
    from offramp.frontier import Frontier
    from offramp.methods import JointSettings

__all__ = ["inspect"]

LARGE = 0.3
"""Share of the network's cost in one stage above which nobody can leave in between, worth a word."""


LENGTHS = 64
"""Samples that are looked at for the longest, where times depend on their sizes."""

TIMES = "Times"
"""Title of the options that say what to time."""

OWN_METHODS = ("classifiers", "default", "distilled", "paper")
"""Methods whose exits are known before they are fitted."""


def inspect(
    artifact: Annotated[
        Path | None,
        typer.Argument(
            metavar="ARTIFACT",
            help="Folder that [bold]offramp fit[/bold] wrote, to see its operating points; with --data, how its "
            "network is cut too.",
            show_default=False,
        ),
    ] = None,
    backbone: AnyBackboneOption = None,
    data: Annotated[
        str | None,
        typer.Option(
            "--data",
            "-d",
            metavar="PATH",
            help="Samples to count costs on; the first two are read. [dim]Without it: an empty image or a short text, "
            "where the network's preprocessing says which.[/dim]",
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
        bool, typer.Option("--measure", metavar="", help="Time everything on this machine, too.", rich_help_panel=TIMES)
    ] = False,
    batch_size: Annotated[
        list[int] | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Time batches of so many samples; give it again for more sizes. [dim]Without it: 1.[/dim]",
            rich_help_panel=TIMES,
        ),
    ] = None,
    backend: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="What computes while it is timed: eager, bfloat16 or onnx, as predict is to be given. "
            "[dim]Without it: eager.[/dim]",
            rich_help_panel=TIMES,
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="FILE",
            help="Where to write what was measured, for --latency of other commands. [dim]Without it: nowhere.[/dim]",
            rich_help_panel=TIMES,
        ),
    ] = None,
    trust: TrustOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show how a network is cut and what leaving at each stage costs, or the operating points of an artifact.

    A network that cannot be cut is refused with the reason, and with what to try.

    Every point is in the artifact; [bold]--cost[/bold] or [bold]--accuracy[/bold] of the other commands picks one. The
    figures are of the tune split, which chose the points: a little optimistic. Figures to quote come from
    [bold]offramp evaluate[/bold].

    [bold]Example[/bold]: offramp inspect --model models:make --data train.csv

    [bold]Example[/bold]: offramp inspect my-offramp
    """
    from offramp.backbone import POOLINGS
    from offramp.cli.datasets import Columns
    from offramp.cli.networks import find_modules_here, make_network, open_artifact
    from offramp.cost import count_backbone, thinned
    from offramp.methods import fresh_exits
    from offramp.policy import OFFERED, POLICIES
    from offramp.runtime import BACKENDS, measure_latency

    if (artifact is None) == (not backbone):
        raise InputError("expected an artifact, or a network with --model: one of the two")
    needing = {"--out": out is not None, "--batch-size": bool(batch_size), "--backend": backend is not None}
    given = [name for name, there in needing.items() if there]
    if given and not measure:
        raise InputError(
            f"expected --measure with {' and '.join(given)}, got none: without it nothing is timed, and --out has "
            "nothing to write; add --measure"
        )
    computing = "eager" if backend is None else backend
    find_modules_here()
    BACKENDS.get(computing)  # one that is unknown, or not installed, is told of now
    if out is not None:
        check_writable(out.parent, "--out")
    frontier = None
    if artifact is not None:
        fixed = {"--exits": exits is not None, "--pooling": pooling != DEFAULT_POOLING, "--method": method != "default"}
        if chosen := [name for name, there in fixed.items() if there]:
            raise InputError(f"expected {chosen[0]} with --model, got it with an artifact, whose exits are fitted")
        if measure and data is None:
            raise InputError("expected --data with --measure of an artifact, got none; give samples to time it on")
        frontier = open_artifact(artifact, trust)
        if data is None:
            if as_json:
                print_json({"frontier": describe(frontier)})
            else:
                _print_frontier(frontier)
            return
    network = make_network(backbone or ()) if frontier is None else frontier.backbone
    preprocessing = network.preprocessing if frontier is None else frontier.preprocessing
    count = LENGTHS if measure and network.grows else 2
    raw = _blank(network) if data is None else _some(data, Columns(label, column, split), network, preprocessing, count)
    example = network.prepare(preprocessing(raw))
    if exits is not None:
        network = thinned(network, example, exits=exits)
    pool = POOLINGS.get(pooling, trust=trust or ()) if frontier is None else frontier.pooling
    stages = _stages(network, example, pool)
    counted = count_backbone(network, example, pool)
    if frontier is None:
        widths = tuple(stage["features"] for stage in stages)
        bank = fresh_exits(widths, network.own_heads, network.num_classes, settings=_settings(method))
    else:
        bank = frontier.bank
    priced = counted.price(bank, POLICIES.get("threshold"))
    table = priced.average(network.sizes(example))
    full = float(table.full)
    leaving = (table.cumulative_costs() / table.full).tolist()
    for index, one in enumerate(stages):
        one |= {
            "mul_adds": float(table.stage[index]),
            "share": float(table.stage[index]) / full,
            "leaving": leaving[index],
        }
    times = None
    if measure:
        sizes = sorted(set(batch_size or (1,)))
        times = measure_latency(
            network,
            pool,
            bank.eval(),
            example,
            backend=computing,
            batch_sizes=sizes,
            policies=OFFERED if frontier is None else list(frontier.points),
            progress=not as_json,
        )
        for one, row in zip(stages, times.stage, strict=True):
            one["ms"] = list(row)
        if out is not None:
            out.parent.mkdir(parents=True, exist_ok=True)
            times.save(out)
    large = [one["stage"] for one in stages if one["share"] > LARGE]
    content = {
        "network": network.name,
        "captured_by": getattr(network, "captured_by", None),
        "num_classes": network.num_classes,
        "mul_adds": full,
        "preprocessing": [name for name, _ in preprocessing.steps],
        "pooling": pool.name,
        "stages": stages,
        "latency": None if times is None else times.to_json(),
        "frontier": None if frontier is None else describe(frontier),
    }
    if as_json:
        print_json(content)
        if times is not None:
            warn_of_busy(times)
        return
    rows = [
        [
            str(one["stage"]) + (" *" if one["own_head"] else ""),
            _millions(one["mul_adds"]),
            f"{one['share']:.3f}",
            one["sees"],
            f"{one['features']:,}",
            f"{one['leaving']:.3f}",
            *(f"{took:.3g}" for took in one.get("ms", ())),
        ]
        for one in stages
    ]
    title = f"{network.name}: {network.num_exits} stages, {network.num_classes} classes, {_millions(full)} M Mul-Adds"
    columns = ["stage", "M Mul-Adds", "share", "leaves behind", "features", "leaving costs"]
    timed = [] if times is None else ["ms" if size == 1 else f"ms for {size}" for size in times.batch_sizes]
    print_table(title, [*columns, *timed], rows)
    say("* the network has a head of its own here. Leaving costs: the stages so far and its exits, all on.")
    if times is not None:
        took = ", ".join(f"{one:.3g} ms for {size}" for size, one in zip(times.batch_sizes, times.whole, strict=True))
        say(f"Without exits it takes {took} by {times.backend} on '{times.machine}', threads: {times.threads}.")
        warn_of_busy(times)
    if out is not None:
        say(f"Written to {out}: give it with --latency to fit, evaluate or predict.")
    if frontier is None and leaving[-1] > 1.1:
        warn(
            f"all default exits cost {100 * (leaving[-1] - 1):.0f} % of the network, which is small; those that bring "
            "nothing are dropped when fitting."
        )
    if large:
        names = ", ".join(map(str, large))
        warn(f"nobody can leave inside stage {names}, above {LARGE:.0%} of the network.")
    if frontier is not None:
        _print_frontier(frontier)


def _print_frontier(frontier: "Frontier") -> None:
    """Print the operating points, and what they were fitted on."""
    print_text(str(frontier))
    splits = frontier.provenance.get("splits", {})
    sizes = ", ".join(f"{part['samples']:,} to {name}" for name, part in splits.items())
    print_text(f"the full network: {100 * frontier.full_accuracy:.2f} %" + (f"; samples: {sizes}" if sizes else ""))


def _millions(mul_adds: float) -> str:
    """So many millions; of small networks, the digits that count."""
    return f"{mul_adds / 1e6:,.2f}" if mul_adds >= 1e6 else f"{mul_adds / 1e6:.2g}"


def _stages(network: "Backbone", example: Any, pool: "Pooling") -> list[dict[str, Any]]:
    """List what each stage leaves behind, and what exits see of it."""
    import torch

    found: list[dict[str, Any]] = []
    hidden = example
    with torch.inference_mode(), network.explaining(example):
        for index, stage in enumerate(network.stages):
            hidden = stage(hidden)
            shown = network.representation(hidden, index)
            width = int(pool(shown).shape[1])
            own = index in network.own_heads
            found.append({"stage": index, "sees": _described(shown), "features": width, "own_head": own})
    return found


def _described(shown: "Representation") -> str:
    """The shape of what one sample leaves behind."""
    from offramp.backbone import Nodes, Tokens

    match shown:
        case Tokens(values, mask, prefix):
            kind = "words" if mask is not None else "patches" if prefix else "tokens"
            return f"{values.shape[1]} {kind} x {values.shape[2]}"
        case Nodes(values):
            return f"nodes x {values.shape[1]}"
        case _:
            return " x ".join(map(str, shown.shape[1:]))


def _settings(method: str) -> "JointSettings":
    """Return the settings of a method of the library: the exits of others are known only once they are fitted."""
    from offramp.methods import METHODS, default_settings

    if method not in OWN_METHODS:
        raise InputError(
            f"expected --method {', '.join(OWN_METHODS)}, got {method}: the exits of other methods are known only once "
            "they are fitted"
        )
    settings: JointSettings = default_settings(METHODS.get(method))
    return settings


def _some(path: str, columns: "Columns", network: "Backbone", preprocessing: "Preprocessing", count: int) -> Any:
    """Read the first samples of the data."""
    from offramp.cli.datasets import check_taken
    from offramp.data import open_data

    data = open_data(path, **vars(columns))
    check_taken(path, data, network, preprocessing)
    return data.read(0, min(count, len(data))).inputs


def _blank(network: "Backbone") -> Any:
    """An input such as the preprocessing takes: a text, or a black image of the size it crops."""
    import numpy as np

    steps = dict(network.preprocessing.steps)
    if "tokenize" in steps:
        return ["a short text of some ten words to count costs on"]
    if "center_crop" in steps:
        side = steps["center_crop"]["size"]
        return np.zeros((2, side, side, 3), np.uint8)
    raise InputError(
        f"what '{network.name}' takes cannot be told from its preprocessing; give a few samples with --data"
    )
