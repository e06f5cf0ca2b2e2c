"""Frontiers whose exits say what a test wants them to: features are the exits' logits, and costs are round numbers."""

from dataclasses import replace

import torch
from torch import Tensor, nn

from offramp.backbone._backbone import Backbone
from offramp.backbone._cascading import cascade
from offramp.cost import Costs
from offramp.cost._table import CostTable
from offramp.exits import LinearExits
from offramp.features._batch import MemorySource
from offramp.model._model import EarlyExitModel
from offramp.model._outcomes import compute_outcomes
from offramp.model._points import thin
from offramp.policy import OperatingPoint
from offramp.policy._threshold import threshold_candidates
from offramp.pooling import POOLINGS
from offramp.report import find
from offramp.report._findings import Findings

STAGE, ANSWER, DECIDE = 10.0, 1.0, 0.5
"""Costs of a stage, of an exit's answer and of a decision in every example."""


def drawn(samples: int, exits: int, classes: int, *, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Logits `N x L x K` that get better from exit to exit, for some samples more than for others, and labels."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(classes, (samples,), generator=generator)
    told = torch.linspace(1.5, 4.5, exits)[:, None] * nn.functional.one_hot(labels, classes)[:, None]
    ease = torch.rand(samples, 1, 1, generator=generator) * 1.6
    return told * ease + torch.randn(samples, exits, classes, generator=generator), labels


def toy(logits: Tensor, labels: Tensor, *, members: tuple[int, ...] = ()) -> tuple[EarlyExitModel, MemorySource]:
    """A frontier whose exits answer with the logits given; the own heads too, the last of each member's stages."""
    _, exits, classes = logits.shape
    members = members or (exits,)
    heads = [sum(members[: index + 1]) - 1 for index in range(len(members))]
    backbones = [
        Backbone(
            f"net{index}", [nn.Identity() for _ in range(length)], {length - 1: nn.Identity()}, num_classes=classes
        )
        for index, length in enumerate(members)
    ]
    trained = tuple(stage for stage in range(exits) if stage not in heads)
    classifiers = LinearExits((classes,) * exits, trained, classes)
    with torch.no_grad():
        for stage in trained:
            classifiers.weights[str(stage)].copy_(torch.eye(classes)[:, None])
            classifiers.biases[str(stage)].zero_()
    source = MemorySource(logits.flatten(1), {head: logits[:, head] for head in heads}, labels, (classes,) * exits)
    decide = torch.full((exits,), DECIDE, dtype=torch.float64)
    decide[-1] = 0
    ones = torch.ones(exits, dtype=torch.float64)
    full = torch.tensor(members[-1] * STAGE + ANSWER, dtype=torch.float64)
    costs = Costs((CostTable(STAGE * ones, 0 * ones, ANSWER * ones, decide, full, carries_state=False),))
    temperatures = torch.ones(1, exits)
    seen = compute_outcomes(classifiers, source, temperatures)
    sets = {0.1: torch.full((exits,), 0.9), 0.05: torch.full((exits,), 0.99)}
    points = thin(threshold_candidates(seen.confidence[0], temperatures[0], 0), seen, costs)
    backbone = backbones[0] if len(backbones) == 1 else cascade(*backbones)
    frontier = EarlyExitModel(
        backbone=backbone,
        preprocessing=backbone.preprocessing,
        pooling=POOLINGS.get("auto"),
        exits=classifiers,
        costs={"threshold": costs},
        points={"threshold": [replace(point, conformal_thresholds=sets) for point in points]},
        temperatures=temperatures,
        full_accuracy=float(seen.full_correct.double().mean()),
    )
    return frontier, source


def with_gates(frontier: EarlyExitModel) -> EarlyExitModel:
    """The same with a second policy, whose gates look at confidence alone."""
    exits = frontier.backbone.num_exits
    parameters = {"weight": torch.tensor([[1.0, 0, 0, 0]]).repeat(exits, 1), "bias": torch.zeros(exits)}
    active = tuple(range(exits))
    points = [
        OperatingPoint("gates", {**parameters, "offset": offset}, active, torch.ones(exits))
        for offset in torch.linspace(-4, 4, 40)
    ]
    costs = frontier.costs["threshold"]
    return replace(frontier, points={**frontier.points, "gates": points}, costs={"threshold": costs, "gates": costs})


def at(frontier: EarlyExitModel, threshold: float, *, active: tuple[int, ...] | None = None) -> OperatingPoint:
    """The point of one threshold."""
    first = frontier.points["threshold"][0]
    active = first.active if active is None else active
    return replace(first, parameters={"threshold": torch.tensor(threshold)}, active=active)


def found(
    *, samples: int = 300, exits: int = 4, classes: int = 3, threshold: float = 0.8, names: tuple[str, ...] = ()
) -> Findings:
    """Findings of a drawn example."""
    frontier, source = toy(*drawn(samples, exits, classes))
    return find(frontier, source, point=at(frontier, threshold), classes=names, name="toy")
