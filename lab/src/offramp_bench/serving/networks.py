"""The models that are served, the full networks beside them, and requests that nothing was fitted on."""

import pickle
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from offramp.backbone import Cascade
from offramp.cost import count_backbone
from offramp.features import ArraySource
from offramp.model._backend_times import make_full_network
from offramp.model._model import EarlyExitModel
from offramp.runtime.onnx._backend import OnnxBackend, open_graphs
from offramp_bench.cifar import cifar10, split_test
from offramp_bench.runtime.networks import cascade_frontier, text_frontier
from offramp_bench.texts import intents, split_unseen, train_rows

__all__ = ["NETWORKS", "SIDES", "ServedModel", "build", "keep_graphs", "read_all"]

SIDES = ("exits", "full")
"""The model with exits, and its full network as one graph."""


@dataclass(frozen=True)
class ServedModel:
    """A model to serve."""

    frontier: Callable[[], EarlyExitModel]
    validation: Callable[[], ArraySource]
    """Samples that points are chosen on."""
    test: Callable[[], ArraySource]
    """Samples that nothing was fitted or chosen on: the requests."""
    max_drop: float
    """Guaranteed drop that fixes the operating point, without test rows."""


def read_all(source: ArraySource) -> tuple[Any, np.ndarray]:
    """Return all inputs and labels of a source."""
    read = source.read(0, len(source))
    return read.inputs, np.asarray(read.labels)


def _images(*parts: int) -> ArraySource:
    """Return images of CIFAR-10's test set: parts 0 and 1 choose points, 2 is held out."""
    whole = cifar10("test").read(0, 10_000)
    split = split_test(whole.ids)
    rows = np.sort(np.concatenate([split[part] for part in parts]))
    return ArraySource(whole.inputs[rows], whole.labels[rows], name="cifar10/test", ids=whole.ids[rows])


def _texts() -> ArraySource:
    """Return texts of Banking77's train set that neither encoder nor exits were fitted on."""
    unseen = train_rows("banking77", seen=False)
    whole = unseen.read(0, len(unseen))
    rows = np.sort(np.concatenate(split_unseen(whole.ids)[1:]))
    return ArraySource(whole.inputs[rows], whole.labels[rows], name=unseen.name, ids=whole.ids[rows])


_requests = partial(intents, "banking77", "test")
NETWORKS = {
    "cascade": ServedModel(cascade_frontier, partial(_images, 0, 1), partial(_images, 2), 0.01),
    "banking77": ServedModel(text_frontier, _texts, _requests, 0.02),
    "banking77-strict": ServedModel(text_frontier, _texts, _requests, 0.01),
}
"""ResNet-20 before ResNet-56 on CIFAR-10, and MiniLM on Banking77; the last also with half the drop."""


def build(network: str, side: str, graphs: Path | None = None) -> EarlyExitModel:
    """Make one side of a comparison, on ONNX Runtime.

    Args:
        network: One of NETWORKS.
        side: One of SIDES.
        graphs: File that `keep_graphs` wrote; without it, graphs are made.
    """
    served = NETWORKS[network]
    model = served.frontier().at(max_drop=served.max_drop, policy="threshold")
    example = served.test().read(0, 2).inputs
    if side == "full":
        model = _full(model, example)
    if graphs is None:
        return model.on("onnx", example=example)
    hidden = model.backbone.prepare(model.preprocessing(example))
    files = pickle.loads(graphs.read_bytes())
    return model.on(open_graphs(files, model.backbone, model.pooling, model.exits_in_force, hidden))


def keep_graphs(model: EarlyExitModel, file: Path) -> Path:
    """Write the graphs of a model for a server process."""
    assert isinstance(model.backend, OnnxBackend)
    file.write_bytes(pickle.dumps(model.backend.read_files()))
    return file


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
