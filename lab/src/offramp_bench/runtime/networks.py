"""The networks whose running time is measured, each with few exits and three settings of the dial."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from offramp.artifact import VERSION
from offramp.cost import count_trunk, price, thinned
from offramp.exits import ExitBank, LadderExits
from offramp.features import BatchSource, StageView, StoreSource, split_by_id
from offramp.frontier import Frontier, fit_frontier, load, save, simulate
from offramp.policy import POLICIES, OperatingPoint
from offramp.trunk import POOLINGS, Hidden, Pooling, Trunk, merge
from offramp_bench import places
from offramp_bench.backbones.t2t_vit import T2TViT
from offramp_bench.bars import say
from offramp_bench.chain import TEXT, images_chain, images_sources, text_sources
from offramp_bench.cifar import PREPROCESSING, cached, cifar10, resnet, store_of
from offramp_bench.few_exits import ENDS, fit_few
from offramp_bench.frontier_quality import SIZES, rotation_splits
from offramp_bench.texts import intents, minilm

__all__ = [
    "CACHE",
    "COSTS",
    "FRONTIERS",
    "NETWORKS",
    "Measured",
    "all_images",
    "chain_frontier",
    "held_out_rows",
    "resnet_frontier",
    "text_frontier",
]

COSTS = (0.8, 0.6, 0.4)
"""Relative costs the points are near to."""

CACHE = places.CACHE / "runtime"

RESNET_ENDS = (8, 17, 26)
"""Of ResNet-56's stages: its thirds, where maps change their size."""

TEXT_ENDS = (0, 1, 6)
"""Of MiniLM's stages: its embeddings, which cost next to nothing, its first layer and its last."""


@dataclass(frozen=True)
class Measured:
    """A network with exits, and inputs to run it on."""

    name: str
    trunk: Trunk
    pooling: Pooling
    bank: ExitBank
    points: Sequence[OperatingPoint]
    """One for each of COSTS."""
    shares: Tensor
    """Of the network's Mul-Adds, in each stage."""
    inputs: Callable[[int, int], Hidden]
    """Rows as `trunk.prepare` gives them."""


@cache
def resnet_frontier() -> Frontier:
    """ResNet-56 with three exits, fitted on the train images; tuned on 2,000 of the test images."""
    trunk = resnet(56)

    def fit() -> Frontier:
        train = StoreSource(cached(56, "train", "grid", augmented=True), pooling="grid", views="all")
        views = [StageView(source, RESNET_ENDS) for source in (train, *rotation_splits("grid", 0)[:2])]
        return fit_frontier(merge(trunk, RESNET_ENDS), *views, example=_image(), pooling="grid")

    return _kept("resnet56-thirds", merge(trunk, RESNET_ENDS), fit)


@cache
def chain_frontier(rotation: int = 0) -> Frontier:
    """ResNet-20 before ResNet-56 with four exits, as offramp_bench.few_exits fits it."""
    return _kept(f"chain-{rotation}", merge(images_chain(), ENDS), lambda: fit_few(rotation)[0])


@cache
def text_frontier(task: str = "banking77") -> Frontier:
    """MiniLM with three exits, fitted as offramp_bench.chain does it, first rotation."""
    trunk = minilm(task)

    def fit() -> Frontier:
        *sources, _ = (StageView(source, TEXT_ENDS) for source in text_sources(task, trunk, 0))
        example = trunk.prepare(trunk.preprocessing(intents(task, "train").read(0, 1).inputs))
        return fit_frontier(merge(trunk, TEXT_ENDS), *sources, example=example, settings=TEXT, pooling="auto")

    return _kept(f"minilm-{task}-first", merge(trunk, TEXT_ENDS), fit)


def held_out_rows(rotation: int = 0) -> Any:
    """Rows of CIFAR-10's test images that nothing of a rotation was fitted on."""
    store = store_of("resnet20-resnet56-test", images_chain(), cifar10("test"), PREPROCESSING)
    return split_by_id(store.ids(), SIZES, seed=0, rotation=rotation * SIZES[0])[2]


def _image() -> Tensor:
    image: Tensor = PREPROCESSING(cifar10("test").read(0, 1).inputs)
    return image


def _kept(name: str, trunk: Trunk, fit: Callable[[], Frontier]) -> Frontier:
    """A frontier under `lab/.cache`, fitted on first use."""
    folder = CACHE / f"{name}-format{VERSION}"
    if not (folder / "manifest.json").exists():
        say(f"fitting {name}")
        save(fit(), folder)
    return load(folder, trunk=trunk)


def _served(name: str, frontier: Frontier, test: BatchSource, inputs: Callable[[int, int], Hidden]) -> Measured:
    """The network at thresholds that cost nearest to COSTS on test, be it that dearer ones are no more accurate."""
    point = frontier.choose(cost=max(COSTS), policy="threshold").point
    (point,), seen = frontier.outcomes_at([point], test)
    asked = [replace(point, parameters={"threshold": level}) for level in torch.linspace(0.3, 1, 701)]
    exits = simulate(asked, seen)
    spent = frontier.costs["threshold"].of(seen.sizes).relative_cost(exits, point.active)
    points = [asked[int((spent - cost).abs().argmin())] for cost in COSTS]
    shares = _shares(frontier.trunk, inputs(0, 1), frontier.pooling)
    bank = frontier.bank.take(frontier.choose(cost=max(COSTS), policy="threshold").point.classifier)
    return Measured(name, frontier.trunk, frontier.pooling, bank, points, shares, inputs)


