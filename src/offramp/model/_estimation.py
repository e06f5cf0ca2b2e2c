"""An estimate of what exits would bring, by cross-validation on few samples."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from offramp._notebook import html_table
from offramp._progress import progress_bar
from offramp.backbone import Cascade
from offramp.backbone._backbone import Backbone
from offramp.cost import keep_exits
from offramp.data import as_source
from offramp.data._labelled import LabelledData
from offramp.errors import BudgetError, InputError
from offramp.features import BatchSource, StoreSource, extract, split_by_id
from offramp.features._batch import StageView
from offramp.methods._settings import DEFAULT, JointSettings
from offramp.model._extraction import feature_folder
from offramp.model._fitting import fit_features
from offramp.model._guessing import check_full_network
from offramp.model._model import EarlyExitModel
from offramp.model._networks import Network, as_backbone, check_stages, preprocessing_of_part
from offramp.model._options import FittingOptions
from offramp.model._outcomes import compute_outcomes, simulate
from offramp.uncertainty._intervals import paired_interval

__all__ = ["Estimate", "EstimatedPoint", "estimate"]

COSTS = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
"""Relative costs to try."""

LEAST = 40
"""Smallest number of samples; with fewer, a fold would be tuned on two or three samples."""


@dataclass(frozen=True)
class EstimatedPoint:
    """Estimated figures of one budget, with 95 % intervals over the samples."""

    requested_cost: float
    """The relative cost requested; for a member by itself, its own."""
    cost: float
    """The relative cost measured."""
    change: float
    """Accuracy minus the full network's."""
    change_interval: tuple[float, float]
    """Bonett and Price's interval of the paired difference; it ignores the gain from more samples to fit on."""


@dataclass(frozen=True)
class Estimate:
    """Estimated figures of a network with exits."""

    samples: int
    """Number of samples it is based on."""
    num_classes: int
    """K: with few samples per class, real exits would be much better."""
    full_accuracy: float
    """Accuracy of the full network on the samples."""
    curves: dict[str, tuple[EstimatedPoint, ...]]
    """Points of the network's own exits and of the cascade if there is one: one per cost that can be met."""
    alone: tuple[tuple[str, EstimatedPoint], ...]
    """Figures of each earlier member of a cascade by itself, without exits."""

    def _repr_html_(self) -> str:
        rows = [
            (
                name,
                f"{point.cost:.3f}",
                f"{100 * point.change:+.2f}",
                "{:+.2f} to {:+.2f}".format(*(100 * end for end in point.change_interval)),
            )
            for name, point in self.rows()
        ]
        return html_table(self.title, ("", "cost", "change", "95 % interval"), rows)

    @property
    def title(self) -> str:
        """Title of the table."""
        return f"{self.samples:,} samples; the full network is right on {100 * self.full_accuracy:.1f} %"

    def rows(self) -> list[tuple[str, EstimatedPoint]]:
        """Return all points with their names: those of each curve, then each earlier member by itself."""
        exits = [(f"exits in {name}", point) for name, curve in self.curves.items() for point in curve]
        return exits + [(f"{name} by itself", point) for name, point in self.alone]

    def cheapest(self, name: str, *, drop: float = 0.01, with_confidence: bool = True) -> EstimatedPoint | None:
        """Return the cheapest point of a curve that loses at most `drop`, or None.

        Args:
            name: Name of the curve.
            drop: Accuracy that may be lost.
            with_confidence: True if the whole 95 % interval has to be above, not only the mean.
        """
        good = [
            point
            for point in self.curves[name]
            if (point.change_interval[0] if with_confidence else point.change) >= -drop and point.cost < 1
        ]
        return min(good, key=lambda point: point.cost, default=None)


