"""Exits of earlyon 0.3.0 on our ResNets, trained by its own trainer on cached means of the maps."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import offramp_bench.torchvision_ops  # noqa: F401 (before earlyon imports torchvision)

# isort: split
import torch
from earlyon.models import custom_ee
from earlyon.training import stage2_train_exits
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from offramp_bench import places
from offramp_bench.bars import say
from offramp_bench.cifar import AUGMENTED, PREPROCESSING, cifar10, images_cascade, resnet, store_of

__all__ = [
    "SETS",
    "Cached",
    "Exits",
    "InSequence",
    "Loader",
    "cached_model",
    "load_or_train",
    "outcomes",
    "wrap_network",
]

CACHE = places.CACHE / "earlyon"
CLASSES = 10
CELLS = 16
"""Cells of the cached grids, all of one size, so that the mean of their means is the mean of the map."""
SMALL = 9
"""Stages of ResNet-20, the first member of the cascade; the other 27 stages are ResNet-56."""
EPOCHS = 20
BATCH = 128


@dataclass(frozen=True)
class Exits:
    """Places and settings of earlyon's exits."""

    stages: tuple[int, ...]
    """Stages of the cascade with an exit; ResNet-20 runs only if one of its stages is among them."""
    hidden_dim: int = 128
    loss_weights: tuple[float, ...] | None = None
    """Weights of each exit and of the network's own head in the loss; equal if left out."""


SETS = {
    "thirds": Exits((17, 26, 35), 64, (0.15, 0.2, 0.25, 0.4)),
    "late": Exits((26, 29, 32)),
    "every third block": Exits(tuple(range(11, 33, 3))),
    "cascade": Exits((8,)),
    "cascade, late": Exits((8, 29, 32)),
}


class InSequence(nn.Module):
    """A network without its head, then the one that answers; earlyon's hooks can stop both."""

    def __init__(self, first: nn.Sequential, second: nn.Sequential) -> None:
        super().__init__()
        self.first, self.second = first, second

    def forward(self, images: Tensor) -> Tensor:
        unread = self.first(images)
        # Add 0 times its output: earlyon estimates compute from a trace, which leaves out unused values.
        logits: Tensor = self.second(images) + 0 * unread.mean()
        return logits


class Cached(nn.Module):
    """A substitute for a network with cached features: its layers return the cached means of the maps.

    Args:
        widths: Channels of the map at each exit. An input row holds all means, then the network's logits.
    """

    def __init__(self, widths: Sequence[int]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Identity() for _ in widths)
        self._parts = [*widths, CLASSES]

    def forward(self, rows: Tensor) -> Tensor:
        *means, logits = torch.split(rows, self._parts, dim=1)
        for layer, mean in zip(self.layers, means, strict=True):
            layer(mean)
        return logits


def wrap_network(exits: Exits) -> Any:
    """Return our networks with untrained exits of earlyon."""
    large = resnet(56)
    answering = nn.Sequential(*large.stages, large.heads["26"])
    network: nn.Module = answering
    layers = [str(stage - SMALL) for stage in exits.stages]
    if min(exits.stages) < SMALL:
        network = InSequence(nn.Sequential(*resnet(20).stages), answering)
        layers = [f"first.{stage}" if stage < SMALL else f"second.{stage - SMALL}" for stage in exits.stages]
    return custom_ee(network, layers, CLASSES, input_shape=(1, 3, 32, 32), hidden_dim=exits.hidden_dim).eval()


def cached_model(wrapper: Any, exits: Exits) -> Any:
    """Return a wrapper with the same heads over cached means, and the same estimate of the cost of each exit."""
    points = wrapper.config.exit_points
    widths = [point.in_channels for point in points]
    layers = [f"layers.{index}" for index in range(len(widths))]
    shape = (1, sum(widths) + CLASSES)
    model = custom_ee(Cached(widths), layers, CLASSES, input_shape=shape, hidden_dim=exits.hidden_dim).eval()
    if exits.loss_weights is not None:
        model.config.loss_weights = list(exits.loss_weights)
    model.exit_heads = wrapper.exit_heads
    costs = [wrapper.flops_estimate.fractions[point.layer_name] for point in points]
    model._flops_estimate = replace(wrapper.flops_estimate, fractions=dict(zip(layers, costs, strict=True)))
    return model


@dataclass(frozen=True)
class Loader:
    """Batches of rows for earlyon's functions.

    Args:
        rows: `N x views x D`.
        labels: `N` classes.
        generator: Source of random order and views; in order and the first view if left out.
    """

    rows: Tensor
    labels: Tensor
    generator: torch.Generator | None = None

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        count, views = self.rows.shape[:2]
        order, choices = torch.arange(count), torch.zeros(count, dtype=torch.long)
        if self.generator is not None:
            order = torch.randperm(count, generator=self.generator)
            choices = torch.randint(views, (count,), generator=self.generator)
        for part in torch.split(order, BATCH):
            yield self.rows[part, choices[part]], self.labels[part]


def outcomes(split: str, stages: Sequence[int]) -> tuple[Tensor, Tensor, Any]:
    """Return means after some stages of the cascade with the last logits, `N x views x D`; labels; and ids."""
    views = (PREPROCESSING, AUGMENTED) if split == "train" else (PREPROCESSING,)
    store = store_of(f"resnet20-resnet56-{split}", images_cascade(), cifar10(split), *views)
    rows = []
    for index in range(store.plan.num_shards):
        shard = store.shard(index)
        grids = torch.split(shard["features.auto"], list(store.widths("auto")), dim=-1)
        means = [grids[stage].float().view(*grids[stage].shape[:-1], -1, CELLS).mean(-1) for stage in stages]
        rows.append(torch.cat([*means, shard[f"logits.{store.own_heads[-1]}"].float()], dim=-1))
    return torch.cat(rows), torch.from_numpy(store.labels()), store.ids()


def load_or_train(exits: Exits) -> Any:
    """Return our networks with heads trained by earlyon, on first use, or loaded."""
    torch.manual_seed(0)
    wrapper = wrap_network(exits)
    weights = "equal" if exits.loss_weights is None else "-".join(map(str, exits.loss_weights))
    name = f"after-{'-'.join(map(str, exits.stages))}-hidden-{exits.hidden_dim}-weights-{weights}-epochs-{EPOCHS}"
    file = CACHE / f"{name}.safetensors"
    if not file.exists():
        rows, labels, _ = outcomes("train", exits.stages)
        loader = Loader(rows, labels, torch.Generator().manual_seed(0))
        stage2_train_exits(
            cached_model(wrapper, exits),
            loader,
            epochs=EPOCHS,
            on_epoch_end=lambda log: say(f"earlyon after {exits.stages}: epoch {log.epoch + 1}, loss {log.loss:.4f}"),
        )
        CACHE.mkdir(parents=True, exist_ok=True)
        save_file(wrapper.exit_heads.state_dict(), file)
    wrapper.exit_heads.load_state_dict(load_file(file))
    return wrapper.eval()
