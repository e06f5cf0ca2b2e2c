"""Save random architectures of the backbone catalogue, and load and run them in a new process.

    python -m offramp_bench.catalogue [--check] [--architectures 50] [--classes 2 11 77 1000]

Weights and exits are random. The benchmark checks that nothing of a network, its exits and its points is lost or
changed, names of classes under integer keys included. `offramp_bench.artifact` runs it too.

Results go to stdout as JSON, progress to stderr.
"""

import argparse
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

import offramp
import offramp_bench.torchvision_ops  # noqa: F401 (before timm, torchvision and transformers are imported)
from offramp.backbone import CifarResNet
from offramp.backbone._backbone import Backbone
from offramp.backbone._cascading import cascade
from offramp.backbone._merging import merge
from offramp.cost import Costs
from offramp.cost._table import CostTable
from offramp.exits import ExitSet, LadderExits, LinearExits
from offramp.policy import OperatingPoint
from offramp.pooling import POOLINGS
from offramp.preprocessing import Preprocessing
from offramp_bench.architectures import REFUSED, TEXT
from offramp_bench.backbones.t2t_vit import T2TViT
from offramp_bench.bars import Bar, parser, report, say

__all__ = ["CLASSES", "Architecture", "architectures", "frontier_of", "named_text", "round_trips"]

ARCHITECTURES = 50
CLASSES = (2, 11, 77, 1000)
SAMPLES = 4

TIMM = ("test_byobnet", "test_convnext", "test_efficientnet", "test_resnet", "test_vit", "test_vit2", "test_vit3")
"""Models of timm for tests: whole architectures with few channels."""

TORCHVISION = ("mnasnet0_5", "mobilenet_v3_small", "shufflenet_v2_x0_5", "squeezenet1_1")
"""Small models of torchvision."""


@dataclass(frozen=True)
class Architecture:
    """An architecture for any number of classes."""

    name: str
    make: Callable[[int], Backbone]
    """Function from the number of classes to the backbone."""
    inputs: Any
    """Some inputs of the backbone."""


def architectures(count: int, *, seed: int = 0) -> list[Architecture]:
    """Draw architectures.

    Args:
        count: Number of architectures.
        seed: Seed of the draw; the first architectures do not depend on the count.
    """
    families = (_text, _text, _timm, _torchvision, _own, _composed)
    return [families[index % len(families)](random.Random(f"{seed} {index}")) for index in range(count)]


def _images(side: int) -> Tensor:
    return torch.randn(SAMPLES, 3, side, side, generator=torch.Generator().manual_seed(0))


