"""The default operating point, over many redrawn splits of pools of real outcomes.

Each redraw gives the tune split as many samples as `fit` would have; the points of the shipped policy and the order of
tests are chosen on them. As many more, drawn with replacement from the rest, are the calibrate split. The mean loss and
cost on the rest are the true ones: given the points, the calibrate samples are independent draws from the rest.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from offramp.cost import Costs
from offramp.methods import FittedExits
from offramp.model._choose import CONFIDENCE, MAX_DROP, default_point
from offramp.model._guarantees import losses_at, with_losses, with_tuned_losses
from offramp.model._outcomes import Outcomes, simulate
from offramp.model._points import thin, tuning_of
from offramp.policy import POLICIES, OperatingPoint
from offramp.policy._policy import OFFERED_POLICIES
from offramp.runtime import Dial
from offramp_bench.bars import Bar, say
from offramp_bench.guarantees.pools import load_pool

__all__ = ["SIZES", "Redraw", "default", "draw_once", "summary", "take_rows"]

SIZES = {"cifar10": 2000, "banking77": 1667}
"""Samples of the tune split, and of the calibrate split: half of 4,000 test images, and half of the train samples of
Banking77 that its network was not trained on."""

POLICY = OFFERED_POLICIES[0]
"""The policy that is used unless another is named."""

REDRAWS = 200

MAX_BROKEN = 1 - CONFIDENCE + 2 * math.sqrt(CONFIDENCE * (1 - CONFIDENCE) / REDRAWS)
"""Share of the guarantees that may be broken: 1 - confidence, and two standard errors."""

MAX_COST_RATIO = 1.3
"""Bar: mean ratio of the point's cost to that of the cheapest point that truly loses MAX_DROP at most."""

HALF = 0.005
"""Loss on the tune split that an earlier default allowed, without a guarantee."""


@dataclass(frozen=True)
class Redraw:
    """True figures of the points that are chosen from one tune and one calibrate split."""

    guaranteed: bool
    """True where the calibrate split allowed a guarantee."""
    drop: float
    """True loss of accuracy of the default point against the full network."""
    cost: float
    """True relative cost of the default point."""
    least: float
    """True relative cost of the cheapest point that truly loses MAX_DROP at most; NaN if none does."""
    unguaranteed_drop: float
    """True loss of the cheapest point at least as accurate as the full network on tune, without a guarantee."""
    unguaranteed_cost: float
    half_drop: float
    """True loss of the cheapest point that loses at most HALF on tune: the earlier default."""
    half_cost: float


def take_rows(outcomes: Outcomes, rows: Tensor) -> Outcomes:
    """Return the outcomes of some samples, in this order; samples may repeat.

    Args:
        outcomes: Outcomes of N samples.
        rows: `n` numbers of samples.
    """
    by_sample = {"labels", "sizes", "full"}
    columns = {field.name: getattr(outcomes, field.name) for field in fields(Outcomes) if field.name != "num_classes"}
    values: dict[str, Any] = {
        name: None if value is None else value[rows] if name in by_sample else value[:, rows]
        for name, value in columns.items()
    }
    return Outcomes(outcomes.num_classes, **values)


def draw_once(
    outcomes: Outcomes,
    fitted: FittedExits,
    temperatures: Tensor,
    costs: Costs,
    active: tuple[int, ...],
    *,
    size: int,
    generator: torch.Generator,
) -> Redraw:
    """Choose a point from one tune and one calibrate split.

    Args:
        outcomes: Outcomes of all samples.
        fitted: The exits.
        temperatures: `1 x L` temperatures of the fit.
        costs: Costs of the default policy.
        active: The active exits.
        size: Number of samples of each split.
        generator: Generator of the draw.
    """
    order = torch.randperm(len(outcomes.labels), generator=generator)
    tune, rest = take_rows(outcomes, order[:size]), take_rows(outcomes, order[size:])
    calibrate = take_rows(rest, torch.randint(len(rest.labels), (size,), generator=generator))
    view = tuning_of(fitted, tune, temperatures, costs, classifier=0, active=active)
    points = thin(POLICIES.get(POLICY).candidates(view), tune, costs)
    points = with_losses(with_tuned_losses(points, tune), calibrate)
    full = float(tune.full_correct.double().mean())
    chosen = default_point(points, full_accuracy=full, tune_samples=size).point
    drops, costs_spent = _true_figures(points, rest, costs)
    costs_within = costs_spent[drops <= MAX_DROP]
    dial = Dial(points)
    places = [
        _place(points, point) for point in (chosen, *(_cheapest_within(dial, full - lost) for lost in (0.0, HALF)))
    ]
    default_place, even, half = places
    return Redraw(
        guaranteed=chosen.guarantee is not None,
        drop=float(drops[default_place]),
        cost=float(costs_spent[default_place]),
        least=float(costs_within.min()) if len(costs_within) else math.nan,
        unguaranteed_drop=float(drops[even]),
        unguaranteed_cost=float(costs_spent[even]),
        half_drop=float(drops[half]),
        half_cost=float(costs_spent[half]),
    )


