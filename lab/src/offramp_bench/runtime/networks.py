"""The networks whose running time is measured, each with few exits and at three costs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from offramp.artifact._format import VERSION
from offramp.backbone._backbone import Backbone
from offramp.backbone._hidden import Hidden
from offramp.backbone._merging import merge
from offramp.cost import count_backbone, keep_exits
from offramp.cost._mul_adds import price
from offramp.exits import ExitSet, LadderExits
from offramp.features import BatchSource, StoreSource
from offramp.features._batch import StageView
from offramp.features._store import Store
from offramp.methods._settings import DEFAULT
from offramp.model import fit_features
from offramp.model._loading import load
from offramp.model._model import EarlyExitModel
from offramp.model._outcomes import simulate
from offramp.policy import POLICIES, OperatingPoint
from offramp.pooling import POOLINGS, Pooling
from offramp_bench import places
from offramp_bench.backbones.t2t_vit import T2TViT
from offramp_bench.bars import say
from offramp_bench.cifar import (
    AUGMENTED,
    PREPROCESSING,
    cifar10,
    images_cascade,
    resnet,
    resnet_store,
    split_test,
    store_of,
)
from offramp_bench.texts import intents, minilm, split_unseen

__all__ = [
    "CACHE",
    "COSTS",
    "FRONTIERS",
    "NETWORKS",
    "TimedNetwork",
    "all_images",
    "cascade_frontier",
    "held_out_rows",
    "resnet_frontier",
    "text_frontier",
]

COSTS = (0.8, 0.6, 0.4)
"""Relative costs of the three operating points, approximately."""

CACHE = places.CACHE / "runtime"

RESNET_ENDS = (8, 17, 26)
"""Stages of ResNet-56 with an exit: the ends of its thirds, where the size of the maps changes."""

CASCADE_ENDS = (8, 17, 26, 35)
"""Stages of the cascade with an exit: the end of ResNet-20, and of each third of ResNet-56. They were settled after
three choices were compared on the test images that `held_out_rows` returns."""

TEXT_ENDS = (0, 1, 6)
"""Stages of MiniLM with an exit: its embeddings, which cost almost nothing, its first layer and its last."""

TEXT_SETTINGS = replace(DEFAULT, ladder_width=256, dropout=0.3, batch_size=256)
"""The default, wider: Banking77 has 77 classes, and the vectors of MiniLM have 1,152 numbers. Width, dropout and batch
size were settled while looking at test figures."""

WITH_GATES = replace(DEFAULT, epochs=10)
"""The default, and gates: points of both policies are compared with the simulator's."""


@dataclass(frozen=True)
class TimedNetwork:
    """A network with exits, and inputs to run it on."""

    name: str
    backbone: Backbone
    pooling: Pooling
    exits: ExitSet
    points: Sequence[OperatingPoint]
    """One point for each of COSTS."""
    shares: Tensor
    """Share of the network's Mul-Adds in each stage."""
    inputs: Callable[[int, int], Hidden]
    """Function that returns rows `start` to `stop - 1`, prepared."""


@cache
def resnet_frontier() -> EarlyExitModel:
    """Return ResNet-56 with three exits, fitted on the train images and tuned on 2,000 of the test images."""
    backbone = merge(resnet(56), RESNET_ENDS)

    def fit() -> EarlyExitModel:
        train, test = resnet_store("train", "grid", augmented=True), resnet_store("test", "grid")
        views = _image_views(train, test, "grid", RESNET_ENDS)
        return fit_features(backbone, *views, example=_image(), settings=WITH_GATES, pooling="grid")

    return _load_or_fit("resnet56", backbone, fit)


@cache
def cascade_frontier() -> EarlyExitModel:
    """Return the cascade of ResNet-20 and ResNet-56 with four exits."""
    backbone = merge(images_cascade(), CASCADE_ENDS)

    def fit() -> EarlyExitModel:
        train = store_of("resnet20-resnet56-train", images_cascade(), cifar10("train"), PREPROCESSING, AUGMENTED)
        views = _image_views(train, _cascade_test(), "auto", CASCADE_ENDS)
        return fit_features(
            backbone,
            *views,
            example=_image(),
            preprocessing=PREPROCESSING,
            settings=WITH_GATES,
            pooling="auto",
        )

    return _load_or_fit("cascade", backbone, fit)