def named_text() -> Architecture:
    """Return a small BERT with names of classes under integer keys, in another order than the classes."""
    sizes = {"vocab_size": 100, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    return Architecture("bert", partial(_text_backbone, "bert", sizes, False, True), _token_ids())


def _token_ids() -> dict[str, Tensor]:
    ids = torch.randint(3, 100, (SAMPLES, 9), generator=torch.Generator().manual_seed(0))
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def _text(draw: random.Random) -> Architecture:
    kind = draw.choice(sorted(set(TEXT) - set(REFUSED)))
    sizes = {
        "vocab_size": draw.randrange(100, 300),
        "hidden_size": 64,
        "num_hidden_layers": draw.randrange(2, 5),
        "num_attention_heads": 4,
        "intermediate_size": draw.choice((64, 128, 192)),
        "max_position_embeddings": 64,
    }
    mean, named = draw.random() < 0.3, draw.random() < 0.7
    name = f"{kind}{' on the mean' if mean else ''}{' with names of classes' if named else ''} {sizes}"
    return Architecture(name, partial(_text_backbone, kind, {**sizes, **TEXT[kind]}, mean, named), _token_ids())


def _text_backbone(kind: str, sizes: dict[str, Any], mean: bool, named: bool, classes: int) -> Backbone:
    from transformers import AutoConfig, AutoModel, AutoModelForSequenceClassification

    from offramp.backbone.adapters.transformers import MeanClassifier, text_backbone

    config: Any = AutoConfig.for_model(kind, **sizes, num_labels=classes)
    if named:
        config.id2label = {number: f"intent {classes - number}" for number in range(classes)}
        config.label2id = {name: number for number, name in config.id2label.items()}
    makers: tuple[Any, Any] = AutoModel, AutoModelForSequenceClassification  # untyped
    if not mean:
        return text_backbone(makers[1].from_config(config).eval())
    encoder = makers[0].from_config(config).eval()
    return text_backbone(MeanClassifier(encoder, nn.Linear(getattr(config, "hidden_size", 64), classes)))


def _timm(draw: random.Random) -> Architecture:
    name = draw.choice(TIMM)

    def make(classes: int) -> Backbone:
        import timm

        from offramp.backbone.adapters.timm import timm_backbone

        return timm_backbone(timm.create_model(name, pretrained=False, num_classes=classes).eval())

    return Architecture(name, make, _images(160))


def _torchvision(draw: random.Random) -> Architecture:
    name, side = draw.choice(TORCHVISION), draw.choice((96, 128, 224))

    def make(classes: int) -> Backbone:
        from torchvision import models

        from offramp.backbone.adapters.torchvision import torchvision_backbone

        return torchvision_backbone(
            models.get_model(name, weights=None, num_classes=classes).eval(), side=side, name=name
        )

    return Architecture(f"{name} at {side}", make, _images(side))


def _own(draw: random.Random) -> Architecture:
    if draw.random() < 0.5:
        layers = 6 * draw.randrange(1, 8) + 2
        return Architecture(
            f"cifar-resnet-{layers}", lambda classes: CifarResNet(layers, num_classes=classes), _images(32)
        )
    side, width = draw.choice((32, 48, 64)), draw.choice((64, 128))

    def make(classes: int) -> Backbone:
        return T2TViT(7, num_classes=classes, image_side=side, width=width)

    return Architecture(f"t2t-vit-7 at {side}, width {width}", make, _images(side))


def _composed(draw: random.Random) -> Architecture:
    """Return a cascade of two networks, or a network with merged stages."""
    small, large = (6 * draw.randrange(*sizes) + 2 for sizes in ((1, 3), (3, 6)))
    if draw.random() < 0.5:
        return Architecture(
            f"cifar-resnet-{small}, then {large}",
            lambda classes: cascade(CifarResNet(small, num_classes=classes), CifarResNet(large, num_classes=classes)),
            _images(32),
        )
    stages = (large - 2) // 2
    ends = (*sorted(draw.sample(range(stages - 1), 3)), stages - 1)
    return Architecture(
        f"cifar-resnet-{large}, stages {ends}",
        lambda classes: merge(CifarResNet(large, num_classes=classes), ends),
        _images(32),
    )


def frontier_of(backbone: Backbone, inputs: Any, draw: random.Random) -> offramp.EarlyExitModel:
    """Return a model with random exits and points on a network.

    Args:
        backbone: The network.
        inputs: Some inputs of the backbone.
        draw: Source of random choices.
    """
    pooling = POOLINGS.get(draw.choice(("auto", "mean", "rich")))
    hidden, widths = backbone.prepare(inputs), []
    with torch.inference_mode():
        for stage, run in enumerate(backbone.stages):
            hidden = run(hidden)
            widths.append(pooling(backbone.representation(hidden, stage)).shape[1])
    length, classes = backbone.num_exits, backbone.num_classes
    stages = tuple(stage for stage in range(length) if stage not in backbone.own_heads)
    exits: ExitSet = LinearExits(tuple(widths), stages, classes)
    if draw.random() < 0.5:
        exits = LadderExits(tuple(widths), stages, classes, width=8)
    columns = {name: torch.rand(length).double() + 0.1 for name in ("stage", "carry", "answer", "decide")}
    table = CostTable(**columns, full=columns["stage"].sum(), carries_state=exits.carries_state)
    points = [
        OperatingPoint(
            "threshold",
            {"threshold": torch.tensor(threshold)},
            tuple(range(length)),
            0.5 + torch.rand(length),
            tune_metrics={"cost": cost, "accuracy": draw.random()},
        )
        for cost, threshold in ((0.2, 0.0), (0.6, 1.2 / classes), (1.1, 2.0))
    ]
    return offramp.EarlyExitModel(
        backbone=backbone,
        preprocessing=Preprocessing(),
        pooling=pooling,
        exits=exits.eval(),
        costs={"threshold": Costs((table,))},
        points={"threshold": points},
        temperatures=0.5 + torch.rand(1, length),
        full_accuracy=draw.random(),
        classes=tuple(f"class {number}" for number in range(classes)) if draw.random() < 0.5 else (),
    )


def _answers(frontier: offramp.EarlyExitModel, inputs: Any) -> dict[str, Tensor]:
    tensors: dict[str, Tensor] = {}
    for index, point in enumerate(frontier.points["threshold"]):
        answer = replace(frontier, chosen=point).predict(inputs)
        tensors |= {f"{index} probabilities": answer.probabilities, f"{index} exits": answer.exits}
        tensors |= {f"{index} labels": answer.labels, f"{index} cost": answer.relative_cost}
    return {name: tensor.contiguous() for name, tensor in tensors.items()}


def round_trips(places: Sequence[int], classes: Sequence[int], folder: Path) -> list[dict[str, Any]]:
    """Save frontiers of architectures, load them in one new process, and compare the answers bit by bit.

    Args:
        places: Indices of the architectures in `architectures(...)`.
        classes: Numbers of classes of each architecture.
        folder: The folder for all files.

    Returns:
        For each frontier its architecture, its number of classes, and an error or "other answers" if it changed.
    """
    rows: list[dict[str, Any]] = []
    candidates = architectures(max(places) + 1)
    for index in places:
        architecture = candidates[index]
        for count in classes:
            place = folder / f"{index}-{count}"
            torch.manual_seed(1000 * index + count)
            frontier = frontier_of(architecture.make(count), architecture.inputs, random.Random(f"{index} {count}"))
            frontier.save(place / "saved", weights=True)
            save_file(_answers(frontier, architecture.inputs), place / "answers.safetensors")
            rows.append({"architecture": architecture.name, "classes": count, "place": place.name})
        say(f"saved {architecture.name}")
    command = [sys.executable, "-m", "offramp_bench.catalogue", "--answer", str(folder)]
    process = subprocess.run(command, check=False, stdout=subprocess.PIPE, text=True)
    wrong = dict(line.split("\t", 1) for line in process.stdout.splitlines() if "\t" in line)
    for row in rows:
        row["wrong"] = wrong.get(row.pop("place"), "was not loaded")
    return rows


def check_answers(folder: Path) -> None:
    """Load all frontiers in this process, and print what is wrong with each, if anything."""
    candidates: list[Architecture] = []
    for place in sorted(folder.iterdir()):
        index = int(place.name.partition("-")[0])
        candidates = candidates if index < len(candidates) else architectures(index + 1)
        try:
            expected = load_file(place / "answers.safetensors")
            answers = _answers(offramp.load(place / "saved"), candidates[index].inputs)
            same = expected.keys() == answers.keys() and all(
                torch.equal(answers[name], expected[name]) for name in answers
            )
            wrong = "" if same else "other answers"
        except Exception as error:
            wrong = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
        print(f"{place.name}\t{wrong}", flush=True)
        if wrong:
            say(f"{place.name}: {wrong}")


def main() -> int:
    options = parser(__doc__)
    options.add_argument("--architectures", type=int, default=ARCHITECTURES, help="how many")
    options.add_argument("--classes", type=int, nargs="*", default=CLASSES, help="numbers of classes")
    options.add_argument("--answer", help=argparse.SUPPRESS)
    arguments = options.parse_args()
    torch.set_num_threads(1)  # the same order of sums in both processes
    if arguments.answer:
        check_answers(Path(arguments.answer))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        rows = round_trips(range(arguments.architectures), arguments.classes, Path(folder))
    bars = [Bar("frontiers that did not come back the same", sum(bool(row["wrong"]) for row in rows), 0)]
    return report({"frontiers": len(rows), "rows": rows}, bars, check=arguments.check)


if __name__ == "__main__":
    sys.exit(main())
