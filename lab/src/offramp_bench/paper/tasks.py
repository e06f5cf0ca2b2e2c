"""Tasks: a dataset, its frozen network, and the shares of its samples."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

from offramp.backbone._backbone import Backbone
from offramp.features import Source
from offramp.preprocessing import Preprocessing
from offramp_bench.backbones import BACKBONES
from offramp_bench.cifar import cifar10, images_cascade, resnet
from offramp_bench.texts import intents, minilm, train_rows

__all__ = ["COMPARED", "FINAL", "LITE0", "TASKS", "Task", "with_resolution"]

LITE0 = ("cifar100", "cifar100lt", "svhn")
"""Tasks by EfficientNet-Lite0, which also runs at lower resolutions."""


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
    alone: str | None = None
    """Name of the task whose network this one is compared with, on the same samples; None for a task of its own."""
    about: str = ""
    """Dataset and network in words, and what to mind."""
    most_rows: int = 10_000
    """Samples that exits are trained on at most."""


def _text(name: str, title: str, num_classes: int, shares: tuple[float, float, float]) -> Task:
    """Return a task of MiniLM tuned on two thirds of the train rows."""

    return Task(
        name=name,
        kind="text",
        num_classes=num_classes,
        backbone=lambda: minilm(name),
        seen=lambda: train_rows(name, seen=True),
        unseen=lambda: train_rows(name, seen=False),
        test=lambda: intents(name, "test"),
        shares=shares,
        about=f"{title}, {num_classes} intents, by all-MiniLM-L6-v2",
    )


def _trained(
    name: str,
    kind: Literal["image", "text", "graph"],
    num_classes: int,
    backbone: str,
    shares: tuple[float, float, float],
    **more: object,
) -> Task:
    """Return a task of a network of offramp_bench.backbones."""
    network = BACKBONES[backbone]
    task = Task(name, kind, num_classes, network.backbone, network.seen, network.unseen, network.test, shares)
    return replace(task, **more)  # type: ignore[arg-type]


def _resnets(name: str, about: str, backbone: Callable[[], Backbone], alone: str | None = None) -> Task:
    """Return a task of ResNets, which have seen all train images: the test images serve for everything else."""
    return Task(
        name=name,
        kind="image",
        num_classes=10,
        backbone=backbone,
        seen=lambda: cifar10("train"),
        unseen=lambda: cifar10("test"),
        test=None,
        shares=(0, 0.2, 0.2),
        alone=alone,
        about=about,
    )


def with_resolution(task: Task, side: int) -> Task:
    """Return a task of images by its network at a lower resolution."""

    def load() -> Backbone:
        backbone = task.backbone()
        steps = (
            ("resize", {"size": side, "mode": "bilinear"}) if step[0] == "resize" else step
            for step in backbone.preprocessing.steps
        )
        backbone.preprocessing = Preprocessing(tuple(steps))
        return backbone

    about = task.about.replace("64 pixels", f"{side} pixels")
    return replace(task, name=f"{task.name}-{side}px", backbone=load, alone=task.name, about=about)


_TASKS_BY_NAME: dict[str, Task] = {
    task.name: task
    for task in (
        _resnets("cifar10", "CIFAR-10 by ResNet-56", lambda: resnet(56)),
        _resnets(
            "cifar10-cascade",
            "CIFAR-10 by ResNet-20 and, where that is not enough, ResNet-56",
            images_cascade,
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
        _trained(
            "agnews",
            "text",
            4,
            "minilm-agnews",
            (0.5, 0.3, 0.2),
            about="AG News, four topics, by all-MiniLM-L6-v2",
        ),
        _trained(
            "sst2",
            "text",
            2,
            "minilm-sst2",
            (0.5, 0.3, 0.2),
            about="SST-2, two sentiments, by all-MiniLM-L6-v2; test samples are "
            "sentences of 20 words on average, all others phrases of 7 to 10: temperatures, thresholds, coverages and "
            "budgets set there are not right for the test samples",
        ),
        *(
            _resnets(f"cifar10-resnet{layers}", f"CIFAR-10 by ResNet-{layers}", partial(resnet, layers), "cifar10")
            for layers in (20, 32, 44)
        ),
    )
}

TASKS: dict[str, Task] = _TASKS_BY_NAME | {
    task.name: task for name in LITE0 for side in (48, 32) for task in (with_resolution(_TASKS_BY_NAME[name], side),)
}
"""All tasks, those of alternative networks and of the final test among them, by name."""

FINAL = ("agnews", "sst2")
"""Names of the tasks that nothing was chosen on: they are measured once, with the settings that all others led to."""

COMPARED = [name for name, task in TASKS.items() if task.alone is None and name not in FINAL]
"""Names of the nine tasks that methods are compared on."""
