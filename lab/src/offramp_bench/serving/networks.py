"""The models that are served, the full networks beside them, and requests that nothing was fitted on."""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from offramp.backbone import Cascade
from offramp.cost import count_backbone
from offramp.model._backend_times import make_full_network
from offramp.model._model import EarlyExitModel
from offramp_bench.cifar import cifar10
from offramp_bench.runtime.networks import cascade_frontier, held_out_rows, text_frontier
from offramp_bench.texts import intents

__all__ = ["NETWORKS", "SIDES", "Served", "build"]

SIDES = ("exits", "full")
"""The model with exits, and its full network as one graph."""

MAX_DROP = 0.01
"""Guarantee that fixes the operating point, without test rows."""


@dataclass(frozen=True)
class Served:
    """A model to serve."""

    frontier: Callable[[], EarlyExitModel]
    rows: Callable[[], list[object]]
    """Inputs of requests, as JSON holds them."""


def _images() -> list[object]:
    rows = held_out_rows()
    test = cifar10("test")
    return [test.read(row, row + 1).inputs[0].tolist() for row in rows[:1000].tolist()]


def _texts() -> list[object]:
    return list(intents("banking77", "test").read(0, 3080).inputs)


NETWORKS = {
    "cascade": Served(cascade_frontier, _images),
    "banking77": Served(text_frontier, _texts),
}
"""ResNet-20 before ResNet-56 on CIFAR-10, and MiniLM on Banking77."""


def build(network: str, side: str, backend: str) -> EarlyExitModel:
    """Make one side of a comparison.

    Args:
        network: One of NETWORKS.
        side: One of SIDES.
        backend: "eager" or "onnx".
    """
    model = NETWORKS[network].frontier().at(max_drop=MAX_DROP, policy="threshold")
    examples = [json.loads(json.dumps(row)) for row in NETWORKS[network].rows()[:2]]
    example = examples if isinstance(examples[0], str) else torch.tensor(examples, dtype=torch.uint8).numpy()
    if side == "full":
        model = _full(model, example)
    return model.on(backend, example=example)


def _full(model: EarlyExitModel, example: object) -> EarlyExitModel:
    """Return the full network without exits, of a cascade its last member, in as few stages as possible."""
    last = model.backbone.members[-1] if isinstance(model.backbone, Cascade) else model.backbone
    network, exits, point = make_full_network(last)
    point = replace(point, tune_metrics={"cost": 1.0, "accuracy": model.full_accuracy})
    hidden = network.prepare(model.preprocessing(example))
    costs = count_backbone(network, hidden, model.pooling).price(exits, point.rule)
    return replace(
        model,
        backbone=network,
        exits=exits,
        points={"threshold": [point]},
        costs={"threshold": costs},
        temperatures=torch.ones(1, network.num_exits),
        chosen=point,
    )
