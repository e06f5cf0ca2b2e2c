"""Is it worth it here? Exits fitted on few samples, every sample scored by a fit that has not seen it."""

import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from offramp.backbone import DEFAULT_POOLING, Backbone, Cascade
from offramp.cost import thinned
from offramp.errors import BudgetError, InputError
from offramp.features import BatchSource, StageView, StoreSource, extract, split_by_id
from offramp.frontier.fit import LabelledData, as_source, check_stages, fit_frontier, prepared_for
from offramp.frontier.frontier import Frontier
from offramp.frontier.guessing import check_full_network
from offramp.frontier.outcomes import outcomes
from offramp.frontier.simulate import simulate
from offramp.methods import DEFAULT, JointSettings
from offramp.progress import progress_bar
from offramp.uncertainty import paired_interval

__all__ = ["Estimate", "EstimatedPoint", "estimate"]

COSTS = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
"""Shares of the network's cost that are asked for."""

LEAST = 40
"""Samples below which nothing can be said: parts of a fold would have two or three."""


@dataclass(frozen=True)
class EstimatedPoint:
    """What a budget would bring, with 95 % intervals over the samples."""

    asked: float
    """The relative cost asked for; of a network by itself, its own."""
    cost: float
    """The relative cost that came of it."""
    change: float
    """Accuracy minus the full network's."""
    change_interval: tuple[float, float]
    """Bonett and Price's, of the paired difference. It knows nothing of what more samples to fit on would bring."""


@dataclass(frozen=True)
class Estimate:
    """What exits would bring to a network."""

    samples: int
    """How many samples it is based on."""
    num_classes: int
    """K: with few samples a class, exits are far from what they would be."""
    full_accuracy: float
    """Of the full network on them."""
    curves: dict[str, tuple[EstimatedPoint, ...]]
    """For the network's own exits, and for the cascade where there is one: a point for each cost that can be had."""
    alone: tuple[tuple[str, EstimatedPoint], ...]
    """Each earlier network of a cascade by itself, with no exits: what it would be to simply use that."""

    def cheapest(self, name: str, *, drop: float = 0.01, sure: bool = True) -> EstimatedPoint | None:
        """The cheapest point of a curve that loses at most `drop`: with 95 % confidence, or else by its mean.

        Args:
            name: Of the curve.
            drop: Accuracy that may be lost.
            sure: Whether the whole interval has to be above, and not only its middle.
        """
        good = [
            point
            for point in self.curves[name]
            if (point.change_interval[0] if sure else point.change) >= -drop and point.cost < 1
        ]
        return min(good, key=lambda point: point.cost, default=None)


def estimate(
    backbone: Backbone,
    data: LabelledData,
    *,
    folds: int = 4,
    settings: JointSettings = DEFAULT,
    pooling: str = DEFAULT_POOLING,
    exits: int | None = None,
    store: str | Path | None = None,
    anyway: bool = False,
    progress: bool = True,
) -> Estimate:
    """Try exits on a sample of data, before anything is decided.

    Samples are dealt into folds; for each, exits are fitted and tuned on the others and scored on it. With so few
    samples exits are worse than those of a real fit: take it for a lower bound, if the data is such as will come, and
    the network was not trained on it.

    Args:
        backbone: The network; of a cascade, the last network's own exits are tried as well.
        data: Some 1,000 labelled samples, as `fit` takes them.
        folds: Parts the samples are dealt into.
        settings: How to fit.
        pooling: Name of the pooling that exits see a stage through.
        exits: Exits of a network at most, evenly spread over its cost; one after every stage if left out.
        store: A directory that keeps the network's features, so that an interrupted run goes on from there.
        anyway: Whether to go on, with a warning, where the full network is no better than guessing on the samples.
        progress: Whether to show progress bars.

    Returns:
        What each budget would bring, and how sure that is.

    Raises:
        GuessingError: The full network is not more often right than the commonest class comes, at 95 %, one-sided.

    Example:
        >>> from offramp.backbone import CifarResNet
        >>> images, labels = torch.randn(60, 3, 32, 32), torch.arange(60) % 10
        >>> quick = JointSettings(cost_weights=(1.0,), warmup_epochs=1, epochs=1)
        >>> found = estimate(CifarResNet(8), (images, labels), settings=quick, anyway=True, progress=False)
        >>> found.samples, list(found.curves)
        (60, ['cifar-resnet-8'])
    """
    if not isinstance(backbone, Backbone):
        raise InputError(f"expected a backbone, got {type(backbone).__name__}; cut a network with offramp.split first")
    check_stages(backbone)
    source = as_source(data, "estimate", backbone.classes)
    if len(source) < LEAST:
        raise InputError(f"expected at least {LEAST} samples to estimate from, better 1,000; got {len(source)}")
    if not 2 <= folds <= len(source):
        raise InputError(f"expected 2 folds or more, and as many samples, got {folds}; exits are fitted on the others")
    first = source.read(0, 1).inputs
    if exits is not None:
        backbone = thinned(backbone, backbone.prepare(backbone.preprocessing(first)), exits=exits)
    with ExitStack() as stack:
        folder = Path(store) if store is not None else Path(stack.enter_context(tempfile.TemporaryDirectory()))
        kept = extract(
            backbone,
            source,
            folder / source.name,
            poolings=(pooling,),
            views=(backbone.preprocessing,),
            progress=progress,
        )
        check_full_network(
            StoreSource(kept, pooling=pooling), split="estimate", classes=backbone.classes, anyway=anyway
        )
        tried = _tried(backbone)
        scored: dict[str, list[_Scored]] = {name: [] for name in tried}
        with progress_bar("trying exits", folds * len(tried), unit="fits", show=progress) as advance:
            for fold in range(folds):
                rows = _dealt(kept.ids(), fold, folds, settings.seed)
                for name, (network, stages) in tried.items():
                    views = [_view(StoreSource(kept, pooling=pooling, rows=one), stages) for one in rows]
                    preparing = prepared_for(network, backbone, backbone.preprocessing)
                    frontier = fit_frontier(
                        network,
                        *views[:3],
                        example=network.prepare(preparing(first)),
                        preprocessing=preparing,
                        pooling=pooling,
                        settings=settings,
                    )
                    scored[name].append(_score(frontier, views[3]))
                    advance(1)
        full = torch.cat([one.full for one in scored[backbone.name]])
        return Estimate(
            samples=len(full),
            num_classes=backbone.num_classes,
            full_accuracy=float(full.mean()),
            curves={name: _curve(parts) for name, parts in scored.items()},
            alone=_alone(scored[backbone.name]),
        )


