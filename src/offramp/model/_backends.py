"""Points tuned on the numbers that another backend computes."""

from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from offramp.backbone._hidden import Hidden
from offramp.cost._unit import MILLISECONDS
from offramp.data import as_source
from offramp.data._labelled import LabelledData
from offramp.errors import InputError
from offramp.features import Source, StoreSource, extract, split_by_id
from offramp.features._ids import Ids, IdSketch
from offramp.features._source import read_ids
from offramp.features._splits import find_overlap
from offramp.methods import FittedExits
from offramp.model._choose import Request
from offramp.model._extraction import feature_folder
from offramp.model._guessing import check_full_network
from offramp.model._options import CalibrationOptions
from offramp.model._tuning import tune_points
from offramp.policy._policy import OFFERED_POLICIES
from offramp.runtime import BACKENDS
from offramp.runtime._view import BackendView
from offramp.uncertainty._conformal import ConformalVariant

if TYPE_CHECKING:
    from offramp.model._model import EarlyExitModel

__all__ = ["backend_name", "refuse_tuned", "with_backend"]

MOST_EXAMPLES = 256
"""Validation samples that a backend is made with: "int8" takes the ranges of activations from them."""


def with_backend(
    model: "EarlyExitModel",
    backend: str,
    validation: LabelledData,
    *,
    conformal: ConformalVariant,
    store: str | Path | None,
    anyway: bool,
    progress: bool,
) -> "EarlyExitModel":
    """Tune a model for a backend; `EarlyExitModel.with_backend` describes the arguments."""
    make = BACKENDS.get(backend)
    refuse_tuned(model, hint="tune the model as it was before with_backend")
    policies = [policy for policy in model.points if policy in OFFERED_POLICIES]
    if not policies:
        raise InputError(
            expected=f"a model with points of {' or '.join(OFFERED_POLICIES)}",
            got=f"points of {', '.join(model.points)}",
            hint="gates have to be trained: fit with policies=['threshold']",
        )
    if model.unit.name == MILLISECONDS:
        raise InputError(
            expected="a model whose costs are Mul-Adds",
            got="times, which were measured on another backend",
            hint="give the model as it was before with_latency, then measure this backend",
        )
    source = as_source(validation, "validation", model.classes)
    # One set of classifiers: that of all points of these policies.
    exits = model.exits.take(model.points[policies[0]][0].classifier)
    ids = read_ids(source, progress=progress)
    tune_rows, calibrate_rows = _halve(ids, model)
    examples = tune_rows[:MOST_EXAMPLES]
    model.backbone.eval()
    runner = make(model.backbone, model.pooling, exits, _prepare(model, source, examples))
    # The ranges of int8 depend on the examples: features of other ones must not be taken for these.
    view = BackendView(model.backbone, runner, backend, made_from=sha256(ids[examples].tobytes()).hexdigest())
    pooling = model.pooling.name
    with feature_folder(store) as folder:
        features = extract(
            view,
            source,
            folder / f"{source.name}-{backend}",
            poolings=(pooling,),
            views=(model.preprocessing,),
            progress=progress,
        )
        every = StoreSource(features, pooling=pooling)
        check_full_network(every, split="validation", classes=model.classes, anyway=anyway)
        tune, calibrate = (StoreSource(features, pooling=pooling, rows=rows) for rows in (tune_rows, calibrate_rows))
        tuned = tune_points(
            FittedExits(exits),
            policies,
            model.costs,
            tune,
            calibrate,
            calibration=_calibration(model, conformal),
            seed=0,
        )
        splits = {"tune": tune, "calibrate": calibrate}
        sketches = {name: IdSketch.of(keys.ids for keys in part.keys()) for name, part in splits.items()}
    sizes = {name: {"samples": part.num_samples} for name, part in splits.items()}
    earlier = {name: part for name, part in model.splits.items() if name in ("fit", "tune")}
    if "tune" in earlier:
        sketches["tune"] = sketches["tune"].union(earlier["tune"])
    provenance = {name: entry for name, entry in model.provenance.items() if name != "recalibrated"}
    members = [part for part in model.contributions if not part.name.isdigit()]
    return replace(
        model,
        exits=exits,
        points=tuned.points,
        temperatures=tuned.temperatures,
        full_accuracy=tuned.full_accuracy,
        contributions=(*members, *tuned.contributions),
        splits={**earlier, **sketches},
        provenance={**provenance, "backend": backend, "splits": {**model.provenance.get("splits", {}), **sizes}},
        backend=runner,
        compaction=None,
        tuned_on=view,
        request=Request(),
        chosen=None,
    )


def backend_name(model: "EarlyExitModel") -> str:
    """Return the name of the backend that a model's points are for."""
    return "eager" if model.tuned_on is None else model.tuned_on.kind


def refuse_tuned(model: "EarlyExitModel", *, hint: str) -> None:
    """Refuse a model that `with_backend` returned.

    Args:
        model: The model.
        hint: The model to use instead.
    """
    if model.tuned_on is not None:
        raise InputError(
            expected="a model whose points were tuned in the network's own precision",
            got=f"one tuned on the backend '{model.tuned_on.kind}'",
            hint=hint,
        )


def _halve(ids: Ids, model: "EarlyExitModel") -> tuple[Ids, Ids]:
    """Return the rows to tune and to calibrate with, ascending, none of which the exits were fitted on.

    Rows that the model was tuned on, or may have been, are tuned on again: they must not calibrate.
    """
    fitted_on = {name: sketch for name, sketch in model.splits.items() if name == "fit"}
    unseen = np.arange(len(ids))
    if fitted_on:
        unseen = np.delete(unseen, find_overlap(ids, fitted_on, name="validation"))
    if len(unseen) < 2:
        raise InputError("validation is halved into tune and calibrate", expected="2 samples or more", got=len(unseen))
    earlier = model.splits.get("tune")
    tuned = np.zeros(len(unseen), np.bool_)
    if earlier is not None:
        tuned = earlier.contains(ids[unseen]) | ~earlier.can_tell(ids[unseen])
    again, rest = unseen[tuned], unseen[~tuned]
    more = max(0, len(unseen) // 2 - len(again))
    if len(rest) <= more:
        raise InputError(
            "validation",
            expected="samples that the model was not tuned on, to calibrate with",
            got=f"{len(rest):,} of {len(unseen):,}",
            hint="give the validation samples of the fit, or new ones",
        )
    if not more:
        return again, rest
    tune, calibrate = split_by_id(ids[rest], [more, len(rest) - more], seed=0)
    return np.union1d(again, rest[tune]), np.sort(rest[calibrate])


def _prepare(model: "EarlyExitModel", source: Source, rows: Ids) -> Hidden:
    """Return some rows as the backbone takes them."""
    parts = [model.backbone.prepare(model.preprocessing(source.read(row, row + 1).inputs)) for row in rows.tolist()]
    return model.backbone.concatenate(parts, 0)


def _calibration(model: "EarlyExitModel", conformal: ConformalVariant) -> CalibrationOptions:
    """Return options for prediction sets of the levels that the model has."""
    points = [point for points in model.points.values() for point in points]
    levels = sorted(set[float]().union(*(point.conformal_thresholds for point in points)))
    by_class = any(limits.ndim == 2 for point in points for limits in point.conformal_thresholds.values())
    return CalibrationOptions(conformal, sets_by_class=by_class, miscoverages=levels)
