"""Real outcomes of samples that nothing was fitted or tuned on, to draw calibration sets and streams from."""

import json
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors.torch import load_file, save_file
from torch import Tensor

from offramp.artifact._format import VERSION
from offramp.backbone._backbone import Backbone
from offramp.cost import Costs
from offramp.features import BatchSource
from offramp.features._ids import stable_hash
from offramp.methods._settings import DEFAULT
from offramp.model import fit_features
from offramp.model._loading import load
from offramp.model._model import EarlyExitModel
from offramp.model._outcomes import Outcomes, compute_outcomes
from offramp.policy import OperatingPoint
from offramp.pooling._rich import DEFAULT_POOLING
from offramp_bench import places
from offramp_bench.bars import say
from offramp_bench.paper.joined import JoinedSource
from offramp_bench.paper.tasks import TASKS, Task
from offramp_bench.tracks.samples import Splits, open_splits

__all__ = ["CACHE", "POOLS", "Pool", "identity", "load_pool"]

CACHE = places.CACHE / "guarantees"

POOLS = ("cifar10", "clinc150")
"""Tasks of `offramp_bench.paper.tasks`: ResNet-56 on images, MiniLM on texts."""


@dataclass(frozen=True)
class Pool:
    """The default fitted to a task, and the answers of its exits."""

    name: str
    frontier: EarlyExitModel
    """The fitted model; its calibrate split is part of the pool."""
    tune: Outcomes
    """Outcomes on the tune split, probabilities included."""
    pool: Outcomes
    """Outcomes on the calibrate and test splits, probabilities included."""
    ids: npt.NDArray[np.int64]
    """Ids of the pool's samples."""
    exits: str
    """A hash of the exits' weights and temperatures."""

    @property
    def points(self) -> list[OperatingPoint]:
        """The threshold's operating points, in ascending order of cost on tune."""
        return list(self.frontier.points["threshold"])

    @property
    def costs(self) -> Costs:
        """Costs of the threshold."""
        return self.frontier.costs["threshold"]


@cache
def load_pool(name: str) -> Pool:
    """Return a task's pool; its exits are fitted on first use, which takes some minutes, and kept.

    Args:
        name: A task of `offramp_bench.paper`.
    """
    task = TASKS[name]
    splits, backbone = open_splits(task, "grid", seed=0), task.backbone()
    held_out = JoinedSource([splits.calibrate, splits.test])
    key = f"{name}-{identity(task, backbone)}"
    frontier = _frontier(task, backbone, splits, CACHE / key)
    # Exits that are fitted again give other answers.
    exits = json.loads((CACHE / key / "manifest.json").read_text())["files"]["exits"]["sha256"][:12]
    tune, outcomes = (
        _outcomes(f"{key}-{part}-{exits}", frontier, source)
        for part, source in (("tune", splits.tune), ("pool", held_out))
    )
    return Pool(name, frontier, tune, outcomes, held_out.ids(), exits)


def identity(task: Task, backbone: Backbone) -> str:
    """Return a hash of all that a fit depends on; fits of other identities have other folders.

    Args:
        task: The task.
        backbone: Its network.
    """
    about = (VERSION, DEFAULT, DEFAULT_POOLING, task.shares, task.most_rows, backbone.fingerprint())
    return f"{stable_hash(str(about)):x}"


def _frontier(task: Task, backbone: Backbone, splits: Splits, folder: Path) -> EarlyExitModel:
    if not (folder / "manifest.json").exists():
        say(f"fitting exits of {task.name}")
        example: Any = backbone.prepare(backbone.preprocessing(task.unseen().read(0, 1).inputs))
        parts = (splits.fit, splits.tune, splits.calibrate)
        model = fit_features(backbone, *parts, example=example)
        model.save(folder)
    return load(folder, backbone=backbone)


def _outcomes(name: str, frontier: EarlyExitModel, source: BatchSource) -> Outcomes:
    """Return outcomes that are kept under `lab/.cache`, and computed on first use."""
    file = CACHE / f"{name}-outcomes.safetensors"
    columns = [field.name for field in fields(Outcomes) if field.name != "num_classes"]
    kept: dict[str, Tensor] = load_file(file) if file.exists() else {}
    if set(kept) != set(columns):  # no file yet, or one from when outcomes had other fields
        say(f"asking the exits of {name}")
        outcomes = compute_outcomes(frontier.exits, source, frontier.temperatures, probabilities=True)
        kept = {column: getattr(outcomes, column).contiguous() for column in columns}
        save_file(kept, file)
    return Outcomes(frontier.backbone.num_classes, **kept)