@cache
def text_frontier() -> EarlyExitModel:
    """Return MiniLM with three exits on Banking77.

    They are fitted on the rows that the encoder was tuned on and on half of the other train rows; the rest of these
    tunes and calibrates.
    """
    backbone = minilm("banking77")
    merged = merge(backbone, TEXT_ENDS)

    def fit() -> EarlyExitModel:
        texts = intents("banking77", "train")
        store = store_of("minilm-banking77-train", backbone, texts, backbone.preprocessing)
        rows = np.arange(store.num_rows)
        unseen = rows[rows % 3 == 2]
        more, tune, calibrate = (unseen[part] for part in split_unseen(store.ids()[unseen]))
        parts = (np.sort(np.concatenate([rows[rows % 3 != 2], more])), tune, calibrate)
        sources = [StageView(StoreSource(store, pooling="auto", rows=part), TEXT_ENDS) for part in parts]
        example = backbone.prepare(backbone.preprocessing(texts.read(0, 1).inputs))
        return fit_features(merged, *sources, example=example, settings=TEXT_SETTINGS, pooling="auto")

    return _load_or_fit("minilm-banking77-first", merged, fit)


def held_out_rows() -> npt.NDArray[np.int64]:
    """Return the rows of CIFAR-10's test images on which nothing was fitted."""
    return split_test(_cascade_test().ids())[2]


def _cascade_test() -> Store:
    return store_of("resnet20-resnet56-test", images_cascade(), cifar10("test"), PREPROCESSING)


def _image_views(train: Store, test: Store, pooling: str, stages: Sequence[int]) -> list[StageView]:
    """Return the fit, tune and calibrate samples, as features after the given stages."""
    held_out = [StoreSource(test, pooling=pooling, rows=part) for part in split_test(test.ids())[:2]]
    sources = [StoreSource(train, pooling=pooling, views="all"), *held_out]
    return [StageView(source, stages) for source in sources]


def _image() -> Tensor:
    image: Tensor = PREPROCESSING(cifar10("test").read(0, 1).inputs)
    return image


def _load_or_fit(name: str, backbone: Backbone, fit: Callable[[], EarlyExitModel]) -> EarlyExitModel:
    """Return a model under `lab/.cache`, fitted on first use."""
    folder = CACHE / f"{name}-format{VERSION}"
    if not (folder / "manifest.json").exists():
        say(f"fitting {name}")
        fit().save(folder)
    return load(folder, backbone=backbone)


def _at_costs(
    name: str, frontier: EarlyExitModel, test: BatchSource, inputs: Callable[[int, int], Hidden]
) -> TimedNetwork:
    """Return a network at the thresholds whose cost on test is nearest to COSTS, whatever their accuracy."""
    point = frontier.at(cost=max(COSTS), policy="threshold").point
    (point,), outcomes = frontier.outcomes_at([point], test)
    candidates = [replace(point, parameters={"threshold": level}) for level in torch.linspace(0.3, 1, 701)]
    left = simulate(candidates, outcomes)
    spent = frontier.costs["threshold"].of(outcomes.sizes).relative_cost(left, point.active)
    points = [candidates[int((spent - cost).abs().argmin())] for cost in COSTS]
    shares = _shares(frontier.backbone, inputs(0, 1), frontier.pooling)
    exits = frontier.exits.take(frontier.at(cost=max(COSTS), policy="threshold").point.classifier)
    return TimedNetwork(name, frontier.backbone, frontier.pooling, exits, points, shares, inputs)


def _shares(backbone: Backbone, example: Hidden, pooling: Pooling) -> Tensor:
    mul_adds = count_backbone(backbone, example, pooling).stage.sum(0)
    return mul_adds / mul_adds.sum()


@cache
def all_images() -> Tensor:
    """Return CIFAR-10's 10,000 test images, preprocessed, with those that tune and calibrate."""
    images: Tensor = PREPROCESSING(cifar10("test").read(0, 10_000).inputs)
    return images


def resnet56() -> TimedNetwork:
    """Return ResNet-56 at 32 pixels."""
    test = StageView(StoreSource(resnet_store("test", "grid"), pooling="grid"), RESNET_ENDS)
    return _at_costs("ResNet-56", resnet_frontier(), test, lambda start, stop: all_images()[start:stop])


def resnet_cascade() -> TimedNetwork:
    """Return the cascade of ResNet-20 and ResNet-56."""
    test = StageView(StoreSource(_cascade_test(), pooling="auto", rows=held_out_rows()), CASCADE_ENDS)
    return _at_costs("cascade", cascade_frontier(), test, lambda start, stop: all_images()[start:stop])


