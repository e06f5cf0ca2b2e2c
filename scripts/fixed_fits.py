"""Small fits with fixed seeds, every number of them written to files; `scripts/compare` runs this on two versions.

    python scripts/fixed_fits.py FOLDER

Networks and data are this file's own or other libraries', so that both versions are given the same.
"""

import sys
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from sklearn.datasets import load_digits
from torch import Tensor, nn

import offramp

SIZES = (900, 600, 297)
"""Samples of train, validation and test."""

COSTS = (0.3, 0.6, 1.0)
"""Relative costs to choose points at."""

QUICK: dict[str, Any] = {"epochs": 3, "warmup_epochs": 2, "cost_weights": (0.03, 0.3, 3.0)}
"""Settings that make a preset quick."""


class Blocks(nn.Module):
    """A convolutional network for images `N x 1 x 8 x 8` that takes its classes from the last of its blocks."""

    def __init__(self, channels: int, depth: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, channels, 3, padding=1)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Conv2d(channels, channels, 3, padding=1), nn.BatchNorm2d(channels), nn.ReLU())
            for _ in range(depth)
        )
        self.head = nn.Linear(channels, 10)

    def forward(self, images: Tensor) -> Tensor:
        """Return scores `N x 10`."""
        hidden = self.first(images)
        for block in self.blocks:
            hidden = hidden + block(hidden)
        scores: Tensor = self.head(hidden.mean((2, 3)))
        return scores


def digits() -> list[tuple[Any, Any]]:
    """Train, validation and test: scikit-learn's digits as `N x 1 x 8 x 8` numbers from -1 to 1."""
    found = load_digits()
    images, labels = torch.tensor(found.images / 8 - 1, dtype=torch.float32)[:, None], torch.tensor(found.target)
    parts = np.split(np.random.default_rng(0).permutation(len(labels)), np.cumsum(SIZES)[:-1])
    return [(images[part], labels[part]) for part in parts]


def texts() -> list[tuple[Any, Any]]:
    """Train, validation and test: token ids of 7 to 20 tokens whose class is the commoner of three marks."""
    draw = np.random.default_rng(1)
    parts: list[tuple[Any, Any]] = []
    for size in SIZES:
        labels = draw.integers(0, 3, size)
        lengths = draw.integers(7, 21, size)
        ids, mask = np.zeros((size, 20), np.int64), np.zeros((size, 20), np.int64)
        for row, (label, length) in enumerate(zip(labels, lengths, strict=True)):
            ids[row, :length] = draw.integers(6, 60, length)
            ids[row, 0] = 2
            marked = draw.choice(np.arange(1, length), 4, replace=False)
            ids[row, marked] = 3 + np.where(draw.random(4) < 0.7, label, draw.integers(0, 3, 4))
            mask[row, :length] = 1
        parts.append(({"input_ids": torch.tensor(ids), "attention_mask": torch.tensor(mask)}, torch.tensor(labels)))
    return parts


def train(network: nn.Module, data: tuple[Any, Any], *, epochs: int, scores: Callable[[Any], Tensor]) -> nn.Module:
    """Train a network on batches of 60, in an order fixed by torch's seed."""
    inputs, labels = data
    optimizer = torch.optim.AdamW(network.parameters(), lr=2e-3)
    network.train()
    for _ in range(epochs):
        for rows in torch.randperm(len(labels)).split(60):
            batch = {name: one[rows] for name, one in inputs.items()} if isinstance(inputs, dict) else inputs[rows]
            loss = nn.functional.cross_entropy(scores(batch), labels[rows])
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    return network.eval()


def image_network(channels: int, depth: int, epochs: int) -> Any:
    """A trained network, cut into stages."""
    network = Blocks(channels, depth)
    images = digits()[0]
    return offramp.split(train(network, images, epochs=epochs, scores=network), images[0][:2], name=f"blocks-{depth}")


def text_network() -> Any:
    """A small trained BERT, cut into stages."""
    sys.path.insert(0, str(Path(__file__).parents[1]))
    import_module("conftest")  # declares what transformers needs of torchvision
    from transformers import BertConfig, BertForSequenceClassification

    from offramp.backbone.adapters.transformers import text_backbone

    sizes = {"vocab_size": 60, "hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 4}
    network: Any = BertForSequenceClassification(BertConfig(**sizes, intermediate_size=64, num_labels=3))
    train(network, texts()[0], epochs=12, scores=lambda batch: network(**batch).logits)
    return text_backbone(network)


def numbers(frontier: Any, test: tuple[Any, Any]) -> dict[str, Tensor]:
    """Every number of a fit: its points, and what some of them answer to the test samples."""
    found = {"full accuracy": torch.tensor(frontier.full_accuracy), "temperatures": frontier.temperatures}
    found |= {f"exits/{name}": tensor for name, tensor in frontier.exits.state_dict().items()}
    for policy, points in frontier.points.items():
        for place, point in enumerate(points):
            found |= {f"{policy}/{place}/{name}": torch.tensor(value) for name, value in point.tune_metrics.items()}
            found |= {f"{policy}/{place}/parameters/{name}": tensor for name, tensor in point.parameters.items()}
            found |= {
                f"{policy}/{place}/conformal/{share}": tensor for share, tensor in point.conformal_thresholds.items()
            }
            found[f"{policy}/{place}/active"] = torch.tensor(point.active)
            found[f"{policy}/{place}/temperatures"] = point.temperatures
        for cost in COSTS:
            if points[0].tune_metrics["cost"] <= cost:
                found |= answers(frontier.at(cost=cost, policy=policy), test, f"{policy} at {cost}")
    return found | answers(frontier.at(), test, "default")


def answers(network: Any, test: tuple[Any, Any], name: str) -> dict[str, Tensor]:
    """Return the answers of a network to the test samples."""
    answer = network.predict(test[0])
    fields = ("labels", "probabilities", "exits", "relative_cost")
    found = {f"{name}/{field}": getattr(answer, field) for field in fields}
    return found | {f"{name}/sets/{share}": tensor for share, tensor in answer.prediction_sets.items()}


def fits() -> dict[str, Callable[[], tuple[Any, list[tuple[Any, Any]], Any]]]:
    """Return the fits by name: each a network, its data and its settings."""
    default = {name: value for name, value in QUICK.items() if name != "cost_weights"}
    return {
        "image ladder": lambda: (image_network(24, 6, 6), digits(), replace(offramp.DEFAULT, **default)),
        "text": lambda: (text_network(), texts(), replace(offramp.DEFAULT, **default)),
        "cascade": lambda: (
            offramp.cascade(image_network(8, 2, 4), image_network(24, 6, 6)),
            digits(),
            replace(offramp.DEFAULT, **default),
        ),
        "paper": lambda: (image_network(24, 6, 6), digits(), replace(offramp.PAPER, **QUICK)),
    }


def main() -> None:
    """Fit everything and write one file per fit."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    for name, make in fits().items():
        torch.manual_seed(0)
        network, (train_part, validation, test), settings = make()
        torch.manual_seed(0)
        frontier = offramp.fit(network, train_part, validation, settings=settings, progress=False)
        found = {key: tensor.detach().clone().contiguous() for key, tensor in numbers(frontier, test).items()}
        save_file(found, folder / f"{name}.safetensors")
        print(f"{name}: {len(found)} tensors", file=sys.stderr)


if __name__ == "__main__":
    main()
