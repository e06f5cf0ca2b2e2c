"""Gain from a cheaper network in front, and gain from exits in a text encoder.

    python -m offramp_bench.cascade [--check] [--rotations 5]

CIFAR-10: ResNet-20 before ResNet-56, same data and rotations as offramp_bench.frontier_quality; costs are relative to
ResNet-56 alone, and so are changes of accuracy. Texts: all-MiniLM-L6-v2 tuned to CLINC150 and Banking77. It was tuned
on two thirds of the train samples; exits are fitted on these and on half of the last third. The other half is split
into tune and calibrate, in rotations. Figures are on the official test samples.
"""

import sys
from dataclasses import replace
from statistics import fmean
from typing import Any

import numpy as np
import torch

from offramp.backbone import Cascade
from offramp.backbone._backbone import Backbone
from offramp.backbone._cascading import cascade
from offramp.cost import count_backbone
from offramp.features import BatchSource, StoreSource, split_by_id
from offramp.features._store import Store
from offramp.methods._settings import DEFAULT
from offramp.model import fit_features
from offramp.model._fitting import prune_members
from offramp.model._model import EarlyExitModel
from offramp.pooling import POOLINGS
from offramp_bench.bars import Bar, parser, report, say
from offramp_bench.cifar import AUGMENTED, PREPROCESSING, cifar10, resnet, resnet_store, store_of
from offramp_bench.frontier_quality import CURVE, SIZES, at_costs, spread, summary
from offramp_bench.texts import intents, minilm, split_unseen

STATIC = (20, 32, 44)
"""Layers of the smaller networks that are the alternative."""

TEXT = replace(DEFAULT, ladder_width=256, dropout=0.3, batch_size=256)
"""The default, wider: a text has 77 or 150 classes here, and its vectors have 1,152 numbers."""

TEXT_COST = 0.15
"""Requested cost of both text networks at the bar. Budgets are set on train samples; test samples may cost more."""

TEXT_CURVE = (0.05, 0.1, 0.12, TEXT_COST, 0.17, 0.2, 0.3, 0.5)


def images_cascade() -> Cascade:
    """Return ResNet-20, then ResNet-56."""
    return cascade(resnet(20), resnet(56))


def images_sources(backbone: Backbone, rotation: int) -> list[StoreSource]:
    """Return features of the cascade for fit, tune, calibrate and test of one rotation."""
    train = store_of("resnet20-resnet56-train", backbone, cifar10("train"), PREPROCESSING, AUGMENTED)
    store = store_of("resnet20-resnet56-test", backbone, cifar10("test"), PREPROCESSING)
    rows = split_by_id(store.ids(), SIZES, seed=0, rotation=rotation * SIZES[0])
    held_out = [StoreSource(store, pooling="auto", rows=part) for part in rows]
    return [StoreSource(train, pooling="auto", views="all"), *held_out]


def fit_images(rotation: int, *, members: bool) -> tuple[EarlyExitModel, StoreSource]:
    """Fit the cascade on one rotation, with `members` also without ResNet-20; return it and the test split."""
    backbone = images_cascade()
    fit, tune, calibrate, test = images_sources(backbone, rotation)
    sources = fit, tune, calibrate
    example = PREPROCESSING(cifar10("test").read(0, 1).inputs)

    def fit_part(part: Backbone, parts: Any) -> EarlyExitModel:
        return fit_features(part, *parts, example=example, preprocessing=PREPROCESSING, pooling="auto")

    model = fit_part(backbone, sources)
    return (prune_members(model, sources, fit_part) if members else model), test


def static_networks(test: StoreSource) -> list[dict[str, float]]:
    """Return cost and change of accuracy of each smaller network on test, relative to ResNet-56."""
    example = PREPROCESSING(cifar10("test").read(0, 1).inputs)
    costs = {layers: count_backbone(resnet(layers), example, POOLINGS.get("mean")).full[0] for layers in (*STATIC, 56)}
    right = {layers: _accuracy(resnet_store(layers, "test", "mean"), test) for layers in (*STATIC, 56)}
    return [
        {"layers": layers, "cost": float(costs[layers] / costs[56]), "change": right[layers] - right[56]}
        for layers in STATIC
    ]


def _accuracy(store: Store, test: BatchSource) -> float:
    """Return the share of the test samples that a network's own last head gets right."""
    is_test = np.isin(store.ids(), test.ids())
    source = StoreSource(store, pooling="mean", rows=np.flatnonzero(is_test))
    hits = [
        (b.own_logits[store.own_heads[-1]].argmax(1) == b.labels).double() for b in source.in_order(batch_size=1000)
    ]
    return float(torch.cat(hits).mean())


