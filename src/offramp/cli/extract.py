"""`offramp extract`."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from offramp.cli.console import print_json, print_text
from offramp.cli.interrupts import resumable
from offramp.cli.options import (
    DEFAULT_POOLING,
    ClassesOption,
    ClusterOption,
    ColumnOption,
    DataOption,
    ExitsOption,
    JsonOption,
    LabelOption,
    PoolingOption,
    SplitOption,
    TrunkOption,
    WorkersOption,
)
from offramp.cli.places import check_writable

__all__ = ["extract"]


def extract(
    trunk: TrunkOption,
    data: DataOption,
    store: Annotated[
        Path,
        typer.Option(metavar="FOLDER", help="Where to write; give [bold]offramp fit --store[/bold] the same folder."),
    ],
    label: LabelOption = "label",
    column: ColumnOption = None,
    split: SplitOption = None,
    classes: ClassesOption = None,
    pooling: PoolingOption = DEFAULT_POOLING,
    exits: ExitsOption = None,
    batch_size: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", help="Samples of a forward pass. [dim]Without it: as in what is there, or 250.[/dim]"
        ),
    ] = None,
    threads: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", help="Processor threads. [dim]Without it: as many as torch takes, or 1 a worker.[/dim]"
        ),
    ] = None,
    workers: WorkersOption = None,
    cluster: ClusterOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run a network once over data and keep what exits need of it.

    [bold]offramp fit[/bold] does this by itself; apart from it, it can be done earlier, elsewhere, or bit by bit, once
    for what will be --train and once for --validation. Interrupted, the same command goes on where it stopped.

    On one machine, --workers pays where one process leaves processors idle: small networks, inputs that are slow to
    decode. Give a worker a processor. Ray takes some seconds to start, so it pays from a minute of work on; many
    machines pay from hours on, and exits seldom need more than 10^5 rows. Any number of workers writes the same bytes.

    [bold]Example[/bold]: offramp extract --trunk models:make --data train.csv --store features
    """
    from offramp.cli.datasets import Columns, classes_for, open_labelled
    from offramp.cli.networks import make_network
    from offramp.cost import thinned
    from offramp.features import extract as extract_features

    network = make_network(trunk)
    source = open_labelled(data, network, Columns(label, column, split), classes=classes_for(network, classes))
    if exits is not None:
        first = source.read(0, 1).inputs
        network = thinned(network, network.prepare(network.preprocessing(first)), exits=exits)
    check_writable(store, "--store")
    with resumable("Run the same command again: it goes on where it stopped."):
        run = extract_features
        if workers is not None or cluster is not None:
            from offramp.scale import extract_on_cluster  # not above: others need not have what it builds on

            run = partial(extract_on_cluster, workers=workers, address=cluster)
        made = run(
            network,
            source,
            store / source.name,
            poolings=(pooling,),
            views=(network.preprocessing,),
            batch_size=batch_size,
            threads=threads,
            progress=not as_json,
        )
    size = sum(file.stat().st_size for file in made.path.rglob("*") if file.is_file())
    found = {"store": str(made.path), "rows": made.num_rows, "bytes": size, "widths": list(made.widths(pooling))}
    if as_json:
        print_json(found)
    else:
        room = f"{size / 1e6:,.1f} MB" if size >= 1e6 else f"{size / 1e3:,.0f} kB"
        print_text(f"{made.num_rows:,} rows of {Path(data).absolute().name} in {made.path}, {room}")
