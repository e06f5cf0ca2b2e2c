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
    ExitsOption,
    JsonOption,
    LabelOption,
    PoolingOption,
    SplitOption,
    StoreOption,
)

if TYPE_CHECKING:
    from offramp.frontier import Estimate

__all__ = ["estimate", "sentences"]


FEW = 20
"""Samples a class below which exits are far from what more would make of them: measured on CLINC150, 150 classes."""


def estimate(
    backbone: BackboneOption,
    data: DataOption,
    samples: Annotated[int, typer.Option(min=40, metavar="N", help="How many samples to draw from the data.")] = 1000,
    label: LabelOption = "label",
    column: ColumnOption = None,
    split: SplitOption = None,
    classes: ClassesOption = None,
    exits: ExitsOption = None,
    pooling: PoolingOption = DEFAULT_POOLING,
    seed: Annotated[int, typer.Option(metavar="N", help="Of the draw and of everything else.")] = 0,
    store: StoreOption = None,
    anyway: AnywayOption = False,
    as_json: JsonOption = False,
) -> None:
    """Is it worth it here? Try exits on some 1,000 samples, each scored by a fit that has not seen it.

    With two networks, the cheaper first, it also tells what the cheaper one brings. Exits of a real fit see more
    samples and are better; but if the network was trained on this data, everything here is too good.

    [bold]Example[/bold]: offramp estimate --model models:small --model models:large --data validation.csv
    """
    from offramp.cli.datasets import Columns, classes_for, kept_in, open_labelled
    from offramp.cli.networks import make_network
    from offramp.data import sample
    from offramp.frontier import estimate as try_exits
    from offramp.methods import DEFAULT

    network = make_network(backbone)
    source = open_labelled(data, network, Columns(label, column, split), classes=classes_for(network, classes))
    drawn = sample(source, min(samples, len(source)), seed=seed)
    with kept_in(store) as folder:
        settings = replace(DEFAULT, seed=seed)
        found = try_exits(
            network,
            drawn,
            pooling=pooling,
            exits=exits,
            settings=settings,
            store=folder,
            anyway=anyway,
            progress=not as_json,
        )
    if as_json:
        print_json({**asdict(found), "verdict": list(sentences(found))})
        return
    rows = [
        [f"exits in {name}", f"{point.cost:.3f}", points(point.change), interval(point.change_interval)]
        for name, curve in found.curves.items()
        for point in curve
    ]
    rows += [
        [f"{name} by itself", f"{point.cost:.3f}", points(point.change), interval(point.change_interval)]
        for name, point in found.alone
    ]
    title = f"{found.samples:,} samples; the full network is right on {100 * found.full_accuracy:.1f} %"
    print_table(title, ["", "cost", "change", "95 % interval"], rows)
    for sentence in sentences(found):
        print_text(sentence)
    if len(backbone) == 1:
        say("A cheaper network before this one often brings more: give it as the first of two --model.")


def sentences(found: "Estimate", *, drop: float = 0.01) -> list[str]:
    """What an estimate says, and how sure it is."""
    from offramp.frontier.estimate import COSTS

    told = []
    few = found.samples < FEW * found.num_classes
    for name in found.curves:
        sure, likely = (found.cheapest(name, drop=drop, sure=sure) for sure in (True, False))
        if sure is not None:
            told.append(
                f"Exits in {name}: worth it. {sure.cost:.2f} of the cost loses at most {100 * drop:g} point with 95 % "
                f"confidence (change {points(sure.change)})."
            )
        elif likely is not None:
            told.append(
                f"Exits in {name}: probably. {likely.cost:.2f} of the cost changes accuracy by "
                f"{points(likely.change)}, but {found.samples:,} samples do not rule out a loss of "
                f"{-100 * likely.change_interval[0]:.1f} points; give more."
            )
        elif not found.curves[name]:
            told.append(
                f"Exits in {name}: not by this. No cost of {COSTS[-1]:g} or less can be had: the network is so small "
                "that exits cost more than they save."
            )
        elif few:
            told.append(
                f"Exits in {name}: cannot tell. Every point loses more than {100 * drop:g} point, but exits had only "
                f"{found.samples / found.num_classes:.0f} samples per class to learn from."
            )
        else:
            told.append(f"Exits in {name}: not by this. Every point loses more than {100 * drop:g} point.")
    if few:
        told.append(
            f"With {found.samples / found.num_classes:.0f} samples a class exits learn little: a real fit on more will "
            "do better than this, perhaps much better. Raise --samples to see."
        )
    for name, point in found.alone:
        if point.change >= 0:
            told.append(f"{name} by itself is as accurate, at {point.cost:.2f} of the cost: use that.")
    return told