def measure_rotation(rotation: int) -> dict[str, Any]:
    """Return all figures of the cascade of one rotation."""
    frontier, test = fit_images(rotation, members=rotation == 0)
    static = static_networks(test)
    instead = at_costs(frontier, test, tuple(row["cost"] for row in static), None)
    return {
        "cascade": at_costs(frontier, test, (0.46, 0.64, *CURVE), None),
        "cascade threshold": at_costs(frontier, test, CURVE, "threshold"),
        "cascade gates": at_costs(frontier, test, CURVE, "gates"),
        "cascade instead of static": instead,
        "static": static,
        "preferred": frontier.policy,
        "share of ResNet-20 in the average": float(frontier.exits.averaging.shares[-1:].sum()),
        "active exits": len(frontier.points["threshold"][0].active),
        "contributions": [
            [contribution.name, contribution.gain, contribution.kept] for contribution in frontier.contributions
        ],
    }


def text_sources(task: str, backbone: Backbone, rotation: int) -> list[StoreSource]:
    """Return features of a text encoder for fit, tune, calibrate and test of one rotation."""
    train, test = (
        store_of(f"minilm-{task}-{part}", backbone, intents(task, part), backbone.preprocessing)
        for part in ("train", "test")
    )
    rows = np.arange(train.num_rows)
    unseen = rows[rows % 3 == 2]  # the backbone was tuned on the others
    more, tune, calibrate = (unseen[part] for part in split_unseen(train.ids()[unseen], rotation))
    fit = np.sort(np.concatenate([rows[rows % 3 != 2], more]))
    parts = [StoreSource(train, pooling="auto", rows=part) for part in (fit, tune, calibrate)]
    return [*parts, StoreSource(test, pooling="auto")]


def fit_texts(task: str, rotation: int) -> tuple[EarlyExitModel, StoreSource]:
    """Fit exits to a text encoder on one rotation; return the model and the test split."""
    backbone = minilm(task)
    *sources, test = text_sources(task, backbone, rotation)
    example = backbone.prepare(backbone.preprocessing(intents(task, "train").read(0, 1).inputs))
    frontier = fit_features(backbone, *sources, example=example, settings=TEXT, pooling="auto")
    return frontier, test


def bars(curves: dict[str, Any], rotations: list[dict[str, Any]], texts: dict[str, Any]) -> list[Bar]:
    """Return the bars."""
    cheap, better = curves["cascade"][:2]
    all_bars = [
        Bar("cascade at ResNet-56's accuracy: relative cost", cheap["cost"]["mean"], 0.47),
        Bar("cascade at ResNet-56's accuracy: points lost", -100 * cheap["change"]["mean"], 0.0),
        Bar("cascade above ResNet-56: relative cost", better["cost"]["mean"], 0.65),
        Bar("cascade above ResNet-56: points lost", -100 * better["change"]["mean"], -0.3),
    ]
    for index, layers in enumerate(STATIC):
        static = fmean(rotation["static"][index]["change"] for rotation in rotations)
        row = curves["cascade instead of static"][index]
        all_bars.append(
            Bar(f"ResNet-{layers} above the cascade at its cost, points", 100 * (static - row["change"]["mean"]), 0)
        )
        spent = row["cost"]["mean"] - rotations[0]["static"][index]["cost"]
        all_bars.append(Bar(f"cascade costs more there than ResNet-{layers}", spent, 0.005))
    for task, rows in texts.items():
        row = next(row for row in rows if row["asked"] == TEXT_COST)
        all_bars.append(Bar(f"{task} at the full accuracy: relative cost", row["cost"]["mean"], 0.2))
        all_bars.append(Bar(f"{task} at the full accuracy: points lost", -100 * row["change"]["mean"], 0.0))
    return all_bars


def main() -> int:
    options = parser(__doc__)
    options.add_argument("--rotations", type=int, default=5, help="how many of the five")
    arguments = options.parse_args()
    texts: dict[str, list[dict[str, Any]]] = {}
    for task in ("clinc150", "banking77"):
        curves_by_rotation = []
        for rotation in range(arguments.rotations):
            frontier, test = fit_texts(task, rotation)
            cheapest = frontier.points[frontier.policy][0].tune_metrics["cost"]
            rows = at_costs(frontier, test, (cheapest + 1e-6, *TEXT_CURVE), None)
            curves_by_rotation.append({task: [{**rows[0], "asked": 0.0}, *rows[1:]]})  # 0: the cheapest point
            say(f"{task}: rotation {rotation + 1} of {arguments.rotations} done")
        texts |= summary(curves_by_rotation)
    rotations = []
    for rotation in range(arguments.rotations):
        rotations.append(measure_rotation(rotation))
        say(f"cascade: rotation {rotation + 1} of {arguments.rotations} done")
    curves = summary([{k: v for k, v in r.items() if k.startswith("cascade")} for r in rotations])
    static = [
        {"layers": layers, "cost": rotations[0]["static"][index]["cost"]}
        | {"change": spread([rotation["static"][index]["change"] for rotation in rotations])}
        for index, layers in enumerate(STATIC)
    ]
    figures = {"curves": curves, "static": static, "texts": texts, "rotations": rotations}
    return report(figures, bars(curves, rotations, texts), check=arguments.check)


if __name__ == "__main__":
    sys.exit(main())
