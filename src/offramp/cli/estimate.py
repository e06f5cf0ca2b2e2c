"""`offramp estimate`."""

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Annotated

import typer

from offramp.cli.console import interval, points, print_json, print_table, print_text, say
from offramp.cli.options import (
    DEFAULT_POOLING,
    AnywayOption,
    BackboneOption,
    ClassesOption,
    ColumnOption,
    DataOption,
    DeviceOption,
    ExitsOption,
    JsonOption,
    LabelOption,
    PoolingOption,
    SplitOption,
    StoreOption,
)

if TYPE_CHECKING:
    from offramp.model._estimation import Estimate

__all__ = ["estimate", "sentences"]


FEW = 20
"""Samples per class below which exits are far worse than with more samples; measured on CLINC150, 150 classes."""


def estimate(
    backbone: BackboneOption,
    data: DataOption,
    samples: Annotated[int, typer.Option(min=40, metavar="N", help="Number of samples to draw from the data.")] = 1000,
    label: LabelOption = "label",
    column: ColumnOption = None,
    split: SplitOption = None,
    classes: ClassesOption = None,
    exits: ExitsOption = None,
    pooling: PoolingOption = DEFAULT_POOLING,
    seed: Annotated[int, typer.Option(metavar="N", help="Seed of all random numbers.")] = 0,
    store: StoreOption = None,
    device: DeviceOption = None,
    anyway: AnywayOption = False,
    as_json: JsonOption = False,
) -> None:
    """Estimate the gain of exits from about 1,000 samples, by cross-validation.

    With two networks, the cheaper first, it also estimates the gain of the cheaper one. Exits of a real fit learn from
    more samples and are better. If the network was trained on this data, the estimate is too optimistic.

    [bold]Example[/bold]: offramp estimate --model models:small --model models:large --data validation.csv
    """
    from offramp.cli.datasets import Columns, classes_for, feature_folder, open_labelled
    from offramp.cli.networks import make_network
    from offramp.data import sample
    from offramp.methods._settings import DEFAULT
    from offramp.model._estimation import estimate as try_exits
    from offramp.model._options import FittingOptions

    network = make_network(backbone, device=device)
    source = open_labelled(data, network, Columns(label, column, split), classes=classes_for(network, classes))
    drawn = sample(source, min(samples, len(source)), seed=seed)
    with feature_folder(store) as folder:
        settings = replace(DEFAULT, seed=seed)
        result = try_exits(
            network,
            drawn,
            fitting=FittingOptions(pooling=pooling, max_exits=exits),
            settings=settings,
            store=folder,
            anyway=anyway,
            progress=not as_json,
        )
    if as_json:
        print_json({**asdict(result), "verdict": list(sentences(result))})
        return
    rows = [
        [name, f"{point.cost:.3f}", points(point.change), interval(point.change_interval)]
        for name, point in result.rows()
    ]
    print_table(result.title, ["", "cost", "change", "95 % interval"], rows)
    for sentence in sentences(result):
        print_text(sentence)
    if len(backbone) == 1:
        say("A cheaper network before this one often saves more: --model SMALL --model LARGE.")


def sentences(result: "Estimate", *, drop: float = 0.01) -> list[str]:
    """Describe an estimate and its uncertainty, one sentence per network."""
    from offramp.model._estimation import COSTS

    lines = []
    few = result.samples < FEW * result.num_classes
    for name in result.curves:
        safe, likely = (result.cheapest(name, drop=drop, with_confidence=level) for level in (True, False))
        if safe is not None:
            lines.append(
                f"Exits in {name}: worth it. At {100 * safe.cost:.0f} % of the cost, at most {100 * drop:g} point is "
                f"lost with 95 % confidence (change {points(safe.change)})."
            )
        elif likely is not None:
            lines.append(
                f"Exits in {name}: probably. At {100 * likely.cost:.0f} % of the cost, accuracy changes by "
                f"{points(likely.change)}, but {result.samples:,} samples do not rule out a loss of "
                f"{-100 * likely.change_interval[0]:.1f} points; give more."
            )
        elif not result.curves[name]:
            lines.append(
                f"Exits in {name}: no gain. No point costs {COSTS[-1]:g} or less: the network is so small that exits "
                "cost more than they save."
            )
        elif few:
            lines.append(
                f"Exits in {name}: unclear. Every point loses more than {100 * drop:g} point, but exits had only "
                f"{result.samples / result.num_classes:.0f} samples per class to learn from."
            )
        else:
            lines.append(f"Exits in {name}: no gain. Every point loses more than {100 * drop:g} point.")
    if few:
        lines.append(
            f"With {result.samples / result.num_classes:.0f} samples per class exits learn little: a fit on more "
            "samples does better, perhaps much better. Raise --samples to see."
        )
    for name, point in result.alone:
        if point.change >= 0:
            lines.append(f"{name} by itself is as accurate, at {100 * point.cost:.0f} % of the cost: use that.")
    return lines
