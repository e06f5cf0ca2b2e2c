"""Guarantees and prediction sets from new samples, with labels or without."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from torch.utils import _pytree as pytree

from offramp.errors import InputError
from offramp.features import BatchSource, Source
from offramp.features._ids import IdSketch
from offramp.features._source import Rows
from offramp.features._splits import remove_overlap
from offramp.model._choose import Request
from offramp.model._extraction import extracted
from offramp.model._guarantees import with_losses
from offramp.model._points import with_sets
from offramp.policy import OperatingPoint
from offramp.preprocessing._raw import to_sliceable
from offramp.uncertainty._conformal import ConformalVariant

if TYPE_CHECKING:
    from offramp.model._model import EarlyExitModel

__all__ = ["Unlabelled", "recalibrate", "with_zeros"]


def recalibrate(
    model: "EarlyExitModel",
    data: Any,
    *,
    labelled: bool,
    conformal: ConformalVariant,
    store: str | Path | None,
    progress: bool,
) -> "EarlyExitModel":
    """Calibrate the points of a model again; `EarlyExitModel.recalibrate` describes the arguments."""
    if any(not point.losses for points in model.points.values() for point in points):
        raise InputError(expected="points with losses on the tune split", got="points without", hint="fit again")
    if not labelled and not hasattr(data, "in_order"):
        data = Unlabelled(data) if hasattr(data, "read") else with_zeros(data)
    with extracted(model, data, "calibrate", store=store, progress=progress) as source:
        return _calibrate(model, source, labelled=labelled, conformal=conformal)


def _calibrate(
    model: "EarlyExitModel", source: BatchSource, *, labelled: bool, conformal: ConformalVariant
) -> "EarlyExitModel":
    if not source.num_samples:
        raise InputError(expected="at least one sample to calibrate on", got="none")
    if source.widths != model.exits.widths:
        raise InputError(
            expected=f"features of {model.exits.widths} numbers per stage",
            got=f"{source.widths}",
            hint="give inputs of the size the exits were fitted on, and features of the model's own pooling",
        )
    # Calibrating again on the calibrate split does no harm: no point was made from it.
    used = {name: sketch for name, sketch in model.splits.items() if name in ("fit", "tune")}
    source = remove_overlap(source, used, name="recalibrate")
    calibrated: dict[str, Sequence[OperatingPoint]] = {}
    for policy, points in model.points.items():
        placed, answers = model.outcomes_at(points, source)
        if labelled:
            thresholds = [point.conformal_thresholds for point in placed]
            levels = sorted(set[float]().union(*thresholds))
            by_class = any(limits.ndim == 2 for limits in thresholds[0].values())
            placed = with_sets(placed, answers, conformal, levels, by_class=by_class)
        placed = with_losses(placed, answers, labelled=labelled)
        # The placed points have their classifiers where the outcomes do; the model's have their own.
        calibrated[policy] = [replace(q, classifier=p.classifier) for p, q in zip(points, placed, strict=True)]
    return replace(
        model,
        points=calibrated,
        splits={**model.splits, "recalibrate": IdSketch.of(keys.ids for keys in source.keys())},
        provenance={**model.provenance, "recalibrated": {"samples": source.num_samples, "labelled": labelled}},
        request=Request(),
        chosen=None,
    )


def with_zeros(inputs: Any) -> tuple[Any, Any]:
    """Return raw inputs with labels that are not looked at."""
    arrays = to_sliceable(inputs)
    return arrays, np.zeros(len(pytree.tree_leaves(arrays)[0]), dtype=np.int64)


@dataclass(frozen=True)
class Unlabelled:
    """A source whose labels, which may be of no class, are not looked at."""

    source: Source

    @property
    def name(self) -> str:
        return f"{self.source.name}-unlabelled"  # cached features must not be taken for some with labels

    def __len__(self) -> int:
        return len(self.source)

    def read(self, start: int, stop: int) -> Rows:
        rows = self.source.read(start, stop)
        return replace(rows, labels=np.zeros(len(rows.ids), dtype=np.int64))
