"""Small networks with exits, fitted and exported once for all tests."""

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils import _pytree as pytree

import offramp
from offramp.backbone._backbone import Backbone
from offramp.backbone._hidden import Hidden
from offramp.cost import Costs
from offramp.exits import ExitSet
from offramp.model._model import EarlyExitModel
from offramp.policy import OperatingPoint
from offramp.pooling import Pooling
from offramp.runtime._engine import Engine
from offramp.runtime.onnx._export import add_points
from offramp.runtime.onnx._network import write_network
from tests.model import text_examples
from tests.model.cascade_examples import FEW, pair, vectors
from tests.model.examples import LINEAR, PREPROCESSING, SMALL, backbone, images

COUNT = 40
_PLACE = tempfile.TemporaryDirectory(prefix="offramp-onnx-tests-")


@dataclass(frozen=True)
class Example:
    frontier: EarlyExitModel
    raw: Any
    inputs: Hidden
    points: tuple[OperatingPoint, ...]
    folder: Path

    @property
    def arrays(self) -> Any:
        """The inputs as a runtime without torch takes them."""
        return pytree.tree_map(lambda leaf: leaf.numpy(), self.inputs)


@cache
def example(kind: str) -> Example:
    """ "ladder", "linear" (two sets of classifiers), "cascade" or "text"."""
    if kind == "cascade":
        frontier = offramp.fit(pair(), vectors(300, seed=1), vectors(200, seed=2), settings=FEW, progress=False)
        raw: Any = vectors(COUNT, seed=3)[0]
    elif kind == "text":
        raw = list(text_examples.sentences(COUNT, seed=3)[0])
        frontier = text_examples.fitted()
    else:
        settings = SMALL if kind == "ladder" else LINEAR
        data = images(200, seed=1), images(120, seed=2)
        frontier = offramp.fit(backbone(), *data, preprocessing=PREPROCESSING, settings=settings, progress=False)
        raw = images(COUNT, seed=3)[0]
    inputs = frontier.backbone.prepare(frontier.preprocessing(raw))
    points = tuple(
        listed[index] for listed in frontier.points.values() for index in (len(listed) // 3, 2 * len(listed) // 3)
    )
    folder = Path(_PLACE.name) / kind
    write_folder(folder, frontier.backbone, frontier.pooling, frontier.exits, inputs, points, frontier.costs)
    return Example(frontier, raw, inputs, points, folder)


def write_folder(
    folder: Path,
    backbone: Backbone,
    pooling: Pooling,
    exits: ExitSet,
    inputs: Hidden,
    points: Sequence[OperatingPoint],
    costs: Mapping[str, Costs],
    *,
    int8: bool = False,
) -> None:
    """Write graphs for points of any policies; their inputs are prepared arrays."""
    folder.mkdir()
    write_network(backbone, pooling, exits, inputs, folder, int8=int8)
    add_points(folder, points, costs)


KINDS = (
    "ladder",
    pytest.param("linear", marks=pytest.mark.long),
    *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("cascade", "text")),
)


def engine(given: Example, *points: OperatingPoint, backend: Any = None) -> Engine:
    frontier = given.frontier
    return Engine(frontier.backbone, frontier.pooling, frontier.exits, points or given.points, backend=backend)


def mixed() -> torch.Tensor:
    """A point for each sample, all of them in turn."""
    return torch.arange(COUNT) % 4
