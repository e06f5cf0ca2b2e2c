"""From a frozen network and labelled data to a frontier, in one call."""

import hashlib
import inspect
import reprlib
import tempfile
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np
from torch.utils import _pytree as pytree
from torch.utils.data import DataLoader
from torch.utils.data import Dataset as TorchDataset

from offramp.artifact import LONGEST
from offramp.backbone import DEFAULT_POOLING, POOLINGS, Backbone, Cascade, Hidden, Preprocessing
from offramp.backbone.raw import listed
from offramp.cost import Prices, count_backbone, thinned
from offramp.data import TorchSource, open_data
from offramp.data.labels import label_numbers
from offramp.errors import InputError, SplitError
from offramp.features import (
    ArraySource,
    BatchSource,
    IdSketch,
    Source,
    Store,
    StoreSource,
    extract,
    keep_apart,
    split_by_id,
)
from offramp.features.splits import find_overlap
from offramp.features.stable_hash import stable_hash
from offramp.frontier.contributions import LEVELS, paying_exits
from offramp.frontier.frontier import Frontier
from offramp.frontier.guarantee import with_losses
from offramp.frontier.guessing import check_full_network
from offramp.frontier.members import drop_members
from offramp.frontier.outcomes import outcomes, tune_temperatures
from offramp.frontier.provenance import provenance
from offramp.frontier.sets import with_sets
from offramp.frontier.thinning import area, thin
from offramp.frontier.timing import check_measured, of_part, told_of
from offramp.frontier.tuning import tuning_of
from offramp.methods import METHODS, EpochRecord, FittedExits, JointSettings, Method, default_settings
from offramp.policy import OFFERED, POLICIES, check_points, check_policy, threshold_candidates
from offramp.progress import progress_bar
from offramp.registry import check_own_name, run_third_party
from offramp.runtime import LatencyTable, Milliseconds
from offramp.uncertainty import ConformalVariant

if TYPE_CHECKING:
    import datasets

__all__ = ["LabelledData", "as_source", "check_stages", "fit", "fit_frontier", "prepared_for"]

LabelledData: TypeAlias = "Source | tuple[Any, Any] | TorchDataset[Any] | DataLoader[Any] | datasets.Dataset"
"""Samples with their labels, as people hold them."""


