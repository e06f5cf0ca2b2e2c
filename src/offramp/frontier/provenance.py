"""Where a frontier came from, and whether samples have a part in it."""

import hashlib
import json
from collections.abc import Collection
from dataclasses import asdict
from importlib.metadata import version
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from offramp.features import BatchSource, split_by_id
from offramp.frontier.frontier import Frontier
from offramp.methods import JointSettings

__all__ = ["hashed", "provenance", "was_used"]


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
        "splits": {name: {"samples": source.num_samples, "ids": hashed(source)} for name, source in splits.items()},
    }


def was_used(frontier: Frontier, ids: npt.NDArray[np.int64], *, but: Collection[str] = ()) -> bool:
    """Whether samples are those that a frontier was fitted on, tuned or calibrated on: all of a split, in order.

    Args:
        frontier: The frontier.
        ids: `N` sample ids.
        but: Splits that do not count, of "fit", "tune", "calibrate" and "recalibrated".
    """
    splits = dict(frontier.provenance.get("splits", {}))
    splits["recalibrated"] = frontier.provenance.get("recalibrated", {})
    seed = frontier.provenance.get("settings", {}).get("seed", 0)
    half = len(ids) // 2
    halves = split_by_id(ids, [half, len(ids) - half], seed=seed) if half else []
    known = {split.get("ids") for name, split in splits.items() if name not in but}
    return any(hashed(part) in known for part in (ids, *(ids[rows] for rows in halves)))


def hashed(ids: npt.NDArray[np.int64] | BatchSource) -> str:
    """Sample ids as one hash: the same samples in the same order give the same.

    Args:
        ids: The ids, or the samples: their ids are then read some at a time.
    """
    digest = hashlib.sha256()
    for piece in [ids] if isinstance(ids, np.ndarray) else (keys.ids for keys in ids.keys()):
        digest.update(piece.tobytes())
    return digest.hexdigest()
