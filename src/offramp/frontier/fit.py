"""From a frozen network and labelled data to a frontier, in one call."""

import hashlib
import reprlib
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from torch.utils import _pytree as pytree

from offramp.artifact import LONGEST
from offramp.cost import Prices, count_trunk, thinned
from offramp.errors import InputError, SplitError
from offramp.features import ArraySource, BatchSource, Source, StoreSource, check_disjoint, extract, split_by_id
from offramp.features.stable_hash import stable_hash
from offramp.frontier.candidates import Tuning, area, gate_candidates, stopping_candidates, thin, threshold_candidates
from offramp.frontier.contributions import LEVELS, paying_exits
from offramp.frontier.frontier import Frontier
from offramp.frontier.guarantee import with_losses
from offramp.frontier.links import drop_links
from offramp.frontier.outcomes import outcomes, tune_temperatures
from offramp.frontier.provenance import provenance
from offramp.frontier.sets import with_sets
from offramp.frontier.timing import check_measured, of_part, told_of
from offramp.methods import DEFAULT, EpochRecord, JointSettings, fit_joint
from offramp.policy import OFFERED, POLICIES
from offramp.progress import progress_bar
from offramp.runtime import LatencyTable, Milliseconds
from offramp.trunk import DEFAULT_POOLING, POOLINGS, ChainTrunk, Hidden, Preprocessing, Trunk
from offramp.trunk.raw import listed
from offramp.uncertainty import ConformalVariant

__all__ = ["as_source", "fit", "fit_frontier", "prepared_for"]


def fit(
    trunk: Trunk,
    train: Source | tuple[Any, Any],
    validation: Source | tuple[Any, Any],
    *,
    preprocessing: Preprocessing | None = None,
    augmented: Sequence[Preprocessing] = (),
    pooling: str = DEFAULT_POOLING,
    exits: int | None = None,
    settings: JointSettings = DEFAULT,
    classes: Sequence[str] = (),
    latency: LatencyTable | None = None,
    batch_size: int = 1,
    sets_by_class: bool = False,
    store: str | Path | None = None,
    progress: bool = True,
) -> Frontier:
    """Attach exits to a frozen network and learn the whole trade-off between cost and accuracy.

    The network runs once over the data; everything after that works on cached features. The validation samples are
    halved by id: one half tunes (temperatures, choice of points), the other calibrates prediction sets and promises.
    They should be samples the network was not trained on.

    Args:
        trunk: The frozen network.
        train: Samples for classifiers and gates: a source, or (inputs, labels).
        validation: Samples the network has never seen: a source, or (inputs, labels).
        preprocessing: From raw inputs to what the trunk takes; the trunk's own if left out.
        augmented: Further views of the training samples, each one more pass of the network over them.
        pooling: Name of the pooling that exits see a stage through.
        exits: Exits of a network at most, evenly spread over its cost; one after every stage if left out. Every exit
            takes time: few are enough for a chain, whose networks answer at their ends.
        settings: How to fit.
        classes: Names of the classes, in the order of their numbers; kept with the frontier.
        latency: What was measured of this trunk with such exits, untrained as they may be: costs are then times, in
            training, in choosing and in what is reported; Mul-Adds if left out.
        batch_size: How many samples come at a time, where costs are times.
        sets_by_class: Whether prediction sets are to hold the true class as often in each class as overall, for which
            they grow; some dozens of validation samples a class are needed.
        store: A directory for the cached features; a run that was interrupted goes on from there. Without one they are
            thrown away at the end.
        progress: Whether to show a progress bar.

    Returns:
        The frontier.
    """
    if not isinstance(trunk, Trunk):
        raise InputError(f"expected a trunk, got {type(trunk).__name__}; cut a network with offramp.split first")
    if classes:
        check_names(classes, trunk)
    preprocessing = trunk.preprocessing if preprocessing is None else preprocessing
    sources = [as_source(train, "train"), as_source(validation, "validation")]
    if sources[0].name.removeprefix("train-") == sources[1].name.removeprefix("validation-"):
        raise SplitError("train and validation are the same samples; hold some out that nothing was trained on")
    if exits is not None:
        trunk = thinned(trunk, trunk.prepare(preprocessing(sources[0].read(0, 1).inputs)), exits=exits)
    if latency is not None:
        check_measured(latency, trunk, exits)
    with ExitStack() as stack:
        folder = Path(store) if store is not None else Path(stack.enter_context(tempfile.TemporaryDirectory()))
        views = ((preprocessing, *augmented), (preprocessing,))
        stores = [
            extract(trunk, source, folder / source.name, poolings=(pooling,), views=view, progress=progress)
            for source, view in zip(sources, views, strict=True)
        ]
        fit_rows = StoreSource(stores[0], pooling=pooling, views="all")
        half = stores[1].num_rows // 2
        if not half:
            raise InputError(
                "validation is halved into tune and calibrate: give at least 2 samples, better 1,000 or more"
            )
        tune, calibrate = (
            StoreSource(stores[1], pooling=pooling, rows=rows)
            for rows in split_by_id(stores[1].ids(), [half, stores[1].num_rows - half], seed=settings.seed)
        )
        names = [source.name for source in sources]
        first = sources[0].read(0, 1).inputs

        def fit_one(part: Trunk, parts: Sequence[BatchSource]) -> Frontier:
            preparing = prepared_for(part, trunk, preprocessing)
            # Not by name alone: a chain's links, and with them what remains of it, may be called the same.
            told = (names, pooling, settings, part.name, part.fingerprint(), preparing.describe(), latency, batch_size)
            key = stable_hash(str(told))
            epochs = settings.warmup_epochs + settings.epochs
            with progress_bar(f"fitting exits of {part.name}", epochs, unit="epochs", show=progress) as advance:
                return fit_frontier(
                    part,
                    *parts,
                    example=part.prepare(preparing(first)),
                    preprocessing=preparing,
                    pooling=pooling,
                    settings=settings,
                    latency=None if latency is None else of_part(latency, part, trunk),
                    batch_size=batch_size,
                    sets_by_class=sets_by_class,
                    checkpoint=folder / f"fit-{key:x}.safetensors",
                    on_epoch=lambda record: advance(1),
                )

        return replace(drop_links(trunk, (fit_rows, tune, calibrate), fit_one), classes=tuple(classes))


