"""Accuracy of exits in two numbers, for the parts that vary the data."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from offramp.cost._table import Prices
from offramp.exits import ExitSet
from offramp.features import BatchSource
from offramp.model._outcomes import compute_outcomes, simulate, tune_temperatures
from offramp.model._points import thin
from offramp.policy import POLICIES
from offramp.policy._threshold import threshold_candidates

__all__ = ["HALF", "Accuracy", "accuracies_at", "accuracy_of"]

Floats = npt.NDArray[np.float64]

GRID = 65
"""Costs at which accuracies are averaged."""

HALF = 0.5
"""The relative cost at which accuracies are read."""


@dataclass(frozen=True)
class Accuracy:
    """Accuracy of exits on the test split, with a confidence threshold that is tuned on other samples."""

    at_half: float
    """Accuracy at half the cost of the full network."""
    area: float
    """Mean accuracy over costs from that of the first exit to that of the full network."""
    full: float
    """Accuracy of the full network."""


def accuracy_of(exits: ExitSet, tune: BatchSource, test: BatchSource, prices: Prices) -> Accuracy:
    """Measure fitted exits.

    Args:
        exits: The exits.
        tune: Samples for temperatures and thresholds.
        test: Samples for the figures.
        prices: Costs of the network and its exits.
    """
    temperatures = tune_temperatures(exits, tune)
    tune_outcomes = compute_outcomes(exits, tune, temperatures)
    outcomes = compute_outcomes(exits, test, temperatures)
    costs = prices.price(exits, POLICIES.get("threshold"))
    points = thin(threshold_candidates(tune_outcomes.confidence[0], temperatures[0], 0), tune_outcomes, costs)
    table, rows = costs.of(outcomes.sizes), torch.arange(len(outcomes.labels))
    left_at = simulate(points, outcomes)
    spent = [float(table.relative_cost(left, point.active)) for point, left in zip(points, left_at, strict=True)]
    right = [float(outcomes.correct[0, rows, left].double().mean()) for left in left_at]
    full = float(outcomes.full_correct.double().mean())
    grid = np.linspace(min(spent), 1.0, GRID)
    accuracies = accuracies_at(np.array([*spent, 1.0]), np.array([*right, full]), np.array([HALF, *grid]))
    return Accuracy(float(accuracies[0]), float(accuracies[1:].mean()), full)


def accuracies_at(costs: Floats, accuracies: Floats, requested: Floats) -> Floats:
    """Return accuracies along a curve that is linear between its points, NaN below the first.

    Args:
        costs: `P` costs of the points, in any order.
        accuracies: `P` accuracies.
        requested: `G` costs.

    Example:
        >>> accuracies_at(np.array([0.6, 0.2]), np.array([0.9, 0.8]), np.array([0.1, 0.4, 0.7])).round(2).tolist()
        [nan, 0.85, 0.9]
    """
    order = np.argsort(costs, kind="stable")
    values = np.interp(requested, costs[order], accuracies[order])
    return np.where(requested < costs[order[0]], np.nan, values)
