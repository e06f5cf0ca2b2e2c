"""All backbones."""

import time
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import Any

import torch

from offramp.backbone._backbone import Backbone
from offramp.features import Source
from offramp_bench import texts
from offramp_bench.backbones import graphs, lite0, minilm, sources, t2t, weights
from offramp_bench.backbones.pretrained import Pretrained
from offramp_bench.backbones.training import Recipe, accuracy
from offramp_bench.backbones.weights import State

__all__ = ["BACKBONES"]

Rows = Callable[[str], Source]


def _backbone_from_data(name: str, rows: Rows, load: Callable[[], Backbone]) -> Pretrained:
    """Return a backbone whose weights come with the data."""
    return Pretrained(name, load, partial(rows, "seen"), partial(rows, "unseen"), partial(rows, "test"), train=None)


def _lab_backbone(
    name: str,
    rows: Rows,
    make: Callable[[State], Backbone],
    fit: Callable[[Any, Recipe], State],
    recipe: Recipe,
    *,
    other_tests: tuple[str, ...] = (),
) -> Pretrained:
    """Return a backbone that is fitted here.

    Args:
        name: Name of the backbone, and of its file.
        rows: The source of each part: "seen", "unseen", "test".
        make: Function from weights to backbone.
        fit: Function from source and recipe to weights.
        recipe: Settings of the training.
        other_tests: Further parts to test on.
    """

    def train() -> dict[str, Any]:
        began = time.monotonic()
        state = weights.to_half_precision(fit(rows("seen"), recipe))
        seconds = round(time.monotonic() - began)
        # Measure the weights as they are saved, after rounding.
        backbone = make(state)
        accuracies = {part: accuracy(backbone, rows(part)) for part in ("test", "unseen", *other_tests)}
        figures = {"accuracy": accuracies, **asdict(recipe), "seconds": seconds}
        weights.write(name, state, figures)
        return figures

    return Pretrained(
        name,
        lambda: make(weights.read(name)),
        partial(rows, "seen"),
        partial(rows, "unseen"),
        partial(rows, "test"),
        train,
        {part: partial(rows, part) for part in other_tests},
    )


def _superpixel_network() -> graphs.GraphNetwork:
    return graphs.GraphNetwork(3, 64, 6, 10, readout="mean")


def _molecule_network() -> graphs.GraphNetwork:
    return graphs.GraphNetwork(37, 64, 6, 2, readout="add")


def _fit_graphs(
    make: Callable[[], graphs.GraphNetwork], seen: Any, recipe: Recipe, *, has_positions: bool, name: str
) -> State:
    torch.manual_seed(recipe.seed)
    return graphs.fit_network(make(), seen, recipe, has_positions=has_positions, name=name)


def _tuned_encoder(task: str, rows: Rows, num_classes: int) -> Pretrained:
    """Return all-MiniLM-L6-v2 tuned to a dataset of texts."""
    name = f"minilm-{task}"
    return _lab_backbone(
        name,
        rows,
        partial(texts.backbone_of, name=name),
        partial(minilm.tune_encoder, num_classes=num_classes, name=name),
        Recipe(epochs=2, batch_size=32, rate=1e-3, weight_decay=0.01, smoothing=0.0),
    )


_ALL = (
    _backbone_from_data(
        "lite0-cifar100",
        sources.cifar100,
        lambda: lite0.backbone_of(lite0.read_cifar100_weights(), name="efficientnet-lite0-cifar100"),
    ),
    _lab_backbone(
        "lite0-cifar100lt",
        sources.cifar100_long_tailed,
        partial(lite0.backbone_of, name="efficientnet-lite0-cifar100lt"),
        partial(lite0.fit_network, num_classes=100, mirrored=True, name="lite0-cifar100lt"),
        Recipe(epochs=8, batch_size=64, rate=1e-3, weight_decay=0.02),
        other_tests=("long-tailed test",),
    ),
    _lab_backbone(
        "lite0-svhn",
        sources.svhn,
        partial(lite0.backbone_of, name="efficientnet-lite0-svhn"),
        partial(lite0.fit_network, num_classes=10, mirrored=False, name="lite0-svhn"),
        Recipe(epochs=7, batch_size=64, rate=2e-3, weight_decay=0.02),
    ),
    _lab_backbone(
        "t2t-cifar10",
        sources.cifar10,
        partial(t2t.backbone_of, num_classes=10),
        partial(t2t.fit_network, num_classes=10, name="t2t-cifar10"),
        Recipe(epochs=18, batch_size=64, rate=6e-4, weight_decay=0.05, bfloat16=True),
    ),
    _lab_backbone(
        "gnn-superpixels",
        sources.superpixels,
        lambda state: graphs.backbone_of(_superpixel_network(), state, name="gin-superpixels"),
        partial(_fit_graphs, _superpixel_network, has_positions=True, name="gnn-superpixels"),
        Recipe(epochs=30, batch_size=64, rate=3e-3, weight_decay=0.01, smoothing=0.05),
    ),
    _lab_backbone(
        "gnn-nci1",
        sources.nci1,
        lambda state: graphs.backbone_of(_molecule_network(), state, name="gin-nci1"),
        partial(_fit_graphs, _molecule_network, has_positions=False, name="gnn-nci1"),
        Recipe(epochs=40, batch_size=64, rate=2e-3, weight_decay=0.05, smoothing=0.1),
    ),
    _tuned_encoder("agnews", minilm.agnews, 4),
    _tuned_encoder("sst2", minilm.sst2, 2),
)

BACKBONES = {backbone.name: backbone for backbone in _ALL}
"""All backbones by name."""