def estimate(
    network: Network,
    data: LabelledData,
    *,
    folds: int = 4,
    settings: JointSettings = DEFAULT,
    fitting: FittingOptions = FittingOptions(),
    store: str | Path | None = None,
    anyway: bool = False,
    progress: bool = True,
) -> Estimate:
    """Estimate what exits would bring, by cross-validation on a small sample of data.

    For each fold, exits are fitted and tuned on the others and scored on it. With so few samples, exits are worse than
    those of a real fit: the estimate is a lower bound, if the data is like that in production and the network was not
    trained on it.

    Args:
        network: The network, as `fit` takes it; for a cascade, the last member's own exits are tried as well.
        data: Some 1,000 labelled samples, as `fit` takes them.
        folds: Number of folds.
        settings: Settings of the default method.
        fitting: Pooling and number of exits.
        store: Folder for the cached features, so that an interrupted run continues; a temporary one if left out.
        anyway: Continue with a warning where the full network is no better than guessing on the samples.
        progress: Show progress bars.

    Raises:
        GuessingError: If the full network is no better than the most frequent class, at 95 %, one-sided.

    Example:
        >>> from offramp.backbone import CifarResNet
        >>> images, labels = torch.randn(60, 3, 32, 32), torch.arange(60) % 10
        >>> quick = JointSettings(cost_weights=(1.0,), warmup_epochs=1, epochs=1)
        >>> result = estimate(CifarResNet(8), (images, labels), settings=quick, anyway=True, progress=False)
        >>> result.samples, list(result.curves)
        (60, ['cifar-resnet-8'])
    """
    backbone = as_backbone(network, lambda: as_source(data, "estimate").read(0, 2).inputs)
    check_stages(backbone)
    source = as_source(data, "estimate", backbone.classes)
    if len(source) < LEAST:
        raise InputError(expected=f"at least {LEAST} samples to estimate from, better 1,000", got=str(len(source)))
    if not 2 <= folds <= len(source):
        raise InputError(expected=f"2 to {len(source)} folds, at most one per sample", got=str(folds))
    first = source.read(0, 1).inputs
    pooling = fitting.pooling
    if fitting.max_exits is not None:
        example = backbone.prepare(backbone.preprocessing(first))
        backbone = keep_exits(backbone, example, exits=fitting.max_exits)
    with feature_folder(store) as folder:
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
        candidates = _candidates(backbone)
        scored: dict[str, list[_Scored]] = {name: [] for name in candidates}
        with progress_bar("trying exits", folds * len(candidates), unit="fits", show=progress) as advance:
            for fold in range(folds):
                rows = _fold_rows(kept.ids(), fold, folds, settings.seed)
                for name, (network, stages) in candidates.items():
                    views = [_view(StoreSource(kept, pooling=pooling, rows=part), stages) for part in rows]
                    preparing = preprocessing_of_part(network, backbone, backbone.preprocessing)
                    model = fit_features(
                        network,
                        *views[:3],
                        example=network.prepare(preparing(first)),
                        preprocessing=preparing,
                        pooling=pooling,
                        settings=settings,
                    )
                    scored[name].append(_score(model, views[3]))
                    advance(1)
        full = torch.cat([part.full for part in scored[backbone.name]])
        return Estimate(
            samples=len(full),
            num_classes=backbone.num_classes,
            full_accuracy=float(full.mean()),
            curves={name: _curve(parts) for name, parts in scored.items()},
            alone=_alone(scored[backbone.name]),
        )


