"""From a frozen network and labelled data to an early-exit model."""

import inspect
import json
import sys
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, dataclass, is_dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch

from offramp._progress import progress_bar
from offramp._registry import check_own_name, run_third_party
from offramp.backbone import Cascade
from offramp.backbone._backbone import Backbone
from offramp.backbone._hidden import Hidden
from offramp.cost import count_backbone, keep_exits
from offramp.cost._money import costs_money, price_members
from offramp.cost._table import Prices
from offramp.cost._unit import MILLISECONDS, MUL_ADDS, CostUnit
from offramp.data import as_source
from offramp.data._labelled import LabelledData
from offramp.errors import InputError, SplitError
from offramp.exits._none import NoExits
from offramp.features import BatchSource, Source, StoreSource, extract, split_by_id
from offramp.features._batch import StageView
from offramp.features._ids import IdSketch, stable_hash
from offramp.features._splits import find_overlap, keep_apart
from offramp.features._store import Store
from offramp.methods import METHODS, FittedExits, Method
from offramp.methods._initialization import fit_averaging
from offramp.methods._joint import EpochRecord
from offramp.methods._method import default_settings
from offramp.methods._settings import JointSettings
from offramp.model._extraction import feature_folder
from offramp.model._frontier import Contribution, area
from offramp.model._guessing import check_full_network
from offramp.model._model import EarlyExitModel
from offramp.model._networks import (
    Network,
    as_backbone,
    check_device,
    check_names,
    check_stages,
    preprocessing_of_part,
)
from offramp.model._options import CalibrationOptions, CostOptions, FittingOptions
from offramp.model._times import check_measured, latency_of_part, latency_provenance
from offramp.model._tuning import tune_points
from offramp.policy import POLICIES
from offramp.policy._checking import check_policy
from offramp.policy._policy import DEFAULT_POLICIES, OFFERED_POLICIES
from offramp.pooling import POOLINGS
from offramp.preprocessing import Preprocessing
from offramp.runtime._latency import LatencyPrices

__all__ = ["Splits", "fit", "fit_features", "prune_members"]

Splits: TypeAlias = tuple[BatchSource | None, BatchSource, BatchSource]
"""Cached features of fit (None if no exit is trained), tune and calibrate."""


