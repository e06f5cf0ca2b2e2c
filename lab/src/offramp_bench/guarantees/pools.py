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

__all__ = ["CACHE", "POOLS", "Pool", "identity", "pool"]

CACHE = places.CACHE / "guarantees"

POOLS = ("cifar10", "clinc150")
"""Tasks of `offramp_bench.paper`: ResNet-56 on images, MiniLM on texts."""


@dataclass(frozen=True)
class Pool:
    """The default's fit to a task, and what its exits say of samples."""

    name: str
    frontier: EarlyExitModel
    """As `offramp.model.fit_features` gives it; its calibrate split is part of the pool."""
    tune: Outcomes
    """Of the samples that points were chosen on; probabilities included."""
    pool: Outcomes
    """Of those that calibrate and those for figures: disjoint from fit and tune, probabilities included."""
    ids: npt.NDArray[np.int64]
    """Of the pool's samples."""
    exits: str
    """Which exits these are: a hash of their weights and temperatures."""

    @property
    def points(self) -> list[OperatingPoint]:
        """The threshold's operating points, in ascending order of cost on tune."""
        return list(self.frontier.points["threshold"])

    @property
    def costs(self) -> Costs:
        """What the threshold costs."""
        return self.frontier.costs["threshold"]


@cache
def pool(name: str) -> Pool:
    """A task's pool; its exits are fitted on first use, some minutes, and kept.

    Args:
        name: A task of `offramp_bench.paper`.
    """
    task = TASKS[name]
    splits, backbone = open_splits(task, "grid", seed=0), task.backbone()
    held_out = JoinedSource([splits.calibrate, splits.test])
    key = f"{name}-{identity(task, backbone)}"
    frontier = _frontier(task, backbone, splits, CACHE / key)
    # Exits that were fitted again answer otherwise.
    exits = json.loads((CACHE / key / "manifest.json").read_text())["files"]["exits"]["sha256"][:12]
    tune, seen = (
        _outcomes(f"{key}-{part}-{exits}", frontier, source)
        for part, source in (("tune", splits.tune), ("pool", held_out))
    )
    return Pool(name, frontier, tune, seen, held_out.ids(), exits)


def identity(task: Task, backbone: Backbone) -> str:
    """All that a fit depends on: one of another identity is another folder.

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
    """Outcomes under `lab/.cache`, computed on first use."""
    file = CACHE / f"{name}-outcomes.safetensors"
    tensors = [field.name for field in fields(Outcomes) if field.name != "num_classes"]
    kept: dict[str, Tensor] = load_file(file) if file.exists() else {}
    if set(kept) != set(tensors):  # none yet, or those of a time when outcomes held something else
        say(f"asking the exits of {name}")
        seen = compute_outcomes(frontier.exits, source, frontier.temperatures, probabilities=True)
        kept = {one: getattr(seen, one).contiguous() for one in tensors}
        save_file(kept, file)
    return Outcomes(frontier.backbone.num_classes, **kept)