def _fold_rows(ids: npt.NDArray[np.int64], fold: int, folds: int, seed: int) -> list[npt.NDArray[np.int64]]:
    """Return rows to fit, tune and calibrate on, and those of the fold itself; every row is in one fold."""
    start, stop = (len(ids) * bound // folds for bound in (fold, fold + 1))
    rest = len(ids) - (stop - start)
    tune = max(2, rest // 3)
    calibrate = max(1, tune // 4)
    return split_by_id(ids, (rest - tune, tune - calibrate, calibrate, stop - start), seed=seed, rotation=stop)


@dataclass(frozen=True)
class _Scored:
    """Scores on the N test samples of a fold."""

    full: Tensor
    """`N` ones where the full network is right."""
    hits: dict[float, Tensor]
    """`N` ones where the answer is right, per cost that can be met."""
    spent: dict[float, float]
    """Relative cost, for each of them."""
    alone: list[tuple[str, Tensor, float]]
    """Name, `N` ones where it is right by itself, and relative cost of each earlier member of a cascade."""


def _candidates(backbone: Backbone) -> dict[str, tuple[Backbone, Sequence[int]]]:
    """Return the backbone, and the last member of a cascade by itself, each with its stages."""
    tried: dict[str, tuple[Backbone, Sequence[int]]] = {}
    if isinstance(backbone, Cascade):
        tried[backbone.members[-1].name] = (backbone.members[-1], tuple(backbone.stages_of_members[-1]))
    return {**tried, backbone.name: (backbone, range(backbone.num_exits))}


def _view(source: BatchSource, stages: Sequence[int]) -> BatchSource:
    return source if len(stages) == len(source.widths) else StageView(source, stages)


def _score(model: EarlyExitModel, test: BatchSource) -> _Scored:
    outcomes = compute_outcomes(model.exits, test, model.temperatures)
    points = {}
    for cost in COSTS:
        try:
            points[cost] = model.at(cost=cost).point
        except BudgetError:
            continue
    table = model.costs[model.policy].of(outcomes.sizes)
    rows = torch.arange(len(outcomes.labels))
    exits = simulate(list(points.values()), outcomes) if points else torch.empty(0, len(rows), dtype=torch.long)
    hits, spent = {}, {}
    for (cost, point), left in zip(points.items(), exits, strict=True):
        hits[cost] = outcomes.correct[point.classifier, rows, left].double()
        spent[cost] = float(table.relative_cost(left, point.active))
    alone = []
    for member, part in _earlier(model.backbone):
        batches = test.in_order(batch_size=1000)
        right = [batch.own_logits[part.stop - 1].argmax(1) == batch.labels for batch in batches]
        own = range(part.start + member.full_stages.start, part.stop)
        alone.append((member.name, torch.cat(right).double(), table.relative_cost_alone(own, len(rows))))
    return _Scored(outcomes.full_correct.double(), hits, spent, alone)


def _earlier(backbone: Backbone) -> list[tuple[Backbone, range]]:
    """Return the members of a cascade before its last, with their stages."""
    if not isinstance(backbone, Cascade):
        return []
    return list(zip(backbone.members, backbone.stages_of_members, strict=True))[:-1]


def _curve(parts: Sequence[_Scored]) -> tuple[EstimatedPoint, ...]:
    """Return one point per cost that every fold could meet."""
    shared = [cost for cost in COSTS if all(cost in part.hits for part in parts)]
    return tuple(_point(cost, [(part.hits[cost] - part.full, part.spent[cost]) for part in parts]) for cost in shared)


def _alone(parts: Sequence[_Scored]) -> tuple[tuple[str, EstimatedPoint], ...]:
    points = []
    for place, (name, _, _) in enumerate(parts[0].alone):
        right = [(part.alone[place][1], part.alone[place][2], part.full) for part in parts]
        point = _point(None, [(hits - full, cost) for hits, cost, full in right])
        points.append((name, point))
    return tuple(points)


def _point(requested: float | None, parts: Sequence[tuple[Tensor, float]]) -> EstimatedPoint:
    """Return a point from each fold's `N` gains and its relative cost."""
    gains = torch.cat([gain for gain, _ in parts])
    cost = sum(len(gain) * cost for gain, cost in parts) / len(gains)
    interval = paired_interval(int((gains > 0).sum()), int((gains < 0).sum()), len(gains))
    requested = cost if requested is None else requested
    return EstimatedPoint(requested, cost, float(gains.mean()), interval)