def fit(
    network: Network,
    train: LabelledData,
    validation: LabelledData,
    *,
    preprocessing: Preprocessing | None = None,
    classes: Sequence[str] = (),
    method: str | Method = "default",
    settings: Any = None,
    policies: Sequence[str] | None = None,
    trust: Collection[str] = (),
    fitting: FittingOptions = FittingOptions(),
    calibration: CalibrationOptions = CalibrationOptions(),
    cost: CostOptions = CostOptions(),
    device: str | torch.device | None = None,
    store: str | Path | None = None,
    anyway: bool = False,
    progress: bool = True,
) -> EarlyExitModel:
    """Attach exits to a frozen network and learn the whole trade-off between cost and accuracy.

    The network runs once over the data; everything after that works on cached features. The validation samples are
    halved by id: one half tunes (temperatures, choice of points), the other calibrates prediction sets and guarantees.
    They should be samples the network was not trained on. Samples are recognised by the content of their rows: up to
    1 % of the validation samples may be among the training samples, and are left out with an `OverlapWarning`.

    Args:
        network: The classifier: a torch module, "hf:FOLDER", a `transformers` pipeline, a backbone from
            `offramp.split`, or a list of these, cheap to strong, for a cascade; plain functions may be among them.
        train: Samples for the exits: (inputs, labels), labels being numbers or class names; a map-style torch dataset
            of such pairs or a loader of one; a `datasets.Dataset`; a path of a CSV file or a folder of images; or a
            source. Not used where every member of a cascade answers by itself.
        validation: Samples the network has never seen, in any of these forms.
        preprocessing: Conversion of raw inputs into what the network takes; the backbone's own if left out.
        classes: Class names in the order of the network's outputs, if the network does not know them.
        method: Training of the exits: "default", "paper", another registered name, `package.module:function` of a
            function that `trust` lists, or such a function itself (`offramp.methods.Method`).
        settings: The method's settings; its own default if left out.
        policies: Policies to offer points of, registered names or `package.module:name`; if left out, a threshold,
            optimal stopping and the gates that the method trains, if any.
        trust: Names `package.module:name` of third-party code that may be imported, among them a pooling's.
        fitting: Pooling, number of exits and augmented views.
        calibration: Prediction sets.
        cost: Unit of cost: Mul-Adds, or measured times.
        device: Device to move the network to; where it is if left out. The exits are trained on the CPU.
        store: Folder for the cached features, so that an interrupted run continues; a temporary one if left out.
        anyway: Continue with a warning where the full network is no better than guessing on validation.
        progress: Show progress bars.

    Returns:
        The model.

    Raises:
        GuessingError: If the full network is no better than the most frequent class, at 95 %, one-sided: its class
            names are in another order, inputs are prepared otherwise, or its weights were not loaded.
        SplitError: If more than 1 % of the validation samples are among the training samples.
    """
    # Prepare: everything that can be refused is refused before the long work.
    for options, kind in ((fitting, FittingOptions), (calibration, CalibrationOptions), (cost, CostOptions)):
        if not isinstance(options, kind):
            raise InputError(expected=f"offramp.{kind.__name__}(...)", got=options)
    function, settings = _method_and_settings(method, settings, trust)
    check_own_name(POOLINGS.get(fitting.pooling, trust=trust), fitting.pooling)
    backbone = as_backbone(network, lambda: _example(train, classes, preprocessing), classes)
    if backbone is not network and progress:
        print(f"split '{backbone.name}' into {backbone.num_exits} stages", file=sys.stderr)
    check_stages(backbone)
    _check_policies(policies, trust, backbone)
    names = classes or backbone.classes
    classes = check_names(names, backbone) if names else ()
    preprocessing = backbone.preprocessing if preprocessing is None else preprocessing
    sources = as_source(train, "train", classes), as_source(validation, "validation", classes)
    _check_different(*sources)
    inputs = sources[0].read(0, 1).inputs
    if fitting.max_exits is not None:
        backbone = keep_exits(backbone, backbone.prepare(preprocessing(inputs)), exits=fitting.max_exits)
    if cost.latency is not None:
        check_measured(cost.latency, backbone, fitting.max_exits)
    if device is not None:
        check_device(device)
        backbone.to(device)
    with feature_folder(store) as folder:
        # Extract: the one pass of the network over the data.
        splits = _extract_splits(
            backbone,
            sources,
            folder,
            views=(preprocessing, *fitting.augmented),
            pooling=fitting.pooling,
            seed=getattr(settings, "seed", 0),
            classes=classes,
            anyway=anyway,
            progress=progress,
        )
        # Fit the exits, tune the points, calibrate.
        job = _Job(
            backbone=backbone,
            preprocessing=preprocessing,
            inputs=inputs,
            data=tuple(source.name for source in sources),
            folder=folder,
            method=function,
            settings=settings,
            policies=policies,
            pooling=fitting.pooling,
            calibration=calibration,
            cost=cost,
            progress=progress,
        )
        model = job.fit_part(backbone, splits)
        # Drop the members of a cascade that do not pay.
        model = prune_members(model, splits, job.fit_part)
    return replace(model, classes=classes)


def prune_members(
    model: EarlyExitModel,
    splits: Splits,
    fit_part: Callable[[Backbone, Splits], EarlyExitModel],
) -> EarlyExitModel:
    """Drop members of a cascade, one at a time, while the tune curve does not get worse.

    No network runs again: a shorter cascade reads the same cached features.

    Args:
        model: The model of the whole cascade, or of any other backbone, which is returned as it is.
        splits: Its cached features.
        fit_part: Function that fits a shorter cascade on such features.

    Returns:
        The model whose curve on the tune split is best, with the gain of each member.
    """
    dropped: list[Contribution] = []
    gains: list[Contribution] = []
    while isinstance(model.backbone, Cascade):
        best, best_splits, worst = model, splits, None
        gains = []
        for index, member in enumerate(model.backbone.members[:-1]):
            shorter = model.backbone.without_member(index)
            if shorter.num_exits == 1:
                continue  # without this member no sample can leave early
            spans = enumerate(model.backbone.stages_of_members)
            stages = [stage for place, span in spans if place != index for stage in span]
            fit_rows, tune, calibrate = splits
            trained = None if fit_rows is None else StageView(fit_rows, stages)
            views = trained, StageView(tune, stages), StageView(calibrate, stages)
            trial = fit_part(shorter, views)
            gain = _threshold_area(model) - _threshold_area(trial)
            gains.append(Contribution(member.name, gain, kept=gain > 0))
            if _threshold_area(trial) >= _threshold_area(best):
                best, best_splits, worst = trial, views, gains[-1]
        if worst is None:
            break
        # Once more: the gain of a member depends on which others are there.
        model, splits, gains = best, best_splits, []
        dropped.append(worst)
    return replace(model, contributions=(*dropped, *gains, *model.contributions))


