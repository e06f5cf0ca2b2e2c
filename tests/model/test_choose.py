"""One rule for every budget: the best tune accuracy within the cost, the cheapest of equals."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from offramp.backbone._backbone import Backbone
from offramp.cost import Costs
from offramp.cost._table import CostTable
from offramp.cost._unit import CostUnit
from offramp.errors import BudgetError, InputError
from offramp.exits import LinearExits
from offramp.model._model import EarlyExitModel
from offramp.policy import OperatingPoint
from offramp.pooling import POOLINGS
from offramp.preprocessing import Preprocessing
from offramp.runtime import Dial
from offramp.runtime._dial import same_decisions
from tests.cases import each

FULL_MS = 7.0

torch.manual_seed(0)
BACKBONE = Backbone("tiny", [nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 3)], {2: nn.Linear(3, 2)}, 2)
BANK = LinearExits((3, 3, 3), (0, 1), 2, stacked=3)
INPUTS = torch.randn(8, 3)


def costs() -> Costs:
    stage, zero = torch.ones(3, dtype=torch.float64), torch.zeros(3, dtype=torch.float64)
    return Costs((CostTable(stage, zero, zero, zero, full=stage.sum(), carries_state=False),))


def frontier_of(figures: list[tuple[float, float]], classifiers: list[int] | None = None) -> EarlyExitModel:
    """Points of one policy with these costs and accuracies on tune, each with a threshold of its own."""
    places = enumerate(sorted(zip(figures, classifiers or [0] * len(figures), strict=True)))
    points = [
        OperatingPoint(
            "threshold",
            {"threshold": torch.tensor(0.5 + 0.5 * place / len(figures))},
            (0, 1, 2),
            torch.ones(3),
            classifier,
            tune_metrics={"cost": cost, "accuracy": accuracy},
        )
        for place, ((cost, accuracy), classifier) in places
    ]
    return EarlyExitModel(
        backbone=BACKBONE,
        preprocessing=Preprocessing(),
        pooling=POOLINGS.get("mean"),
        exits=BANK,
        costs={"threshold": costs()},
        points={"threshold": points},
        temperatures=torch.ones(3, 3),
        full_accuracy=0.9,
        unit=CostUnit("ms", FULL_MS),
    )


def drawn(seed: int) -> tuple[EarlyExitModel, np.random.Generator]:
    """A random frontier: any number of points, costs and accuracies that are often equal, costs in single precision."""
    draw = np.random.default_rng(seed)
    count = int(draw.integers(1, 30))
    prices, accuracies = draw.uniform(0.05, 1.3, count), draw.uniform(0.5, 1, count)
    if seed % 2:
        prices = np.ceil(prices * 8) / 8
    if seed % 3:
        accuracies = accuracies.round(1)
    if seed % 5 == 0:
        prices = prices.astype(np.float32).astype(np.float64)
    classifiers = draw.integers(3, size=count).tolist() if seed % 7 == 0 else [0] * count
    return frontier_of(list(zip(prices.tolist(), accuracies.tolist(), strict=True)), classifiers), draw


def dominated(point: OperatingPoint, others: list[OperatingPoint]) -> bool:
    cost, accuracy = point.tune_metrics["cost"], point.tune_metrics["accuracy"]
    return any(
        (other.tune_metrics["cost"] <= cost and other.tune_metrics["accuracy"] > accuracy)
        or (other.tune_metrics["cost"] < cost and other.tune_metrics["accuracy"] >= accuracy)
        for other in others
    )


def asked_of(frontier: EarlyExitModel, draw: np.random.Generator) -> Iterator[float]:
    """Costs from the cheapest on, ascending: at random, and those of points, as they are and in single precision."""
    known = np.array([point.tune_metrics["cost"] for point in frontier.points["threshold"]])
    yield from sorted([*draw.uniform(known.min(), 1.5, 2), draw.choice(known), float(np.float32(draw.choice(known)))])


def same(one: EarlyExitModel, other: EarlyExitModel, budget: float) -> bool:
    first, second = one.predict(INPUTS, budget=budget), other.predict(INPUTS)
    return torch.equal(first.exits, second.exits) and torch.equal(first.probabilities, second.probabilities)


@pytest.mark.parametrize("count", [40, pytest.param(1000, marks=pytest.mark.long)])
def test_frontiers_drawn_at_random(count: int) -> None:
    for seed in range(count):
        frontier, draw = drawn(seed)
        points = list(frontier.points["threshold"])
        dial = Dial(points)
        fixed = frontier.at(cost=2.0)  # its dial is moved
        alike = {point.classifier for point in points} == {0}
        before = -1.0, -1.0
        for place, cost in enumerate(asked_of(frontier, draw)):
            network = frontier.at(cost=cost)
            point = network.point
            figures = point.tune_metrics["cost"], point.tune_metrics["accuracy"]
            # The best accuracy within the cost, never dominated, monotone in the cost.
            within = [one for one in points if one.tune_metrics["cost"] <= cost]
            assert figures[0] <= cost * (1 + 1e-6)
            assert figures[1] >= max((one.tune_metrics["accuracy"] for one in within), default=0.0)
            assert not dominated(point, points)
            assert figures[0] >= before[0]
            assert figures[1] >= before[1]
            before = figures
            # The dial, milliseconds and budgets agree.
            assert dial.pick_by_cost(cost) is point
            if alike:
                assert same_decisions(fixed.dial.pick_by_cost(cost), point)
                assert fixed.controller(cost).next_budget in dial.costs
            if place == seed % 4:
                assert frontier.at(latency_ms=cost * FULL_MS).point is point
                assert same_decisions(network.dial.pick_by_cost(cost), point)
                assert same(network, network, cost)
                if alike:
                    assert same(fixed, network, cost)


def test_the_figures_that_gave_it_away() -> None:
    frontier = frontier_of([(0.296, 0.9160), (0.507, 0.9154), (0.62, 0.92)])
    assert frontier.at(cost=0.3).point.tune_metrics == frontier.at(cost=0.6).point.tune_metrics
    assert frontier.at(cost=0.6).point.tune_metrics["cost"] == 0.296


@each(
    ("figures", "expected"),
    [
        ([(0.4, 0.8)], 0.4),
        ([(0.2, 0.8), (0.4, 0.8), (0.6, 0.8)], 0.2),
        ([(0.4, 0.7), (0.4, 0.9), (0.4, 0.8)], 0.4),
        ([(float(np.float32(0.7)), 0.9), (0.2, 0.8)], float(np.float32(0.7))),  # a little more than 0.7
    ],
)
def test_edges(figures: list[tuple[float, float]], expected: float) -> None:
    frontier = frontier_of(figures)
    chosen = frontier.at(cost=0.7)
    assert chosen.point.tune_metrics["cost"] == expected
    assert chosen.point.tune_metrics["accuracy"] == max(accuracy for _, accuracy in figures)
    assert same(chosen, chosen, 0.7)
    assert chosen.dial.cheapest == frontier.points["threshold"][0].tune_metrics["cost"]


def test_by_accuracy_no_dominated_point_either() -> None:
    frontier = frontier_of([(0.4, 0.7), (0.4, 0.9), (0.5, 0.8)])
    assert frontier.at(accuracy=0.65).point.tune_metrics == {"cost": 0.4, "accuracy": 0.9}


def test_classifiers_of_their_own() -> None:
    """A dial stays with the classifiers of the chosen point; at the cost it was chosen for, that is the best of all."""
    frontier = frontier_of([(0.2, 0.7), (0.4, 0.8), (0.6, 0.9)], [0, 1, 0])
    assert [point.tune_metrics["cost"] for point in frontier.at(cost=0.7).dial_points] == [0.2, 0.6]
    assert [point.tune_metrics["cost"] for point in frontier.at(cost=0.5).dial_points] == [0.4]
    for cost in (0.3, 0.5, 0.7):
        network = frontier.at(cost=cost)
        assert same(network, network, cost)


def test_mistakes_name_the_next_step() -> None:
    frontier = frontier_of([(0.4, 0.8)])
    with pytest.raises(BudgetError, match=r"expected 0\.4 or more, the cost of the cheapest point"):
        frontier.at(cost=0.3)
    with pytest.raises(BudgetError, match=r"raise the budget"):
        frontier.at(cost=0.5).predict(INPUTS, budget=0.3)
    with pytest.raises(InputError, match=r"got cost and accuracy; pass only one"):
        frontier.at(cost=0.5, accuracy=0.5)
    with pytest.raises(InputError, match=r"with nothing else; give max_drop="):
        frontier.at(confidence=0.9)
    with pytest.raises(InputError, match=r"with_latency\("):
        replace(frontier, unit=CostUnit()).at(latency_ms=3.0)
