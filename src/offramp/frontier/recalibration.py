"""Promises from new samples, with labels or without."""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from torch.utils import _pytree as pytree

from offramp.errors import InputError
from offramp.features import BatchSource, Rows, Source, StoreSource, extract
from offramp.frontier.fit import as_source
from offramp.frontier.frontier import Frontier
from offramp.frontier.guarantee import with_losses
from offramp.frontier.provenance import hashed, was_used
from offramp.policy import OperatingPoint
from offramp.trunk.raw import listed

__all__ = ["recalibrated"]


def recalibrated(frontier: Frontier, data: Any, *, labelled: bool = False, progress: bool = True) -> Frontier:
    """The same points, their promises made from other samples: those that the network meets at work.

    The full network runs over the samples once, and agreement with it is what can be promised; no labels are needed.
    Points, temperatures and prediction sets stay as they are, and so does the order in which points are tested.

    Args:
        frontier: A frontier whose points know their losses on the tune split.
        data: Samples that nothing was fitted on: raw inputs as `predict` takes them, a source of them, or their cached
            features.
        labelled: Whether the labels of a source are true: promises of accuracy and Brier score are then possible too.
        progress: Whether to show a progress bar.

    Returns:
        A frontier to `choose(max_drop=..., loss="disagreement")` of.

    Raises:
        InputError: If the exits were fitted or tuned on these very samples. They are known again by their ids, where a
            source or cached features has all of a split in its order; bare inputs have none, and nobody can tell.

    Example:
        >>> import torch
        >>> from offramp.frontier import fit
        >>> from offramp.methods import JointSettings
        >>> from offramp.trunk import CifarResNet
        >>> images, labels = torch.randn(60, 3, 32, 32), torch.arange(60) % 10
        >>> quick = JointSettings(exits="ladder", classifier_loss="fixed", warmup_epochs=1, epochs=1)
        >>> data = (images[:30], labels[:30]), (images[30:], labels[30:])
        >>> frontier = fit(CifarResNet(8), *data, settings=quick, progress=False)
        >>> traffic = recalibrated(frontier, torch.randn(100, 3, 32, 32), progress=False)
        >>> len(traffic.points["threshold"][0].losses["disagreement"].samples)
        100
    """
    if any(not point.losses for points in frontier.points.values() for point in points):
        raise InputError(
            "expected points that know what they lost on their tune split, got some from an artifact of an older "
            "version; fit again"
        )
    if hasattr(data, "in_order"):
        features: BatchSource = data
        return _with(frontier, features, labelled)
    if hasattr(data, "read"):
        source: Source = data if labelled else _Unlabelled(data)
    elif labelled:
        raise InputError(
            f"expected a source with labels, or cached features, got {type(data).__name__}; leave labelled out, or "
            "give offramp.features.ArraySource(inputs, labels, name=...)"
        )
    else:
        inputs = listed(data)
        count = len(pytree.tree_leaves(inputs)[0])
        source = as_source((inputs, np.zeros(count, dtype=np.int64)), "calibrate")
    with tempfile.TemporaryDirectory() as folder:
        pooling = frontier.pooling.name
        views = (frontier.preprocessing,)
        store = extract(frontier.trunk, source, Path(folder), poolings=(pooling,), views=views, progress=progress)
        return _with(frontier, StoreSource(store, pooling=pooling), labelled)


def _with(frontier: Frontier, source: BatchSource, labelled: bool) -> Frontier:
    if not source.num_samples:
        raise InputError("expected at least one sample to calibrate on, got none")
    # Calibrating again on what was calibrated on is no harm: no point was made from it.
    if was_used(frontier, source.ids(), but=("calibrate", "recalibrated")):
        raise InputError(
            "expected samples that nothing was fitted on, got those the exits were fitted or tuned on: points look "
            "better there than they are; calibrate on others"
        )
    points: dict[str, Sequence[OperatingPoint]] = {}
    for policy, listed_points in frontier.points.items():
        asked, seen = frontier.outcomes_at(listed_points, source)
        found = with_losses(asked, seen, labelled=labelled)
        points[policy] = [replace(p, losses=q.losses) for p, q in zip(listed_points, found, strict=True)]
    about = {"samples": source.num_samples, "ids": hashed(source.ids()), "labelled": labelled}
    return replace(frontier, points=points, provenance={**frontier.provenance, "recalibrated": about})


@dataclass(frozen=True)
class _Unlabelled:
    """A source whose labels, which may be of no class, are not looked at."""

    source: Source

    @property
    def name(self) -> str:
        return self.source.name

    def __len__(self) -> int:
        return len(self.source)

    def read(self, start: int, stop: int) -> Rows:
        rows = self.source.read(start, stop)
        return replace(rows, labels=np.zeros(len(rows.ids), dtype=np.int64))
