"""Small networks on vectors, each seeing a part of what tells the classes apart: enough to cascade for real."""

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import offramp
from offramp.backbone import Cascade
from offramp.backbone._backbone import Backbone
from offramp.backbone._cascading import cascade
from offramp.features import ArraySource, StoreSource, extract
from offramp.model._model import EarlyExitModel
from offramp.model._outcomes import Outcomes, compute_outcomes, simulate

QUICK = replace(offramp.DEFAULT, warmup_epochs=1, epochs=1)
FEW = replace(QUICK, cost_weights=(0.1, 1.0))
K = 3
SEEN = {"first": range(0, 7), "second": range(5, 12), "blind": range(0)}
"""The inputs each network looks at: two of them share some, one looks at none."""

Data = tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]


def vectors(count: int, *, seed: int) -> Data:
    """Twelve numbers a sample, each telling a little of its class, some samples more than others."""
    draw = np.random.default_rng(seed)
    labels = draw.integers(0, K, count)
    centers = np.random.default_rng(99).normal(size=(K, 12))
    noise = draw.choice([0.6, 2.0], (count, 1)) * draw.normal(size=(count, 12))
    return (centers[labels] + noise).astype(np.float32), labels


def network(name: str, *, width: int, layers: int = 2, sees: str | None = None) -> Backbone:
    """Random layers on the inputs that `sees` says, and a head that regresses the classes on the last of them."""
    torch.manual_seed(width)
    stages = [nn.Sequential(nn.Linear(12 if layer == 0 else width, width), nn.Tanh()) for layer in range(layers)]
    hidden = [column not in SEEN[sees or name] for column in range(12)]
    head = nn.Linear(width, K)
    inputs, labels = vectors(600, seed=98)
    with torch.no_grad():
        stages[0][0].weight[:, hidden] = 0  # type: ignore[operator]
        features = nn.Sequential(*stages)(torch.tensor(inputs))
        targets = 6.0 * F.one_hot(torch.tensor(labels), K)
        penalty = 30 * torch.eye(width)
        head.weight.copy_(torch.linalg.solve(features.T @ features + penalty, features.T @ targets).T)
        head.bias.zero_()
    return Backbone(name, stages, {layers - 1: head}, num_classes=K)


def pair() -> Cascade:
    """A cheap network before a dear one that sees other inputs: together they know more than either."""
    return cascade(network("first", width=24), network("second", width=400, layers=3))


def fit(backbone: Backbone) -> EarlyExitModel:
    return offramp.fit(backbone, vectors(500, seed=1), vectors(400, seed=2), settings=QUICK, progress=False)


def cached(frontier: EarlyExitModel, data: Any, folder: Any) -> StoreSource:
    """Other samples as the frontier's backbone sees them, in full precision."""
    source = ArraySource(*data, name="test")
    store = extract(
        frontier.backbone,
        source,
        folder,
        poolings=(frontier.pooling.name,),
        views=(frontier.preprocessing,),
        dtype=torch.float32,
        progress=False,
    )
    return StoreSource(store, pooling=frontier.pooling.name)


def check_predictions(frontier: EarlyExitModel, data: Any, folder: Any, *, costs: tuple[float, ...]) -> None:
    """Hold what the network says when it runs against what was simulated: exits, probabilities and costs."""
    inputs, labels = data
    source = cached(frontier, data, folder)
    seen = compute_outcomes(frontier.exits, source, frontier.temperatures)
    for policy in frontier.points:
        for cost in costs:
            chosen = frontier.at(cost=cost, policy=policy)
            answer, exits = chosen.predict(inputs), simulate([chosen.point], seen)[0]
            same = answer.exits == exits
            assert (~same).sum() <= 1  # a sample on the very boundary may fall either way
            assert_answers(answer, seen, chosen.point.classifier, torch.as_tensor(labels), same)
            table = frontier.costs[policy].of(seen.sizes)
            expected = table.spent(answer.exits, chosen.point.active) / table.full
            torch.testing.assert_close(answer.relative_cost, expected)


def assert_answers(answer: offramp.Answer, seen: Outcomes, classifier: int, labels: Tensor, rows: Tensor) -> None:
    """Labels, their probability, and that of the true class are the simulated ones in these rows."""
    places = rows.nonzero().squeeze(1)
    exits = answer.exits[places]
    assert torch.equal(answer.labels[places], seen.predictions[classifier, places, exits])
    found = answer.probabilities[places]
    torch.testing.assert_close(found.amax(1), seen.confidence[classifier, places, exits], rtol=1e-3, atol=1e-4)
    true = found[torch.arange(len(places)), labels[places]]
    torch.testing.assert_close(true, 1 - seen.conformal_scores[classifier, places, exits], rtol=1e-3, atol=1e-4)
