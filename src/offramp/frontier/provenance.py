"""Where a frontier came from, and whether samples have a part in it."""

import hashlib
import json
from dataclasses import asdict
from importlib.metadata import version
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from offramp.features import BatchSource, split_by_id
from offramp.frontier.frontier import Frontier
from offramp.methods import JointSettings

__all__ = ["provenance", "was_used"]


def provenance(settings: JointSettings, **splits: BatchSource) -> dict[str, Any]:
    """How a frontier was obtained, as JSON holds it.

    Args:
        settings: How it was fitted.
        **splits: The samples of each split.
    """
    return {
        "offramp": version("offramp"),
        "torch": torch.__version__,
        "settings": json.loads(json.dumps(asdict(settings))),
        "splits": {
            name: {"samples": source.num_samples, "ids": _hashed(source.ids())} for name, source in splits.items()
        },
    }


def was_used(frontier: Frontier, ids: npt.NDArray[np.int64]) -> bool:
    """Whether samples are those that a frontier was fitted on, or tuned and calibrated on: all of them, in order.

    Args:
        frontier: The frontier.
        ids: `N` sample ids.
    """
    splits = frontier.provenance.get("splits", {})
    seed = frontier.provenance.get("settings", {}).get("seed", 0)
    half = len(ids) // 2
    halves = split_by_id(ids, [half, len(ids) - half], seed=seed) if half else []
    known = {split.get("ids") for split in splits.values()}
    return any(_hashed(part) in known for part in (ids, *(ids[rows] for rows in halves)))


def _hashed(ids: npt.NDArray[np.int64]) -> str:
    return hashlib.sha256(ids.tobytes()).hexdigest()
