"""Outcomes of made-up exits, each surer than the one before, of which everything is known."""

from typing import Any

import torch
from torch import Tensor

from offramp.cost import Costs
from offramp.cost._table import CostTable
from offramp.exits import LinearExits
from offramp.exits._gate import Gates
from offramp.functional import evidence
from offramp.functional._statistics import log_probabilities
from offramp.methods import FittedExits
from offramp.model._outcomes import Outcomes
from offramp.model._points import tuning_of
from offramp.policy import POLICIES, OperatingPoint, Tuning
from offramp.policy._observation import top_two_margin
from offramp.policy._threshold import threshold_candidates

EXITS, CLASSES = 5, 6


def answers(count: int, *, seed: int = 0, exits: int = EXITS) -> tuple[Tensor, Tensor]:
    """`N x L x K` logits and `N` labels: samples differ in how hard they are, and later exits see more."""
    draw = torch.Generator().manual_seed(seed)
    labels = torch.randint(CLASSES, (count,), generator=draw)
    ease = 0.3 + 3 * torch.rand(count, generator=draw)
    noise = torch.randn(count, exits, CLASSES, generator=draw).cumsum(1) / torch.arange(1, exits + 1)[:, None] ** 0.5
    signal = ease[:, None] * torch.linspace(0.6, 2.5, exits)
    return noise + signal[..., None] * torch.eye(CLASSES)[labels][:, None], labels


def seen(logits: Tensor, labels: Tensor, *, temperatures: Tensor | None = None) -> Outcomes:
    """Outcomes of one set of classifiers."""
    scaled = logits if temperatures is None else logits / temperatures[:, None]
    probabilities = scaled.softmax(-1)[None]
    confidence, predictions = probabilities.max(-1)
    return Outcomes(
        num_classes=logits.shape[-1],
        labels=labels,
        sizes=torch.ones(len(labels)),
        full=predictions[0, :, -1],
        predictions=predictions,
        confidence=confidence,
        margin=top_two_margin(probabilities),
        conformal_scores=1 - confidence,
        evidence=evidence(log_probabilities(logits))[None],
        probabilities=probabilities,
    )


def costs(exits: int = EXITS) -> Costs:
    """Every stage costs the same, exits nothing."""
    zero, stage = torch.zeros(exits, dtype=torch.float64), torch.ones(exits, dtype=torch.float64)
    return Costs((CostTable(stage, zero, zero, zero, full=stage.sum(), carries_state=False),))


def tuning(
    outcomes: Outcomes,
    *,
    active: tuple[int, ...] | None = None,
    weights: int = 2,
    seed: int = 0,
    priced: Costs | None = None,
    gated: bool = True,
) -> Tuning:
    """Return the view of the tune split that policies choose points on, with untrained gates."""
    exits = outcomes.predictions.shape[-1]
    torch.manual_seed(3)
    classifiers = LinearExits((2,) * exits, tuple(range(exits - 1)), outcomes.num_classes)
    fitted = FittedExits(classifiers, Gates(exits, stacked=weights) if gated else None)
    force = tuple(range(exits)) if active is None else active
    spent = costs(exits) if priced is None else priced
    return tuning_of(fitted, outcomes, torch.ones(1, exits), spent, classifier=0, active=force, seed=seed)


def by_threshold(outcomes: Outcomes, **options: Any) -> list[OperatingPoint]:
    """Points of one threshold, of exits whose temperature is 1."""
    exits = outcomes.predictions.shape[-1]
    return threshold_candidates(outcomes.confidence[0], torch.ones(exits), 0, **options)


def candidates(policy: str, given: Tuning) -> list[OperatingPoint]:
    """Return the operating points that a policy offers."""
    return POLICIES.get(policy).candidates(given)
