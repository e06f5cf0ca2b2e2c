"""What is classified, by which frozen network, and which samples are for what."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Literal

import numpy as np

from offramp.backbone._backbone import Backbone
from offramp.backbone._cascading import cascade
from offramp.cost import count_backbone
from offramp.cost._mul_adds import BackboneMulAdds
from offramp.features import BatchSource, Source, StoreSource, extract, split_by_id
from offramp.features._splits import keep_apart
from offramp.features._store import Store
from offramp.methods._settings import DEFAULT, PAPER, JointSettings, spread_cost_weights
from offramp.pooling import POOLINGS
from offramp.preprocessing import Preprocessing
from offramp_bench import places
from offramp_bench.backbones import BACKBONES
from offramp_bench.cifar import AUGMENTED, cifar10, resnet
from offramp_bench.paper.joined import JoinedSource
from offramp_bench.texts import intents, minilm, train_rows

__all__ = ["CACHE", "COMPARED", "SHORTER", "TASKS", "Look", "Splits", "Task", "prices_of", "splits_of"]

CACHE = places.CACHE / "paper"

Look = Literal["paper", "default", "one view"]
"""Features that exits see: the vector of a stage that the paper's recipe gives; the default's, of every view of a
sample; or the default's of the samples as they are."""

RICH = "rich"
"""The default's pooling."""

FEW = spread_cost_weights(8)
"""Cost weights of the paper's method; offsets of the gates fill the curve between them."""


@dataclass(frozen=True)
class Task:
    """A dataset and a network."""

    name: str
    kind: Literal["image", "text", "graph"]
    num_classes: int
    backbone: Callable[[], Backbone]
    """Frozen."""
    seen: Callable[[], Source]
    """Samples that the network was trained on: exits learn from them."""
    unseen: Callable[[], Source]
    """Samples that the network never saw: to tune, to calibrate, some to learn from."""
    test: Callable[[], Source] | None
    """Samples for the figures; None: those of the unseen ones that are left, the same for every seed."""
    shares: tuple[float, float, float]
    """Of the unseen samples: to learn from, to tune, to calibrate."""
    look: str = "mean"
    """The pooling that is the paper's recipe for this kind of network."""
    augmented: tuple[Preprocessing, ...] = ()
    """Further views of the samples that exits learn from."""
    most: int = 50_000
    """Samples of `seen` at most that exits learn from."""
    paper: JointSettings = field(
        default_factory=lambda: replace(PAPER, weight_decay=0.0, cost_weights=FEW, least_steps=DEFAULT.least_steps)
    )
    """How the paper's method and its rivals are fitted. Its L2 penalty holds late exits on unnormed features down; with
    few samples they take as many steps as the default does."""
    default: JointSettings = field(default_factory=lambda: replace(DEFAULT, cost_weights=FEW))
    """How the default is fitted."""
    alone: str | None = None
    """Of a cascade: the task of its last network alone."""
    about: str = ""
    """Dataset and network in words, and what to mind."""
    most_rows: int = 10_000
    """Samples that exits are trained on at most."""

    def pooling(self, look: Look) -> str:
        """Name of the pooling that exits see a stage through."""
        return self.look if look == "paper" else RICH


@dataclass(frozen=True)
class Splits:
    """Who learns from what."""

    fit: BatchSource
    tune: BatchSource
    calibrate: BatchSource
    test: BatchSource


@cache
def _backbone(name: str) -> Backbone:
    return {**TASKS, **SHORTER}[name].backbone()


@cache
def _store(name: str, part: str) -> Store:
    """Features of a part of a task's samples, by both poolings, extracted on first use."""
    task, backbone = {**TASKS, **SHORTER}[name], _backbone(name)
    # Features of another network, or of this one with other weights, are another store.
    folder = CACHE / "stores" / f"{name}-{part}-{backbone.fingerprint()[:12]}"
    if not (folder / "manifest.json").exists():
        source: Source = getattr(task, part)()
        views = (backbone.preprocessing, *(task.augmented if part == "seen" else ()))
        extract(backbone, source, folder, poolings=tuple(dict.fromkeys((task.look, RICH))), views=views)
    return Store.open(folder)


