"""Two networks with exits on the same samples."""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from offramp.backbone import Backbone
from offramp.cost import count_backbone
from offramp.errors import InputError
from offramp.features import BatchSource
from offramp.features.splits import find_overlap
from offramp.features.without import WithoutIds
from offramp.frontier.frontier import Frontier
from offramp.frontier.guarantee import unpromised
from offramp.frontier.simulate import simulate
from offramp.policy import POLICIES, OperatingPoint
from offramp.uncertainty import bootstrap_ratio_interval, paired_interval

__all__ = ["Comparison", "check_comparable", "compare", "on_backbone"]


@dataclass(frozen=True)
class Comparison:
    """What changes from one network with exits to another, with 95 % intervals over the samples."""

    samples: int
    """N."""
    accuracies: tuple[float, float]
    """Of each."""
    full_accuracies: tuple[float, float]
    """Of each one's network without exits."""
    relative_costs: tuple[float, float]
    """Of each, relative to its own network without exits."""
    gain: float
    """The second's accuracy minus the first's."""
    gain_interval: tuple[float, float]
    """Bonett and Price's, of the paired difference."""
    cost_ratio: float
    """What the second costs over what the first does: multiply-adds, or milliseconds of both."""
    cost_ratio_interval: tuple[float, float] | None
    """By bootstrap over the samples; None where there is one sample, which says nothing of others."""
    agreement: float
    """Share of the samples that both answer alike."""
    newly_wrong: float
    """Share of the samples that the first answers rightly and the second does not."""


def compare(
    first: tuple[Frontier, OperatingPoint, BatchSource],
    second: tuple[Frontier, OperatingPoint, BatchSource],
    *,
    seed: int = 0,
) -> Comparison:
    """Measure two frontiers, each at a point of its own, on the same samples.

    Args:
        first: A frontier, a point of it, and the samples' features under its network.
        second: The same of another.
        seed: Of the bootstrap.

    Raises:
        InputError: If the samples are not the same, in the same order, or their features are of another network.
        SplitError: If more than 1 % of them were used to make one of the frontiers; up to that they are left out.
    """
    check_comparable(first[0], second[0])
    ids = first[2].ids()
    if ids.tolist() != second[2].ids().tolist():
        raise InputError("expected the features of the same samples in the same order, got others; extract them again")
    used = {f"{name} of the first": sketch for name, sketch in first[0].splits.items()}
    used |= {f"{name} of the second": sketch for name, sketch in second[0].splits.items()}
    shared = ids[find_overlap(ids, used, name="test")]
    one, other = (
        _answers(frontier, point, WithoutIds(source, shared) if len(shared) else source, seed=seed)
        for frontier, point, source in (first, second)
    )
    gains = other.correct.double() - one.correct.double()
    generator = torch.Generator().manual_seed(seed)
    cheapest, dearest = bootstrap_ratio_interval(other.spent[:, None], one.spent[:, None], generator=generator)
    return Comparison(
        samples=len(gains),
        accuracies=(float(one.correct.double().mean()), float(other.correct.double().mean())),
        full_accuracies=(float(one.full.double().mean()), float(other.full.double().mean())),
        relative_costs=(one.relative_cost, other.relative_cost),
        gain=float(gains.mean()),
        gain_interval=paired_interval(int((gains > 0).sum()), int((gains < 0).sum()), len(gains)),
        cost_ratio=float(other.spent.sum() / one.spent.sum()),
        cost_ratio_interval=(float(cheapest), float(dearest)) if len(gains) > 1 else None,
        agreement=float((one.labels == other.labels).double().mean()),
        newly_wrong=float((one.correct & ~other.correct).double().mean()),
    )


def check_comparable(first: Frontier, second: Frontier) -> None:
    """Refuse frontiers that do not answer the same question."""
    counts = first.backbone.num_classes, second.backbone.num_classes
    if counts[0] != counts[1]:
        raise InputError(f"expected two frontiers of the same classes, got {counts[0]} and {counts[1]} classes")
    if (first.full_ms is None) != (second.full_ms is None):
        raise InputError(
            "expected two frontiers with costs of one kind, got milliseconds of one and Mul-Adds of the other; fit the "
            "second as the first, with latency or without"
        )
    if first.classes and second.classes and first.classes != second.classes:
        one, other = next(pair for pair in zip(first.classes, second.classes, strict=True) if pair[0] != pair[1])
        raise InputError(
            f"expected two frontiers of the same classes in the same order, got '{one}' in one where the other has "
            f"'{other}'; fit the second with its classes in the order of the first"
        )


def on_backbone(frontier: Frontier, backbone: Backbone, inputs: Any) -> Frontier:
    """The frontier's exits on another network of the same shape: its own after an update.

    Costs are those of the updated network; milliseconds remain, as its shape is the same. Temperatures and thresholds
    remain those of the network they were fitted for. Promises do not: the updated network was never calibrated, and
    `recalibrated` makes new ones. Inputs are prepared as the updated network says, unless the exits were fitted with a
    preparation that was not the network's own.

    Args:
        frontier: Whose exits.
        backbone: The updated network.
        inputs: A raw sample or more, to count costs on where they are Mul-Adds.
    """
    ours = (frontier.backbone.num_exits, frontier.backbone.num_classes, frontier.backbone.own_heads)
    theirs = (backbone.num_exits, backbone.num_classes, backbone.own_heads)
    if ours != theirs:
        raise InputError(
            f"expected a network of {ours[0]} stages and {ours[1]} classes with heads of its own after stages "
            f"{ours[2]}, as '{frontier.backbone.name}' has, got {theirs[0]}, {theirs[1]} and {theirs[2]}; fit exits "
            "for it"
        )
    own = frontier.preprocessing == frontier.backbone.preprocessing
    preprocessing = backbone.preprocessing if own else frontier.preprocessing
    costs = frontier.costs
    if frontier.full_ms is None:
        prepared = preprocessing(inputs)
        with backbone.explaining(prepared):
            counted = count_backbone(backbone, backbone.prepare(prepared), frontier.pooling)
        costs = {policy: counted.price(frontier.bank, POLICIES.get(policy)) for policy in frontier.costs}
    points = {policy: list(map(unpromised, listed)) for policy, listed in frontier.points.items()}
    return replace(frontier, backbone=backbone, preprocessing=preprocessing, costs=costs, points=points, embedded=False)


@dataclass(frozen=True)
class _Answers:
    labels: Tensor
    correct: Tensor
    full: Tensor
    spent: Tensor
    relative_cost: float


def _answers(frontier: Frontier, point: OperatingPoint, source: BatchSource, *, seed: int) -> _Answers:
    if source.widths != frontier.bank.widths:
        raise InputError(
            f"expected features of {frontier.bank.widths} numbers a stage, got {source.widths}; another pooling, or "
            "another network: fit exits for it"
        )
    (point,), seen = frontier.outcomes_at([point], source)
    exits = simulate([point], seen, seed=seed)[0]
    labels = seen.predictions[point.classifier, torch.arange(len(exits)), exits]
    table = frontier.costs[point.policy].of(seen.sizes)
    spent = table.spent(exits, point.active).double()
    cost = float(table.relative_cost(exits, point.active))
    return _Answers(labels, labels == seen.labels, seen.full_correct, spent, cost)