def summary(draws: Sequence[Redraw]) -> dict[str, Any]:
    """Return mean figures of redraws.

    Args:
        draws: The redraws, at least one.
    """

    def mean(values: Sequence[float]) -> float:
        return float(np.mean(values))

    return {
        "redraws": len(draws),
        "guaranteed": mean([draw.guaranteed for draw in draws]),
        "broken": mean([draw.guaranteed and draw.drop > MAX_DROP for draw in draws]),
        "lost": mean([draw.drop for draw in draws]),
        "lost at most, of 95 %": float(np.quantile([draw.drop for draw in draws], 0.95)),
        "cost": mean([draw.cost for draw in draws]),
        "cheapest that truly keeps one point": mean([draw.least for draw in draws]),
        "ratio": mean([draw.cost / draw.least for draw in draws]),
        "without a guarantee": {
            "lost": mean([draw.unguaranteed_drop for draw in draws]),
            "more than one point lost": mean([draw.unguaranteed_drop > MAX_DROP for draw in draws]),
            "cost": mean([draw.unguaranteed_cost for draw in draws]),
        },
        "within half a point on tune": {
            "lost": mean([draw.half_drop for draw in draws]),
            "more than one point lost": mean([draw.half_drop > MAX_DROP for draw in draws]),
            "cost": mean([draw.half_cost for draw in draws]),
        },
    }


def default() -> tuple[dict[str, Any], list[Bar]]:
    """Measure both pools."""
    figures = {name: measure(name) for name in SIZES}
    bars = []
    for name, of_pool in figures.items():
        bars.append(Bar(f"{name}: guarantees broken", of_pool["broken"], MAX_BROKEN))
        bars.append(
            Bar(f"{name}: cost over that of the cheapest that keeps one point", of_pool["ratio"], MAX_COST_RATIO)
        )
    return figures, bars


def measure(name: str) -> dict[str, Any]:
    """Measure one pool.

    Args:
        name: A key of SIZES.
    """
    outcomes, frontier, size = _outcomes(name), load_pool(name).frontier, SIZES[name]
    fitted = FittedExits(frontier.exits)
    shared = fitted, frontier.temperatures, frontier.costs[POLICY], frontier.points[POLICY][0].active
    generator, draws = torch.Generator().manual_seed(0), []
    for number in range(REDRAWS):
        draws.append(draw_once(outcomes, *shared, size=size, generator=generator))
        if number % 20 == 19:
            say(f"{name}: {number + 1} of {REDRAWS} redraws")
    return {"pool": len(outcomes.labels), "tune": size, "calibrate": size, **summary(draws)}


def _cheapest_within(dial: Dial, accuracy: float) -> OperatingPoint:
    return dial.pick_by_accuracy(accuracy) or dial.front[-1]


def _place(points: Sequence[OperatingPoint], point: OperatingPoint) -> int:
    return next(place for place, other in enumerate(points) if other.parameters is point.parameters)


def _true_figures(points: Sequence[OperatingPoint], outcomes: Outcomes, costs: Costs) -> tuple[Tensor, Tensor]:
    """Return `P` mean losses of accuracy, and `P` relative costs."""
    table, exits = costs.of(outcomes.sizes), simulate(points, outcomes)
    spent = [float(table.relative_cost(left, point.active)) for left, point in zip(exits, points, strict=True)]
    lost = losses_at(points, outcomes)["accuracy"].double().mean(1)
    return lost, torch.tensor(spent, dtype=torch.float64)


@cache
def _outcomes(name: str) -> Outcomes:
    """Return outcomes of a pool and its tune split, without the probabilities, which no point reads."""
    pool = load_pool(name)
    parts = [replace(part, probabilities=None) for part in (pool.tune, pool.pool)]
    first, second = ({field.name: getattr(part, field.name) for field in fields(Outcomes)} for part in parts)
    joined: dict[str, Any] = {
        key: value if value is None or key == "num_classes" else torch.cat([value, second[key]], _axis(key))
        for key, value in first.items()
    }
    return Outcomes(**joined)


def _axis(column: str) -> int:
    return 0 if column in ("labels", "sizes", "full") else 1