def splits_of(task: Task, look: Look, seed: int) -> Splits:
    """The samples of one seed, as exits see them; the test samples are the same for all.

    Args:
        task: The task.
        look: What exits see.
        seed: Other samples tune and calibrate.
    """
    pooling = task.pooling(look)
    seen, unseen = _store(task.name, "seen"), _store(task.name, "unseen")
    rows, sizes = np.arange(unseen.num_rows), [int(share * unseen.num_rows) for share in task.shares]
    if task.test is None:
        rows, left = split_by_id(unseen.ids(), (sum(sizes), unseen.num_rows - sum(sizes)))
        test = StoreSource(unseen, pooling=pooling, rows=left)
    else:
        test = StoreSource(_store(task.name, "test"), pooling=pooling)
    parts = split_by_id(unseen.ids()[rows], [size for size in sizes if size], seed=1 + seed)
    *more, tune, calibrate = (StoreSource(unseen, pooling=pooling, rows=rows[part]) for part in parts)
    step = -(-seen.num_rows // task.most)
    views: Literal["first", "all"] = "first" if look == "one view" else "all"
    learned = StoreSource(seen, pooling=pooling, rows=np.arange(0, seen.num_rows, step), views=views)
    fit: BatchSource = JoinedSource([learned, *more]) if more else learned
    keep_apart(fit=fit, tune=tune, calibrate=calibrate, test=test)
    return Splits(fit, tune, calibrate, test)


@cache
def prices_of(name: str, look: Look) -> BackboneMulAdds:
    """What a task's network costs, counted.

    Args:
        name: Of the task.
        look: What exits see.
    """
    task, backbone = TASKS[name], _backbone(name)
    example = backbone.prepare(backbone.preprocessing(task.unseen().read(0, 1).inputs))
    return count_backbone(backbone, example, POOLINGS.get(task.pooling(look)))


# Settled for both before the width followed the number of classes: 256 is what it gives for CLINC150.
_TEXT = replace(DEFAULT, cost_weights=FEW, ladder_width=256, dropout=0.3, batch_size=256)


def _text(name: str, title: str, num_classes: int, shares: tuple[float, float, float]) -> Task:
    """MiniLM tuned on two thirds of the train rows."""

    return Task(
        name=name,
        kind="text",
        num_classes=num_classes,
        backbone=lambda: minilm(name),
        seen=lambda: train_rows(name, seen=True),
        unseen=lambda: train_rows(name, seen=False),
        test=lambda: intents(name, "test"),
        shares=shares,
        default=_TEXT,
        about=f"{title}, {num_classes} intents, by all-MiniLM-L6-v2",
    )


def _trained(
    name: str,
    kind: Literal["image", "graph"],
    num_classes: int,
    backbone: str,
    shares: tuple[float, float, float],
    **more: object,
) -> Task:
    """A network of offramp_bench.backbones."""
    made = BACKBONES[backbone]
    task = Task(name, kind, num_classes, made.backbone, made.seen, made.unseen, made.test, shares)
    return replace(task, **more)  # type: ignore[arg-type]


def _resnets(name: str, about: str, backbone: Callable[[], Backbone], alone: str | None = None) -> Task:
    """ResNets that have seen all train images: the test images serve for everything else."""
    return Task(
        name=name,
        kind="image",
        num_classes=10,
        backbone=backbone,
        seen=lambda: cifar10("train"),
        unseen=lambda: cifar10("test"),
        test=None,
        shares=(0, 0.2, 0.2),
        augmented=(AUGMENTED,),
        alone=alone,
        about=about,
    )


TASKS: dict[str, Task] = {
    task.name: task
    for task in (
        _resnets("cifar10", "CIFAR-10 by ResNet-56", lambda: resnet(56)),
        _resnets(
            "cifar10-cascade",
            "CIFAR-10 by ResNet-20 and, where that is not enough, ResNet-56",
            lambda: cascade(resnet(20), resnet(56)),
            alone="cifar10",
        ),
        _trained(
            "cifar100",
            "image",
            100,
            "lite0-cifar100",
            (0.5, 0.25, 0.25),
            most_rows=5_000,
            about="CIFAR-100 by EfficientNet-Lite0 at 64 pixels",
        ),
        _trained(
            "cifar100lt",
            "image",
            100,
            "lite0-cifar100lt",
            (0, 0.5, 0.5),
            most_rows=5_000,
            about="CIFAR-100-LT, some classes 100 times rarer than others, by EfficientNet-Lite0 at 64 pixels; test "
            "samples are balanced, those that tune and calibrate long-tailed as the train samples: temperatures, "
            "thresholds, coverages and budgets set there are not right for the test samples",
        ),
        _trained("svhn", "image", 10, "lite0-svhn", (0, 0.5, 0.5), about="SVHN by EfficientNet-Lite0 at 64 pixels"),
        _trained(
            "cifar10-t2t", "image", 10, "t2t-cifar10", (0, 0.5, 0.5), look="first", about="CIFAR-10 by a small T2T-ViT"
        ),
        _text("clinc150", "CLINC150", 150, (0.5, 0.3, 0.2)),
        _text("banking77", "Banking77", 77, (0.5, 0.3, 0.2)),
        _trained(
            "superpixels",
            "graph",
            10,
            "gnn-superpixels",
            (0, 0.5, 0.5),
            about="MNIST as graphs of superpixels, by a message-passing network",
        ),
        _trained("nci1", "graph", 2, "gnn-nci1", (0, 0.5, 0.5), about="NCI1, molecules, by a message-passing network"),
    )
}
"""Everything that is compared."""

COMPARED = [name for name, task in TASKS.items() if task.alone is None]
"""Names of the tasks that methods are compared on: all but cascades."""

SHORTER: dict[str, Task] = {
    "cifar10-20k": replace(TASKS["cifar10"], name="cifar10-20k", seen=lambda: cifar10("train", rows=20_000))
}
"""Tasks whose exits learn from fewer samples: for promises, which hold of any exits, with less time to wait."""