def _dealt(ids: npt.NDArray[np.int64], fold: int, folds: int, seed: int) -> list[npt.NDArray[np.int64]]:
    """Rows to fit, tune and calibrate on, and those of the fold itself; every row is in one fold."""
    start, stop = (len(ids) * bound // folds for bound in (fold, fold + 1))
    rest = len(ids) - (stop - start)
    tune = max(2, rest // 3)
    calibrate = max(1, tune // 4)
    return split_by_id(ids, (rest - tune, tune - calibrate, calibrate, stop - start), seed=seed, rotation=stop)


@dataclass(frozen=True)
class _Scored:
    """A fold's N test samples."""

    full: Tensor
    """`N` whether the full network is right."""
    hits: dict[float, Tensor]
    """`N` whether the answer is right, for each cost that can be had."""
    spent: dict[float, float]
    """Relative cost, for each of them."""
    alone: list[tuple[str, Tensor, float]]
    """Of each earlier network of a cascade its name, `N` whether it is right by itself, and its relative cost."""


def _tried(backbone: Backbone) -> dict[str, tuple[Backbone, Sequence[int]]]:
    """What exits are fitted to: the backbone, and the last network of a cascade by itself; with the stages of each."""
    tried: dict[str, tuple[Backbone, Sequence[int]]] = {}
    if isinstance(backbone, Cascade):
        tried[backbone.members[-1].name] = (backbone.members[-1], tuple(backbone.stages_of_members[-1]))
    return {**tried, backbone.name: (backbone, range(backbone.num_exits))}


def _view(source: BatchSource, stages: Sequence[int]) -> BatchSource:
    return source if len(stages) == len(source.widths) else StageView(source, stages)


def _score(frontier: Frontier, test: BatchSource) -> _Scored:
    seen = outcomes(frontier.bank, test, frontier.temperatures)
    points = {}
    for cost in COSTS:
        try:
            points[cost] = frontier.choose(cost=cost).point
        except BudgetError:
            continue
    table = frontier.costs[frontier.preferred].of(seen.sizes)
    rows = torch.arange(len(seen.labels))
    exits = simulate(list(points.values()), seen) if points else torch.empty(0, len(rows), dtype=torch.long)
    hits, spent = {}, {}
    for (cost, point), left in zip(points.items(), exits, strict=True):
        hits[cost] = seen.correct[point.classifier, rows, left].double()
        spent[cost] = float(table.relative_cost(left, point.active))
    alone = []
    for member, part in _earlier(frontier.backbone):
        batches = test.in_order(batch_size=1000)
        right = [batch.own_logits[part.stop - 1].argmax(1) == batch.labels for batch in batches]
        own = range(part.start + member.full_stages.start, part.stop)
        alone.append((member.name, torch.cat(right).double(), table.relative_cost_alone(own, len(rows))))
    return _Scored(seen.full_correct.double(), hits, spent, alone)


def _earlier(backbone: Backbone) -> list[tuple[Backbone, range]]:
    """The networks of a cascade before its last, with their stages."""
    if not isinstance(backbone, Cascade):
        return []
    return list(zip(backbone.members, backbone.stages_of_members, strict=True))[:-1]


def _curve(parts: Sequence[_Scored]) -> tuple[EstimatedPoint, ...]:
    """A point for each cost that every fold could meet."""
    shared = [cost for cost in COSTS if all(cost in part.hits for part in parts)]
    return tuple(_point(cost, [(part.hits[cost] - part.full, part.spent[cost]) for part in parts]) for cost in shared)


def _alone(parts: Sequence[_Scored]) -> tuple[tuple[str, EstimatedPoint], ...]:
    found = []
    for place, (name, _, _) in enumerate(parts[0].alone):
        right = [(part.alone[place][1], part.alone[place][2], part.full) for part in parts]
        point = _point(None, [(hits - full, cost) for hits, cost, full in right])
        found.append((name, point))
    return tuple(found)


def _point(asked: float | None, parts: Sequence[tuple[Tensor, float]]) -> EstimatedPoint:
    """From each fold's `N` gains and its relative cost."""
    gains = torch.cat([gain for gain, _ in parts])
    cost = sum(len(gain) * cost for gain, cost in parts) / len(gains)
    interval = paired_interval(int((gains > 0).sum()), int((gains < 0).sum()), len(gains))
    asked = cost if asked is None else asked
    return EstimatedPoint(asked, cost, float(gains.mean()), interval)
