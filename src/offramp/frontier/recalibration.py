"""Promises and prediction sets from new samples, with labels or without."""

import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from torch.utils import _pytree as pytree

from offramp.backbone.raw import listed
from offramp.errors import InputError
from offramp.features import BatchSource, IdSketch, Rows, Source, StoreSource, extract
from offramp.features.splits import without_overlap
from offramp.frontier.fit import as_source
from offramp.frontier.frontier import Frontier
from offramp.frontier.guarantee import with_losses
from offramp.frontier.sets import with_sets
from offramp.policy import OperatingPoint
from offramp.uncertainty import ConformalVariant

__all__ = ["recalibrated"]


def recalibrated(
    frontier: Frontier,
    data: Any,
    *,
    labelled: bool = False,
    conformal: ConformalVariant = "pooled",
    store: str | Path | None = None,
    progress: bool = True,
) -> Frontier:
    """The same points, calibrated on other samples: those that the network meets at work.

    The full network runs over the samples once, and agreement with it is what can be promised; no labels are needed.
    With labels accuracy can be promised too, and prediction sets are calibrated anew; without, they stay as they are.
    Points, temperatures and the order in which points are tested stay in any case.

    Args:
        frontier: A frontier whose points know their losses on the tune split.
        data: Samples that nothing was fitted on: raw inputs as `predict` takes them, a source of them, or their cached
            features; with `labelled`, labelled samples as `fit` takes them, or their cached features.
        labelled: Whether the labels of a source are true: promises of accuracy and Brier score are then possible too,
            and prediction sets are of these samples: of the levels they had, within each class if they were.
        conformal: With labels, how prediction sets are calibrated; docs/conformal.md.
        store: A directory for the samples' features; a run that was interrupted goes on from there. Without one they
            are thrown away at the end.
        progress: Whether to show a progress bar.

    Returns:
        A frontier to `choose(max_drop=..., loss="disagreement")` of, and to save.

    Raises:
        SplitError: If the exits were fitted or tuned on more than 1 % of these samples; up to that they are left out
            with an `OverlapWarning`. Samples are known again by the content of their rows, after loading too.

    Example:
        >>> import torch
        >>> from offramp.frontier import fit
        >>> from offramp.methods import JointSettings
        >>> from offramp.backbone import CifarResNet
        >>> images, labels = torch.randn(60, 3, 32, 32), torch.arange(60) % 10
        >>> quick = JointSettings(exits="ladder", classifier_loss="fixed", warmup_epochs=1, epochs=1)
        >>> data = (images[:30], labels[:30]), (images[30:], labels[30:])
        >>> frontier = fit(CifarResNet(8), *data, settings=quick, anyway=True, progress=False)
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
        return _with(frontier, features, labelled, conformal)
    if labelled:
        source = as_source(data, "calibrate", frontier.classes)
    elif hasattr(data, "read"):
        source = _Unlabelled(data)
    else:
        inputs = listed(data)
        count = len(pytree.tree_leaves(inputs)[0])
        source = as_source((inputs, np.zeros(count, dtype=np.int64)), "calibrate")
    with ExitStack() as stack:
        folder = Path(store) if store is not None else Path(stack.enter_context(tempfile.TemporaryDirectory()))
        pooling, views = frontier.pooling.name, (frontier.preprocessing,)
        kept = extract(
            frontier.backbone, source, folder / source.name, poolings=(pooling,), views=views, progress=progress
        )
        return _with(frontier, StoreSource(kept, pooling=pooling), labelled, conformal)


def _with(frontier: Frontier, source: BatchSource, labelled: bool, conformal: ConformalVariant) -> Frontier:
    if not source.num_samples:
        raise InputError("expected at least one sample to calibrate on, got none")
    if source.widths != frontier.bank.widths:
        raise InputError(
            f"expected features of {frontier.bank.widths} numbers a stage, got {source.widths}; give inputs of the "
            "size the exits were fitted on, and features of the frontier's own pooling"
        )
    # Calibrating again on what was calibrated on is no harm: no point was made from it.
    chosen_on = {name: sketch for name, sketch in frontier.splits.items() if name in ("fit", "tune")}
    source = without_overlap(source, chosen_on, name="recalibrate")
    points: dict[str, Sequence[OperatingPoint]] = {}
    for policy, listed_points in frontier.points.items():
        asked, seen = frontier.outcomes_at(listed_points, source)
        if labelled:
            known = [one.conformal_thresholds for one in asked]
            levels = sorted(set[float]().union(*known))
            by_class = any(limits.ndim == 2 for limits in known[0].values())
            asked = with_sets(asked, seen, conformal, levels, by_class=by_class)
        found = with_losses(asked, seen, labelled=labelled)
        # Not the points that were asked: those have their classifiers where the outcomes do.
        points[policy] = [replace(q, classifier=p.classifier) for p, q in zip(listed_points, found, strict=True)]
    about = {"samples": source.num_samples, "labelled": labelled}
    splits = {**frontier.splits, "recalibrate": IdSketch.of(keys.ids for keys in source.keys())}
    return replace(frontier, points=points, splits=splits, provenance={**frontier.provenance, "recalibrated": about})


@dataclass(frozen=True)
class _Unlabelled:
    """A source whose labels, which may be of no class, are not looked at."""

    source: Source

    @property
    def name(self) -> str:
        return f"{self.source.name}-unlabelled"  # features that are kept must not be taken for some with labels

    def __len__(self) -> int:
        return len(self.source)

    def read(self, start: int, stop: int) -> Rows:
        rows = self.source.read(start, stop)
        return replace(rows, labels=np.zeros(len(rows.ids), dtype=np.int64))