def _shares(trunk: Trunk, example: Hidden, pooling: Pooling) -> Tensor:
    counted = count_trunk(trunk, example, pooling).stage.sum(0)
    return counted / counted.sum()


@cache
def all_images() -> Tensor:
    """CIFAR-10's 10,000 test images, those that tune and calibrate among them, as the networks take them."""
    images: Tensor = PREPROCESSING(cifar10("test").read(0, 10_000).inputs)
    return images


def resnet56() -> Measured:
    """ResNet-56 at 32 px."""
    test = StageView(StoreSource(cached(56, "test", "grid"), pooling="grid"), RESNET_ENDS)
    return _served("ResNet-56", resnet_frontier(), test, lambda start, stop: all_images()[start:stop])


def resnet_chain() -> Measured:
    """ResNet-20, then ResNet-56."""
    test = StageView(images_sources(images_chain(), 0)[-1], ENDS)
    return _served("chain", chain_frontier(), test, lambda start, stop: all_images()[start:stop])


def minilm_texts() -> Measured:
    """MiniLM on Banking77; batches hold texts as they come, padded to the longest among them."""
    frontier = text_frontier()
    trunk, texts = frontier.trunk, intents("banking77", "test")

    def inputs(start: int, stop: int) -> Hidden:
        return trunk.prepare(trunk.preprocessing(texts.read(start, stop).inputs))

    store = store_of("minilm-banking77-test", minilm("banking77"), texts, trunk.preprocessing)
    return _served("MiniLM", frontier, StageView(StoreSource(store, pooling="auto"), TEXT_ENDS), inputs)


def t2t_vit() -> Measured:
    """T2T-ViT-14 at 224 px, untrained, on CIFAR-10's images made large; which samples leave is imposed.

    The exits answer at random, and their temperatures are set so that the wanted share is sure enough to leave: the
    same code runs as with trained ones.
    """
    torch.manual_seed(0)
    full = T2TViT(14, num_classes=100).eval().requires_grad_(False)

    def inputs(start: int, stop: int) -> Hidden:
        return torch.nn.functional.interpolate(all_images()[start:stop], size=(224, 224))

    example = inputs(0, 1)
    trunk = thinned(full, example, exits=4)
    pooling = POOLINGS.get("auto")
    widths = tuple(pooling(trunk.representation(hidden, stage)).shape[1] for stage, hidden in _hiddens(trunk, example))
    bank = LadderExits(widths, tuple(range(trunk.num_exits - 1)), trunk.num_classes, width=64)
    bank.eval().requires_grad_(False)
    torch.nn.init.normal_(bank.head)
    shares = _shares(trunk, example, pooling)
    decision = POLICIES.get("threshold").mul_adds(trunk.num_classes)
    costs = price(count_trunk(trunk, example, pooling), bank, decision=decision).tables[0]
    confidence = [_sharpest(trunk, pooling, bank, inputs(row, row + 32)) for row in (9_000, 9_032)]
    logits = [torch.cat(parts) for parts in zip(*confidence, strict=True)]
    points = []
    for cost in COSTS:
        hazard = _hazard(costs.cumulative_costs() / costs.bare, cost)
        temperatures = torch.tensor([*(_temperature(answers, hazard) for answers in logits), 1.0])
        points.append(
            OperatingPoint("threshold", {"threshold": torch.tensor(0.5)}, tuple(range(trunk.num_exits)), temperatures)
        )
    return Measured("T2T-ViT-14", trunk, pooling, bank, points, shares, inputs)


def _hiddens(trunk: Trunk, example: Hidden) -> list[tuple[int, Hidden]]:
    found = []
    with torch.inference_mode():
        for index, stage in enumerate(trunk.stages):
            example = stage(example)
            found.append((index, example))
    return found


@torch.inference_mode()
def _sharpest(trunk: Trunk, pooling: Pooling, bank: ExitBank, images: Hidden) -> list[Tensor]:
    """Logits of the early exits on some images."""
    state, found = bank.initial_state(len(images)), []
    for index, hidden in _hiddens(trunk, images)[:-1]:
        answers, state = bank.step(index, pooling(trunk.representation(hidden, index)), state, None)
        found.append(answers)
    return found


def _hazard(costs: Tensor, wanted: float) -> float:
    """The share to leave at every early exit, of those who come there, for a mean cost."""

    def mean(hazard: float) -> float:
        reach = (1 - hazard) ** torch.arange(len(costs) + 1.0)
        leaving = torch.tensor([float(first - second) for first, second in pairwise(reach[:-1])] + [float(reach[-2])])
        return float((leaving * costs).sum())

    low, high = 0.0, 1.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if mean(middle) > wanted else (low, middle)
    return (low + high) / 2


def _temperature(logits: Tensor, share: float) -> float:
    """The temperature at which a share of the samples is surer than a half."""
    low, high = 1e-4, 1e4
    for _ in range(60):
        middle = (low * high) ** 0.5
        surer = float((torch.softmax(logits / middle, 1).amax(1) >= 0.5).double().mean())
        low, high = (middle, high) if surer > share else (low, middle)
    return float((low * high) ** 0.5)


FRONTIERS: dict[str, Callable[[], Frontier]] = {"ResNet-56": resnet_frontier, "chain": chain_frontier}
"""Those whose answers are compared with the simulator's."""

NETWORKS: dict[str, Callable[[], Measured]] = {
    "ResNet-56": resnet56,
    "chain": resnet_chain,
    "T2T-ViT-14": t2t_vit,
    "MiniLM": minilm_texts,
}
"""What is measured."""