def _threshold_area(model: EarlyExitModel) -> float:
    """Return the area under the curve of the threshold policy: with one parameter, it overfits the tune split least."""
    return area(model.points["threshold"])


@dataclass(frozen=True)
class _Job:
    """Everything that the fits of a cascade and of its parts share."""

    backbone: Backbone
    preprocessing: Preprocessing
    inputs: Any
    """One raw sample."""
    data: tuple[str, ...]
    """Names of the data."""
    folder: Path
    """Folder of features and checkpoints."""
    method: Method
    settings: Any
    policies: Sequence[str] | None
    pooling: str
    calibration: CalibrationOptions
    cost: CostOptions
    progress: bool

    def fit_part(self, part: Backbone, splits: Splits) -> EarlyExitModel:
        """Fit a part of the cascade, or all of it."""
        preprocessing = preprocessing_of_part(part, self.backbone, self.preprocessing)
        latency = self.cost.latency
        if latency is not None:
            latency = latency_of_part(latency, part, self.backbone)
        reports = "on_epoch" in inspect.signature(self.method).parameters
        epochs = 1
        if reports and isinstance(self.settings, JointSettings):
            epochs = self.settings.warmup_epochs + self.settings.epochs
        with progress_bar(f"fitting exits of {part.name}", epochs, unit="epochs", show=self.progress) as advance:
            return fit_features(
                part,
                *splits,
                example=part.prepare(preprocessing(self.inputs)),
                preprocessing=preprocessing,
                pooling=self.pooling,
                method=self.method,
                settings=self.settings,
                policies=self.policies,
                calibration=self.calibration,
                cost=replace(self.cost, latency=latency),
                checkpoint=self.folder / f"fit-{self._key(part, preprocessing):x}.safetensors",
                on_epoch=lambda _: advance(1),
            )

    def _key(self, part: Backbone, preprocessing: Preprocessing) -> int:
        """Hash everything that a checkpoint depends on."""
        # Not the name alone: the members of a cascade, and with them its parts, may have the same name.
        parts = (
            list(self.data),
            self.pooling,
            METHODS.name_of(self.method),
            self.settings,
            part.name,
            part.fingerprint(),
            preprocessing.describe(),
            self.cost.latency,
            self.cost.batch_size,
        )
        return stable_hash(str(parts))


def _example(train: LabelledData, classes: Sequence[str], preprocessing: Preprocessing | None) -> Any:
    """Return a few training inputs as the network takes them."""
    source = as_source(train, "train", classes)
    inputs = source.read(0, min(2, len(source))).inputs
    return inputs if preprocessing is None else preprocessing(inputs)