def fit(
    backbone: Backbone,
    train: LabelledData,
    validation: LabelledData,
    *,
    preprocessing: Preprocessing | None = None,
    augmented: Sequence[Preprocessing] = (),
    pooling: str = DEFAULT_POOLING,
    exits: int | None = None,
    method: str | Method = "default",
    settings: Any = None,
    policies: Sequence[str] | None = None,
    trust: Collection[str] = (),
    classes: Sequence[str] = (),
    latency: LatencyTable | None = None,
    batch_size: int = 1,
    sets_by_class: bool = False,
    store: str | Path | None = None,
    anyway: bool = False,
    progress: bool = True,
) -> Frontier:
    """Attach exits to a frozen network and learn the whole trade-off between cost and accuracy.

    The network runs once over the data; everything after that works on cached features. The validation samples are
    halved by id: one half tunes (temperatures, choice of points), the other calibrates prediction sets and promises.
    They should be samples the network was not trained on. Samples are known by the content of their rows: up to 1 % of
    the validation samples may be among those for training, and leave with an `OverlapWarning`.

    Args:
        backbone: The frozen network.
        train: Samples for classifiers and gates: (inputs, labels), labels being numbers or class names; a map-style
            torch dataset of such pairs or a loader of one; a `datasets.Dataset`; or a source.
        validation: Samples the network has never seen, in any of these forms.
        preprocessing: From raw inputs to what the backbone takes; the backbone's own if left out.
        augmented: Further views of the training samples, each one more pass of the network over them.
        pooling: Name of the pooling that exits see a stage through.
        exits: Exits of a network at most, evenly spread over its cost; one after every stage if left out. Every exit
            takes time: few are enough for a cascade, whose networks answer at their ends.
        method: How exits are trained: "default", "paper", another registered name, `package.module:function` of a
            function that `trust` lists, or such a function itself (`offramp.methods.Method`).
        settings: The method's settings; its own default if left out.
        policies: Names of the policies to offer points of, registered or `package.module:name`; if left out, optimal
            stopping, a threshold and the gates that the method trains.
        trust: Names `package.module:name` of third-party code that may be imported, among them a pooling's.
        classes: Names of the classes, in the order of the network's outputs, where the network does not know them;
            kept with the frontier.
        latency: What was measured of this backbone with such exits, untrained as they may be: costs are then times, in
            training, in choosing and in what is reported; Mul-Adds if left out.
        batch_size: How many samples come at a time, where costs are times.
        sets_by_class: Whether prediction sets are to hold the true class as often in each class as overall, for which
            they grow; some dozens of validation samples a class are needed.
        store: A directory for the cached features; a run that was interrupted goes on from there. Without one they are
            thrown away at the end.
        anyway: Whether to go on, with a warning, where the full network is no better than guessing on validation.
        progress: Whether to show a progress bar.

    Returns:
        The frontier.

    Raises:
        GuessingError: The full network is not more often right than the commonest class comes, at 95 %, one-sided: its
            class names are in another order, inputs are prepared otherwise, or its weights were not loaded.
        SplitError: More than 1 % of the validation samples are among those for training.
    """
    if not isinstance(backbone, Backbone):
        raise InputError(f"expected a backbone, got {type(backbone).__name__}; cut a network with offramp.split first")
    check_stages(backbone)
    names = classes or backbone.classes
    classes = check_names(names, backbone) if names else ()
    preprocessing = backbone.preprocessing if preprocessing is None else preprocessing
    method, settings = _method(method, settings, trust)
    check_own_name(POOLINGS.get(pooling, trust=trust), pooling)
    _check_policies(policies, trust, backbone)
    sources = [as_source(train, "train", classes), as_source(validation, "validation", classes)]
    # Copies are noticed now, before the long work; whatever else the two share, once all rows have been read.
    names_alike = sources[0].name.removeprefix("train-") == sources[1].name.removeprefix("validation-")
    if names_alike or _look_alike(*sources):
        raise SplitError("train and validation are the same samples; hold some out that nothing was trained on")
    if exits is not None:
        backbone = thinned(backbone, backbone.prepare(preprocessing(sources[0].read(0, 1).inputs)), exits=exits)
    if latency is not None:
        check_measured(latency, backbone, exits)
    with ExitStack() as stack:
        folder = Path(store) if store is not None else Path(stack.enter_context(tempfile.TemporaryDirectory()))

        def run(source: Source, *views: Preprocessing) -> Store:
            return extract(backbone, source, folder / source.name, poolings=(pooling,), views=views, progress=progress)

        held_out = run(sources[1], preprocessing)  # first: a network that only guesses is refused on it
        if held_out.num_rows < 2:
            raise InputError(
                "validation is halved into tune and calibrate: give at least 2 samples, better 1,000 or more"
            )
        check_full_network(StoreSource(held_out, pooling=pooling), split="validation", classes=classes, anyway=anyway)
        fit_rows = StoreSource(run(sources[0], preprocessing, *augmented), pooling=pooling, views="all")
        ids = held_out.ids()
        unseen = np.delete(np.arange(len(ids)), find_overlap(ids, {"train": fit_rows}, name="validation"))
        half = len(unseen) // 2
        tune, calibrate = (
            StoreSource(held_out, pooling=pooling, rows=unseen[rows])
            for rows in split_by_id(ids[unseen], [half, len(unseen) - half], seed=getattr(settings, "seed", 0))
        )
        names = [source.name for source in sources]
        first = sources[0].read(0, 1).inputs

        def fit_one(part: Backbone, parts: Sequence[BatchSource]) -> Frontier:
            preparing = prepared_for(part, backbone, preprocessing)
            # Not by name alone: a cascade's members, and with them what remains of it, may be called the same.
            told = (
                names,
                pooling,
                METHODS.name_of(method),
                settings,
                part.name,
                part.fingerprint(),
                preparing.describe(),
                latency,
                batch_size,
            )
            key = stable_hash(str(told))
            reports = "on_epoch" in inspect.signature(method).parameters
            epochs = settings.warmup_epochs + settings.epochs if reports and isinstance(settings, JointSettings) else 1
            with progress_bar(f"fitting exits of {part.name}", epochs, unit="epochs", show=progress) as advance:
                return fit_frontier(
                    part,
                    *parts,
                    example=part.prepare(preparing(first)),
                    preprocessing=preparing,
                    pooling=pooling,
                    method=method,
                    settings=settings,
                    policies=policies,
                    latency=None if latency is None else of_part(latency, part, backbone),
                    batch_size=batch_size,
                    sets_by_class=sets_by_class,
                    checkpoint=folder / f"fit-{key:x}.safetensors",
                    on_epoch=lambda record: advance(1),
                )

        return replace(drop_members(backbone, (fit_rows, tune, calibrate), fit_one), classes=classes)


