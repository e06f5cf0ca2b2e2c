"""Two early-exit models on the same samples."""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from offramp.backbone._backbone import Backbone
from offramp.cost import count_backbone
from offramp.cost._unit import MUL_ADDS
from offramp.errors import InputError
from offramp.features import BatchSource
from offramp.features._batch import FilteredSource
from offramp.features._splits import find_overlap
from offramp.model._backends import refuse_tuned
from offramp.model._choose import Request
from offramp.model._guarantees import without_guarantee
from offramp.model._model import EarlyExitModel
from offramp.model._outcomes import simulate
from offramp.policy import POLICIES
from offramp.uncertainty._intervals import bootstrap_ratio_interval, paired_interval

__all__ = ["Comparison", "check_comparable", "compare_models", "on_backbone"]


@dataclass(frozen=True)
class Comparison:
    """Differences between two early-exit models, with 95 % intervals over the samples."""

    samples: int
    """Number of samples."""
    accuracies: tuple[float, float]
    """Accuracy of each model."""
    full_accuracies: tuple[float, float]
    """Accuracy of each model's full network."""
    relative_costs: tuple[float, float]
    """Cost of each model, relative to its own full network."""
    gain: float
    """Accuracy of the second minus that of the first."""
    gain_interval: tuple[float, float]
    """Bonett and Price's interval of the paired difference."""
    cost_ratio: float
    """Cost of the second over that of the first: multiply-adds, or milliseconds of both."""
    cost_ratio_interval: tuple[float, float] | None
    """Bootstrap interval over the samples; None if there is only one sample."""
    agreement: float
    """Share of the samples with the same answer."""
    newly_wrong: float
    """Share of the samples that the first answers rightly and the second does not."""


def compare_models(
    first: tuple[EarlyExitModel, BatchSource], second: tuple[EarlyExitModel, BatchSource], *, seed: int = 0
) -> Comparison:
    """Measure two models, each at its current point, on the same samples.

    Args:
        first: A model, and the samples' features under its network.
        second: The same of another.
        seed: Seed of the bootstrap.

    Raises:
        InputError: If the samples are not the same, in the same order, or their features are of another network.
        SplitError: If more than 1 % of them were used to fit one of the models; fewer are left out.
    """
    check_comparable(first[0], second[0])
    ids = first[1].ids()
    if ids.tolist() != second[1].ids().tolist():
        raise InputError(
            expected="features of the same samples in the same order",
            got="features with other sample ids",
            hint="extract both from the same data",
        )
    used = {f"{name} of the first": sketch for name, sketch in first[0].splits.items()}
    used |= {f"{name} of the second": sketch for name, sketch in second[0].splits.items()}
    shared = ids[find_overlap(ids, used, name="test")]
    a, b = (
        _run(model, FilteredSource(source, shared) if len(shared) else source, seed=seed)
        for model, source in (first, second)
    )
    gains = b.correct.double() - a.correct.double()
    generator = torch.Generator().manual_seed(seed)
    low, high = bootstrap_ratio_interval(b.spent[:, None], a.spent[:, None], generator=generator)
    return Comparison(
        samples=len(gains),
        accuracies=(float(a.correct.double().mean()), float(b.correct.double().mean())),
        full_accuracies=(float(a.full.double().mean()), float(b.full.double().mean())),
        relative_costs=(a.relative_cost, b.relative_cost),
        gain=float(gains.mean()),
        gain_interval=paired_interval(int((gains > 0).sum()), int((gains < 0).sum()), len(gains)),
        cost_ratio=float(b.spent.sum() / a.spent.sum()),
        cost_ratio_interval=(float(low), float(high)) if len(gains) > 1 else None,
        agreement=float((a.labels == b.labels).double().mean()),
        newly_wrong=float((a.correct & ~b.correct).double().mean()),
    )