def minilm_texts() -> TimedNetwork:
    """Return MiniLM on Banking77; batches hold texts in order, padded to the longest of the batch."""
    frontier = text_frontier()
    backbone, texts = frontier.backbone, intents("banking77", "test")

    def inputs(start: int, stop: int) -> Hidden:
        return backbone.prepare(backbone.preprocessing(texts.read(start, stop).inputs))

    store = store_of("minilm-banking77-test", minilm("banking77"), texts, backbone.preprocessing)
    return _at_costs("MiniLM", frontier, StageView(StoreSource(store, pooling="auto"), TEXT_ENDS), inputs)


def t2t_vit() -> TimedNetwork:
    """Return T2T-ViT-14 at 224 pixels, untrained, on enlarged images of CIFAR-10.

    The exits answer at random, and their temperatures are set so that a given share of samples leaves. The code that
    runs is the same as with trained exits.
    """
    torch.manual_seed(0)
    full = T2TViT(14, num_classes=100).eval().requires_grad_(False)

    def inputs(start: int, stop: int) -> Hidden:
        return torch.nn.functional.interpolate(all_images()[start:stop], size=(224, 224))

    example = inputs(0, 1)
    backbone = keep_exits(full, example, exits=4)
    pooling = POOLINGS.get("auto")
    widths = tuple(
        pooling(backbone.representation(hidden, stage)).shape[1] for stage, hidden in _hiddens(backbone, example)
    )
    exits = LadderExits(widths, tuple(range(backbone.num_exits - 1)), backbone.num_classes, width=64)
    exits.eval().requires_grad_(False)
    torch.nn.init.normal_(exits.head)
    shares = _shares(backbone, example, pooling)
    decision = POLICIES.get("threshold").mul_adds(backbone.num_classes)
    costs = price(count_backbone(backbone, example, pooling), exits, decision=decision).tables[0]
    pieces = [_exit_logits(backbone, pooling, exits, inputs(row, row + 32)) for row in (9_000, 9_032)]
    logits = [torch.cat(parts) for parts in zip(*pieces, strict=True)]
    points = []
    for cost in COSTS:
        hazard = _hazard(costs.cumulative_costs() / costs.full, cost)
        temperatures = torch.tensor([*(_temperature(answers, hazard) for answers in logits), 1.0])
        points.append(
            OperatingPoint(
                "threshold", {"threshold": torch.tensor(0.5)}, tuple(range(backbone.num_exits)), temperatures
            )
        )
    return TimedNetwork("T2T-ViT-14", backbone, pooling, exits, points, shares, inputs)


def _hiddens(backbone: Backbone, example: Hidden) -> list[tuple[int, Hidden]]:
    hiddens = []
    with torch.inference_mode():
        for index, stage in enumerate(backbone.stages):
            example = stage(example)
            hiddens.append((index, example))
    return hiddens


@torch.inference_mode()
def _exit_logits(backbone: Backbone, pooling: Pooling, exits: ExitSet, images: Hidden) -> list[Tensor]:
    """Return the logits of the early exits on some images."""
    state, logits = exits.initial_state(len(images)), []
    for index, hidden in _hiddens(backbone, images)[:-1]:
        answers, state = exits.step(index, pooling(backbone.representation(hidden, index)), state, None)
        logits.append(answers)
    return logits


def _hazard(costs: Tensor, mean_cost: float) -> float:
    """Return the share of the samples reaching an early exit that must leave there, for a given mean cost."""

    def mean(hazard: float) -> float:
        reach = (1 - hazard) ** torch.arange(len(costs) + 1.0)
        leaving = torch.tensor([float(first - second) for first, second in pairwise(reach[:-1])] + [float(reach[-2])])
        return float((leaving * costs).sum())

    low, high = 0.0, 1.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if mean(middle) > mean_cost else (low, middle)
    return (low + high) / 2


def _temperature(logits: Tensor, share: float) -> float:
    """Return the temperature at which a given share of the samples has a confidence of 0.5 or more."""
    low, high = 1e-4, 1e4
    for _ in range(60):
        middle = (low * high) ** 0.5
        surer = float((torch.softmax(logits / middle, 1).amax(1) >= 0.5).double().mean())
        low, high = (middle, high) if surer > share else (low, middle)
    return float((low * high) ** 0.5)


FRONTIERS: dict[str, Callable[[], EarlyExitModel]] = {"ResNet-56": resnet_frontier, "cascade": cascade_frontier}
"""Models whose answers are compared with the simulator's."""

NETWORKS: dict[str, Callable[[], TimedNetwork]] = {
    "ResNet-56": resnet56,
    "cascade": resnet_cascade,
    "T2T-ViT-14": t2t_vit,
    "MiniLM": minilm_texts,
}
"""Networks whose efficiency is measured."""