def _look_alike(source: Source, other: Source) -> bool:
    """Tell whether two sources have as many rows, and the same ones at a few places."""
    places = {len(source) * step // 8 for step in range(8)} if len(source) == len(other) else set()
    return bool(places) and all(source.read(row, row + 1).ids == other.read(row, row + 1).ids for row in places)


def check_stages(backbone: Backbone) -> None:
    """Refuse a network of one stage: its only exit is its own head, so that no sample could leave early."""
    if backbone.num_exits == 1:
        raise InputError(
            f"'{backbone.name}' is one stage, from which no sample can leave early; cut it after named modules "
            "(offramp.split(model, example, at=[...])), give the stages by hand (offramp.Backbone), or put a cheaper "
            "network in front (offramp.cascade)"
        )


def check_names(classes: Sequence[str], backbone: Backbone) -> tuple[str, ...]:
    """Return the names as a tuple; refuse those that are not one a class, or not those the backbone has."""
    names = [] if isinstance(classes, str) else list(classes)
    good = all(isinstance(name, str) and 0 < len(name) <= LONGEST for name in names)
    if not good or len(names) != backbone.num_classes or len(set(names)) != len(names):
        raise InputError(
            f"expected {backbone.num_classes} different names, one a class of '{backbone.name}', each of 1 to "
            f"{LONGEST} characters, got {reprlib.repr(classes)}"
        )
    _check_agree(names, backbone.classes, f"classes={reprlib.repr(classes)}")
    return tuple(names)


def _check_agree(given: Sequence[str], own: Sequence[str], what: str) -> None:
    """Refuse names of classes in another order than the network's, or others."""
    if given and own and tuple(given) != tuple(own):
        pairs = enumerate(zip(given, own, strict=False))
        place = next((i for i, pair in pairs if pair[0] != pair[1]), min(len(given), len(own)))
        raise InputError(
            f"expected the classes of the network ({reprlib.repr(tuple(own))}), got {what}: the first difference is "
            f"class {place}; leave classes out, or open data with classes=backbone.classes"
        )


def prepared_for(part: Backbone, backbone: Backbone, preprocessing: Preprocessing) -> Preprocessing:
    """How inputs are prepared for what remains of a backbone: of a cascade, fewer of its networks.

    Args:
        part: What remains.
        backbone: What it remains of.
        preprocessing: How inputs are prepared for that.
    """
    # What remains of a cascade whose networks prepare inputs each in its own way has to do so itself.
    apart = isinstance(backbone, Cascade) and not backbone.alike
    return preprocessing.followed_by(part.preprocessing) if apart and part is not backbone else preprocessing


def fit_frontier(
    backbone: Backbone,
    fit: BatchSource,
    tune: BatchSource,
    calibrate: BatchSource,
    *,
    example: Hidden,
    preprocessing: Preprocessing | None = None,
    pooling: str = DEFAULT_POOLING,
    method: str | Method = "default",
    settings: Any = None,
    policies: Sequence[str] | None = None,
    conformal: ConformalVariant = "pooled",
    sets_by_class: bool = False,
    miscoverages: Sequence[float] = (0.05, 0.1),
    latency: LatencyTable | None = None,
    batch_size: int = 1,
    checkpoint: Path | None = None,
    on_epoch: Callable[[EpochRecord], object] | None = None,
) -> Frontier:
    """Fit a frontier from cached features and explicit splits.

    Args:
        backbone: The frozen network.
        fit: Samples for classifiers and gates.
        tune: Samples for imbalance weights, early stopping, temperatures, offsets and the choice of points.
        calibrate: Samples for conformal thresholds and promises, and nothing else. Of each split, up to 1 % may be in
            an earlier one, and leave with an `OverlapWarning`; more is a `SplitError`.
        example: A batch of inputs as the backbone takes them: costs are counted on it.
        preprocessing: From raw inputs to what the backbone takes; the backbone's own if left out.
        pooling: Name of the pooling the features were made with.
        method: How exits are trained: a registered name, or a method itself. Third-party names are imported before, by
            `METHODS.get(name, trust=...)`; policies likewise.
        settings: The method's settings; its own default if left out.
        policies: Names of the policies to offer points of; as for `fit` if left out.
        conformal: How prediction sets are calibrated; what each way claims, and what not: docs/conformal.md.
        sets_by_class: Whether they are calibrated within each class.
        miscoverages: Offered levels of prediction sets.
        latency: What was measured of this backbone with such exits: costs are then times; Mul-Adds if left out.
        batch_size: How many samples come at a time, where costs are times.
        checkpoint: A file that keeps the fit's state.
        on_epoch: Called after every epoch.

    Returns:
        The frontier.
    """
    fit, tune, calibrate = keep_apart(fit=fit, tune=tune, calibrate=calibrate)
    prices: Prices
    if latency is None:
        prices = count_backbone(backbone, example, POOLINGS.get(pooling))
    else:
        prices = Milliseconds(latency, batch_size)
    method, settings = _method(method, settings)
    takes = inspect.signature(method).parameters
    extras = {"checkpoint": checkpoint, "on_epoch": on_epoch}
    called = f"method '{METHODS.name_of(method)}'"
    with run_third_party(method, called, "mend it"):
        fitted = method(fit, tune, prices, settings, **{name: extras[name] for name in extras if name in takes})
    if not isinstance(fitted, FittedExits):
        raise InputError(f"expected {called} to return offramp.methods.FittedExits, got a {type(fitted).__name__}")
    bank = fitted.bank
    policies = _default_policies(fitted) if policies is None else tuple(policies)
    costs = {policy: prices.price(bank, POLICIES.get(policy)) for policy in dict.fromkeys((*OFFERED, *policies))}
    temperatures = tune_temperatures(bank, tune)
    probabilities = any("probabilities" in POLICIES.get(policy).reads for policy in policies)
    seen = outcomes(bank, tune, temperatures, probabilities=probabilities)
    # A dial should stay with one set of classifiers: the one whose whole curve is best.
    coarse = [
        threshold_candidates(seen.confidence[one], temperatures[one], one, levels=LEVELS) for one in range(bank.stacked)
    ]
    best = max(range(bank.stacked), key=lambda one: area(thin(coarse[one], seen, costs["threshold"])))
    active, contributions = paying_exits(seen, temperatures, best, costs["threshold"], needed=bank.averaging.read)
    everywhere = tuple(range(backbone.num_exits))
    points = {}
    for policy in policies:
        rule = POLICIES.get(policy)
        offered = []
        for force in dict.fromkeys((everywhere, active) if rule.counts_earlier else (active,)):
            seed = getattr(settings, "seed", 0)
            view = tuning_of(fitted, seen, temperatures, costs[policy], classifier=best, active=force, seed=seed)
            with run_third_party(rule.candidates, f"policy '{policy}'", "mend its candidates"):
                candidates = rule.candidates(view)
            offered += check_points(rule, candidates, num_exits=backbone.num_exits, num_classes=backbone.num_classes)
        points[policy] = thin(offered, seen, costs[policy])
    held_out = outcomes(bank, calibrate, temperatures, probabilities=probabilities)
    calibrated = {
        policy: with_losses(with_sets(kept, held_out, conformal, miscoverages, by_class=sets_by_class), held_out, seen)
        for policy, kept in points.items()
    }
    return Frontier(
        backbone=backbone,
        preprocessing=backbone.preprocessing if preprocessing is None else preprocessing,
        pooling=POOLINGS.get(pooling),
        bank=bank,
        costs=costs,
        points=calibrated,
        temperatures=temperatures,
        full_accuracy=float(seen.full_correct.double().mean()),
        contributions=contributions,
        splits={
            name: IdSketch.of(keys.ids for keys in source.keys())
            for name, source in (("fit", fit), ("tune", tune), ("calibrate", calibrate))
        },
        provenance=provenance(METHODS.name_of(method), settings, fit=fit, tune=tune, calibrate=calibrate)
        | ({} if latency is None else {"latency": told_of(latency)}),
        full_ms=None if latency is None else float(costs["threshold"].average(seen.sizes).full),
    )


def _method(method: str | Method, settings: Any, trust: Collection[str] = ()) -> tuple[Method, Any]:
    """Return a method and its settings."""
    function = METHODS.get(method, trust=trust) if isinstance(method, str) else method
    if not callable(function):
        raise InputError(f"expected a function as method, got {function!r}")
    default = default_settings(function)
    if settings is not None and default is not None and not isinstance(settings, type(default)):
        raise InputError(
            f"expected settings of this method as {type(default).__name__}, got a {type(settings).__name__}; leave "
            "them out for its default"
        )
    return function, default if settings is None else settings


def _check_policies(policies: Sequence[str] | None, trust: Collection[str], backbone: Backbone) -> None:
    """Refuse policies that cannot decide here, before the long work."""
    if policies is None:
        return
    if isinstance(policies, str) or not policies or not all(isinstance(name, str) for name in policies):
        raise InputError(
            f"expected names of policies, such as policies=['threshold', 'package.module:name'], got {policies!r}"
        )
    for name in policies:
        policy = POLICIES.get(name, trust=trust)
        check_own_name(policy, name)
        check_policy(policy, num_exits=backbone.num_exits, num_classes=backbone.num_classes)


def _default_policies(fitted: FittedExits) -> tuple[str, ...]:
    """Return the policies that a fit offers points of unless others are asked for."""
    return ("stopping", "threshold", *(() if fitted.gates is None else (fitted.gate_policy,)))


def as_source(data: LabelledData, name: str, classes: Sequence[str] = ()) -> Source:
    """Return data as a source, whose name tells other data apart: a kept store of those is not taken for theirs.

    Args:
        data: A source, (inputs, labels), a map-style torch dataset or a loader of one, or a `datasets.Dataset`.
        name: First part of the source's name.
        classes: Names of the network's classes, by which labels that are names are looked up.
    """
    if not isinstance(data, tuple) or len(data) != 2:
        if hasattr(data, "read") and not isinstance(data, tuple):
            source: Any = data
        elif type(data).__module__.partition(".")[0] == "datasets":
            source = open_data(data, classes=classes)
            if not source.labelled:
                raise InputError(f"{name} has no labels; name their column: offramp.data.open_data(data, label=...)")
        elif isinstance(data, TorchDataset | DataLoader):
            return TorchSource(data, name=name, classes=classes)
        else:
            raise InputError(
                f"expected {name} as (inputs, labels), a torch or Hugging Face dataset, or a source with name, read "
                f"and a length (features.Source), got a {type(data).__name__}; open a file or folder with "
                "offramp.data.open_data(path)"
            )
        named = getattr(source, "classes", ())
        _check_agree(named, classes, f"{name} data of {reprlib.repr(tuple(named))}")
        return cast(Source, source)
    inputs, labels = listed(data[0]), label_numbers(data[1], name, classes)
    digest = hashlib.blake2b(np.ascontiguousarray(labels).tobytes(), digest_size=6)
    for leaf in pytree.tree_leaves(inputs):
        digest.update(f"{tuple(leaf.shape)} {leaf.dtype}".encode())
        for row in np.linspace(0, len(leaf) - 1, 64 if len(leaf) else 0).astype(np.int64).tolist():
            # An array of objects (texts) holds where they lie, which the next process does otherwise.
            content = leaf[row].encode() if isinstance(leaf[row], str) else np.ascontiguousarray(leaf[row]).tobytes()
            digest.update(content)
    return ArraySource(inputs, labels, name=f"{name}-{digest.hexdigest()}")