def check_names(classes: Sequence[str], trunk: Trunk) -> None:
    """Refuse names that are not one a class of the trunk's."""
    names = [] if isinstance(classes, str) else list(classes)
    good = all(isinstance(name, str) and 0 < len(name) <= LONGEST for name in names)
    if not good or len(names) != trunk.num_classes or len(set(names)) != len(names):
        raise InputError(
            f"expected {trunk.num_classes} different names, one a class of '{trunk.name}', each of 1 to {LONGEST} "
            f"characters, got {reprlib.repr(classes)}"
        )


def prepared_for(part: Trunk, trunk: Trunk, preprocessing: Preprocessing) -> Preprocessing:
    """How inputs are prepared for what remains of a trunk: of a chain, fewer of its networks.

    Args:
        part: What remains.
        trunk: What it remains of.
        preprocessing: How inputs are prepared for that.
    """
    # What remains of a chain whose networks prepare inputs each in its own way has to do so itself.
    apart = isinstance(trunk, ChainTrunk) and not trunk.alike
    return preprocessing.followed_by(part.preprocessing) if apart and part is not trunk else preprocessing


def fit_frontier(
    trunk: Trunk,
    fit: BatchSource,
    tune: BatchSource,
    calibrate: BatchSource,
    *,
    example: Hidden,
    preprocessing: Preprocessing | None = None,
    pooling: str = DEFAULT_POOLING,
    settings: JointSettings = DEFAULT,
    conformal: ConformalVariant = "pooled",
    sets_by_class: bool = False,
    miscoverages: Sequence[float] = (0.05, 0.1),
    latency: LatencyTable | None = None,
    batch_size: int = 1,
    checkpoint: Path | None = None,
    on_epoch: Callable[[EpochRecord], object] | None = None,
) -> Frontier:
    """The same from cached features and explicit splits.

    Args:
        trunk: The frozen network.
        fit: Samples for classifiers and gates.
        tune: Samples for imbalance weights, early stopping, temperatures, offsets and the choice of points.
        calibrate: Samples for conformal thresholds and promises, and nothing else.
        example: A batch of inputs as the trunk takes them: costs are counted on it.
        preprocessing: From raw inputs to what the trunk takes; the trunk's own if left out.
        pooling: Name of the pooling the features were made with.
        settings: How to fit.
        conformal: How prediction sets are calibrated; what each way claims, and what not: docs/conformal.md.
        sets_by_class: Whether they are calibrated within each class.
        miscoverages: Offered levels of prediction sets.
        latency: What was measured of this trunk with such exits: costs are then times; Mul-Adds if left out.
        batch_size: How many samples come at a time, where costs are times.
        checkpoint: A file that keeps the fit's state.
        on_epoch: Called after every epoch.

    Returns:
        The frontier.
    """
    check_disjoint(fit=fit, tune=tune, calibrate=calibrate)
    prices: Prices
    if latency is None:
        prices = count_trunk(trunk, example, POOLINGS.get(pooling))
    else:
        prices = Milliseconds(latency, batch_size)
    fitted = fit_joint(fit, tune, prices, settings, checkpoint=checkpoint, on_epoch=on_epoch)
    bank = fitted.bank
    costs = {policy: prices.price(bank, POLICIES.get(policy)) for policy in OFFERED}
    temperatures = tune_temperatures(bank, tune)
    seen = outcomes(bank, tune, temperatures)
    # A dial should stay with one set of classifiers: the one whose whole curve is best.
    coarse = [threshold_candidates(seen, temperatures, one, levels=LEVELS) for one in range(bank.stacked)]
    best = max(range(bank.stacked), key=lambda one: area(thin(coarse[one], seen, costs["threshold"])))
    active, contributions = paying_exits(seen, temperatures, best, costs["threshold"], needed=bank.averaging.read)
    by_gates = gate_candidates(fitted, temperatures)
    if len(active) < trunk.num_exits:  # gates feed a running sum: fewer of them decide otherwise, and may do better
        by_gates += gate_candidates(fitted, temperatures, active=active)
    stopping = Tuning(fitted, seen, temperatures, costs["stopping"], best, active, settings.seed)
    points = {
        "stopping": thin(stopping_candidates(stopping), seen, costs["stopping"]),
        "threshold": thin(threshold_candidates(seen, temperatures, best, active=active), seen, costs["threshold"]),
        "gates": thin(by_gates, seen, costs["gates"]),
    }
    held_out = outcomes(bank, calibrate, temperatures)
    calibrated = {
        policy: with_losses(with_sets(kept, held_out, conformal, miscoverages, by_class=sets_by_class), held_out, seen)
        for policy, kept in points.items()
    }
    return Frontier(
        trunk=trunk,
        preprocessing=trunk.preprocessing if preprocessing is None else preprocessing,
        pooling=POOLINGS.get(pooling),
        bank=bank,
        costs=costs,
        points=calibrated,
        temperatures=temperatures,
        full_accuracy=float(seen.full_correct.double().mean()),
        contributions=contributions,
        provenance=provenance(settings, fit=fit, tune=tune, calibrate=calibrate)
        | ({} if latency is None else {"latency": told_of(latency)}),
        bare_ms=None if latency is None else float(costs["threshold"].average(seen.sizes).bare),
    )


def as_source(data: Source | tuple[Any, Any], name: str) -> Source:
    """Arrays as a source; its name tells other data apart, so that a store that was kept is not taken for theirs."""
    if not isinstance(data, tuple):
        if not hasattr(data, "read"):
            raise InputError(
                f"expected {name} as (inputs, labels), or a source with name, read and a length (features.Source); got "
                f"{type(data).__name__}"
            )
        return data
    inputs, labels = listed(data[0]), data[1]
    digest = hashlib.blake2b(np.ascontiguousarray(labels).tobytes(), digest_size=6)
    for leaf in pytree.tree_leaves(inputs):
        digest.update(f"{tuple(leaf.shape)} {leaf.dtype}".encode())
        for row in np.linspace(0, len(leaf) - 1, 64 if len(leaf) else 0).astype(np.int64).tolist():
            # An array of objects (texts) holds where they lie, which the next process does otherwise.
            content = leaf[row].encode() if isinstance(leaf[row], str) else np.ascontiguousarray(leaf[row]).tobytes()
            digest.update(content)
    return ArraySource(inputs, labels, name=f"{name}-{digest.hexdigest()}")