def _check_different(train: Source, validation: Source) -> None:
    """Refuse identical train and validation data before the long work; overlaps are checked after extraction."""
    same_name = train.name.removeprefix("train-") == validation.name.removeprefix("validation-")
    places = {len(train) * step // 8 for step in range(8)} if len(train) == len(validation) else set()
    same_rows = bool(places) and all(
        train.read(row, row + 1).ids == validation.read(row, row + 1).ids for row in places
    )
    if same_name or same_rows:
        raise SplitError(
            "train and validation are the same samples", hint="pass validation samples that are not in train"
        )


def _extract_splits(
    backbone: Backbone,
    sources: tuple[Source, Source],
    folder: Path,
    *,
    views: Sequence[Preprocessing],
    pooling: str,
    seed: int,
    classes: Sequence[str],
    anyway: bool,
    progress: bool,
) -> Splits:
    """Run the network over train and validation; return the features of fit, if any is needed, tune and calibrate."""

    def run(source: Source, source_views: Sequence[Preprocessing]) -> Store:
        place = folder / source.name
        return extract(backbone, source, place, poolings=(pooling,), views=source_views, progress=progress)

    train, validation = sources
    held_out = run(validation, views[:1])  # first: a network that only guesses is refused on it
    if held_out.num_rows < 2:
        raise InputError(
            "validation is halved into tune and calibrate",
            expected="at least 2 samples, better 1,000 or more",
            got=str(held_out.num_rows),
        )
    check_full_network(StoreSource(held_out, pooling=pooling), split="validation", classes=classes, anyway=anyway)
    ids = held_out.ids()
    unseen, fit_rows = np.arange(len(ids)), None
    if len(backbone.own_heads) < backbone.num_exits:
        fit_rows = StoreSource(run(train, views), pooling=pooling, views="all")
        unseen = np.delete(unseen, find_overlap(ids, {"train": fit_rows}, name="validation"))
    half = len(unseen) // 2
    halves = split_by_id(ids[unseen], [half, len(unseen) - half], seed=seed)
    tune, calibrate = (StoreSource(held_out, pooling=pooling, rows=unseen[rows]) for rows in halves)
    return fit_rows, tune, calibrate


def fit_features(
    backbone: Backbone,
    fit: BatchSource | None,
    tune: BatchSource,
    calibrate: BatchSource | None,
    *,
    example: Hidden,
    preprocessing: Preprocessing | None = None,
    pooling: str = FittingOptions.pooling,
    method: str | Method = "default",
    settings: Any = None,
    policies: Sequence[str] | None = None,
    calibration: CalibrationOptions = CalibrationOptions(),
    cost: CostOptions = CostOptions(),
    checkpoint: Path | None = None,
    on_epoch: Callable[[EpochRecord], object] | None = None,
) -> EarlyExitModel:
    """Fit a model from cached features and explicit splits.

    Args:
        backbone: The frozen network.
        fit: Samples for classifiers and gates; None if every stage has a head of its own, so that none is trained.
        tune: Samples for imbalance weights, early stopping, temperatures, offsets and the choice of points.
        calibrate: Samples for conformal thresholds and guarantees, and nothing else; None for a model that is to be
            recalibrated. Up to 1 % of each split may be in an earlier one, and is left out with an `OverlapWarning`;
            more is a `SplitError`.
        example: A batch of inputs as the backbone takes them: costs are counted on it.
        preprocessing: Conversion of raw inputs into what the backbone takes; the backbone's own if left out.
        pooling: Name of the pooling the features were made with.
        method: Training of the exits: a registered name, or a method itself. Import third-party names before, with
            `METHODS.get(name, trust=...)`; policies likewise.
        settings: The method's settings; its own default if left out.
        policies: Names of the policies to offer points of; as for `fit` if left out.
        calibration: Prediction sets.
        cost: Unit of cost.
        checkpoint: File for the state of the fit.
        on_epoch: Function called after every epoch.
    """
    named = (("fit", fit), ("tune", tune), ("calibrate", calibrate))
    given = {name: source for name, source in named if source is not None}
    splits = dict(zip(given, keep_apart(**given), strict=True))
    fit, tune, calibrate = splits.get("fit"), splits["tune"], splits.get("calibrate")
    prices, unit = _prices(backbone, example, pooling, cost)
    method, settings = _method_and_settings(method, settings)
    # Fit the exits.
    fitted = _fit_exits(method, fit, tune, prices, settings, checkpoint=checkpoint, on_epoch=on_epoch)
    exits = fitted.exits
    policies = _default_policies(fitted) if policies is None else tuple(policies)
    costs = {
        policy: prices.price(exits, POLICIES.get(policy)) for policy in dict.fromkeys((*DEFAULT_POLICIES, *policies))
    }
    # Tune the points, calibrate.
    seed = getattr(settings, "seed", 0)
    tuned = tune_points(fitted, policies, costs, tune, calibrate, calibration=calibration, seed=seed)
    provenance = _provenance(METHODS.name_of(method), settings, **splits)
    if cost.latency is not None:
        provenance["latency"] = latency_provenance(cost.latency)
    return EarlyExitModel(
        backbone=backbone,
        preprocessing=backbone.preprocessing if preprocessing is None else preprocessing,
        pooling=POOLINGS.get(pooling),
        exits=exits,
        costs=costs,
        points=tuned.points,
        temperatures=tuned.temperatures,
        full_accuracy=tuned.full_accuracy,
        contributions=tuned.contributions,
        splits={name: IdSketch.of(keys.ids for keys in source.keys()) for name, source in splits.items()},
        provenance=provenance,
        unit=CostUnit(unit, None if unit == MUL_ADDS else float(costs["threshold"].average(tuned.sizes).full)),
    )


def _prices(backbone: Backbone, example: Hidden, pooling: str, cost: CostOptions) -> tuple[Prices, str]:
    """Return the costs of a network before its exits are priced, and the name of their unit."""
    if cost.latency is not None:
        return LatencyPrices(cost.latency, cost.batch_size), MILLISECONDS
    if isinstance(backbone, Cascade) and costs_money(backbone):
        prices = price_members(backbone)
        return prices, prices.currency
    return count_backbone(backbone, example, POOLINGS.get(pooling)), MUL_ADDS


def _fit_exits(
    method: Method, fit: BatchSource | None, tune: BatchSource, prices: Prices, settings: Any, **extras: Any
) -> FittedExits:
    """Run a method with those of the extra arguments that it takes; without one if there is nothing to train."""
    if fit is None:
        exits = NoExits(tune.widths, (), tune.num_classes)
        exits.averaging = fit_averaging(tune)
        return FittedExits(exits)
    parameters = inspect.signature(method).parameters
    called = f"method '{METHODS.name_of(method)}'"
    with run_third_party(method, called, "mend it"):
        fitted = method(fit, tune, prices, settings, **{name: extras[name] for name in extras if name in parameters})
    if not isinstance(fitted, FittedExits):
        raise InputError(called, expected="offramp.methods.FittedExits", got=f"a {type(fitted).__name__}")
    return fitted


def _provenance(method: str, settings: Any, **splits: BatchSource) -> dict[str, Any]:
    """Return versions, settings and the sizes of the splits, as JSON holds them."""
    fields = asdict(settings) if is_dataclass(settings) and not isinstance(settings, type) else {}
    return {
        "offramp": version("offramp"),
        "torch": torch.__version__,
        "method": method,
        "settings": json.loads(json.dumps(fields, default=str)),
        "splits": {name: {"samples": source.num_samples} for name, source in splits.items()},
    }


def _method_and_settings(method: str | Method, settings: Any, trust: Collection[str] = ()) -> tuple[Method, Any]:
    """Return a method and its settings."""
    function = METHODS.get(method, trust=trust) if isinstance(method, str) else method
    if not callable(function):
        raise InputError(expected="a function as method", got=repr(function))
    default = default_settings(function)
    if settings is not None and default is not None and not isinstance(settings, type(default)):
        raise InputError(
            expected=f"settings of this method as {type(default).__name__}",
            got=f"a {type(settings).__name__}",
            hint="leave them out for its default",
        )
    return function, default if settings is None else settings


def _check_policies(policies: Sequence[str] | None, trust: Collection[str], backbone: Backbone) -> None:
    """Refuse policies that cannot decide here."""
    if policies is None:
        return
    if isinstance(policies, str) or not policies or not all(isinstance(name, str) for name in policies):
        raise InputError(
            expected="names of policies, such as policies=['threshold', 'package.module:name']", got=repr(policies)
        )
    for name in policies:
        policy = POLICIES.get(name, trust=trust)
        check_own_name(policy, name)
        check_policy(policy, num_exits=backbone.num_exits, num_classes=backbone.num_classes)


def _default_policies(fitted: FittedExits) -> tuple[str, ...]:
    """Return the policies that a fit offers points of by default."""
    return (*OFFERED_POLICIES, *(() if fitted.gates is None else (fitted.gate_policy,)))