def check_comparable(first: EarlyExitModel, second: EarlyExitModel) -> None:
    """Refuse models that have other classes or other units of cost."""
    counts = first.backbone.num_classes, second.backbone.num_classes
    if counts[0] != counts[1]:
        raise InputError(expected="two models of the same classes", got=f"{counts[0]} and {counts[1]} classes")
    if first.unit.name != second.unit.name:
        raise InputError(
            expected="two models with costs in one unit",
            got=f"{first.unit.name} and {second.unit.name}",
            hint="for times, call with_latency(table) on both",
        )
    if first.classes and second.classes and first.classes != second.classes:
        differing = (pair for pair in zip(first.classes, second.classes, strict=True) if pair[0] != pair[1])
        first_name, second_name = next(differing)
        raise InputError(
            expected="two models of the same classes in the same order",
            got=f"'{first_name}' in one where the other has '{second_name}'",
            hint="fit the second with its classes in the order of the first",
        )


def on_backbone(model: EarlyExitModel, backbone: Backbone, inputs: Any) -> EarlyExitModel:
    """Return a model's exits on another network of the same shape, such as its own after an update.

    Costs are those of the updated network; milliseconds remain, as its shape is the same. Temperatures and thresholds
    remain those of the network they were fitted for. Guarantees do not: the updated network was never calibrated;
    `recalibrate` does that. Inputs are prepared as the updated network says, unless the exits were fitted with a
    preprocessing that was not the network's own.

    Args:
        model: The model.
        backbone: The updated network.
        inputs: At least one raw sample, to count costs on where they are Mul-Adds.
    """
    refuse_tuned(model, hint="give the model as it was before with_backend")
    shape = (model.backbone.num_exits, model.backbone.num_classes, model.backbone.own_heads)
    other_shape = (backbone.num_exits, backbone.num_classes, backbone.own_heads)
    if shape != other_shape:
        raise InputError(
            expected=f"a network of {shape[0]} stages and {shape[1]} classes with heads of its own after stages "
            f"{shape[2]}, as '{model.backbone.name}' has",
            got=f"{other_shape[0]}, {other_shape[1]} and {other_shape[2]}",
            hint="fit exits for this network with offramp.fit",
        )
    own = model.preprocessing == model.backbone.preprocessing
    preprocessing = backbone.preprocessing if own else model.preprocessing
    costs = model.costs
    if model.unit.name == MUL_ADDS:
        prepared = preprocessing(inputs)
        with backbone.explain_errors(prepared):
            counted = count_backbone(backbone, backbone.prepare(prepared), model.pooling)
        costs = {policy: counted.price(model.exits, POLICIES.get(policy)) for policy in model.costs}
    return replace(
        model,
        backbone=backbone,
        preprocessing=preprocessing,
        costs=costs,
        points={policy: list(map(without_guarantee, points)) for policy, points in model.points.items()},
        embedded=False,
        backend=None,
        compaction=None,
        request=Request(),
        chosen=None,
    )


@dataclass(frozen=True)
class _Run:
    """Answers of a model on N samples."""

    labels: Tensor
    correct: Tensor
    full: Tensor
    spent: Tensor
    relative_cost: float


def _run(model: EarlyExitModel, source: BatchSource, *, seed: int) -> _Run:
    if source.widths != model.exits.widths:
        raise InputError(
            expected=f"features of {model.exits.widths} numbers per stage",
            got=f"{source.widths}, of another pooling or another network",
            hint="fit exits for this network with offramp.fit",
        )
    (point,), answers = model.outcomes_at([model.point], source)
    exits = simulate([point], answers, seed=seed)[0]
    labels = answers.predictions[point.classifier, torch.arange(len(exits)), exits]
    table = model.costs[point.policy].of(answers.sizes)
    spent = table.spent(exits, point.active).double()
    cost = float(table.relative_cost(exits, point.active))
    return _Run(labels, labels == answers.labels, answers.full_correct, spent, cost)
