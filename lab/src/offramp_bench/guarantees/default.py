"""The point that is taken unasked, over splits drawn again and again from pools of real outcomes.

Each redraw gives as many samples as `fit` would have to the tune split, which chooses the points of the shipped policy
anew and fixes the order of tests; as many more, drawn with replacement from the rest, are the calibrate split. What the
rest then loses and costs on average is the truth: given the points, the calibrate samples are independent draws of it.
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
from offramp_bench.guarantees.pools import pool

__all__ = ["SIZES", "Redraw", "default", "draw_once", "summary", "taken"]

SIZES = {"cifar10": 2000, "banking77": 1667}
"""Samples that tune, and as many that calibrate: half of 4,000 test images, and of the train rows of Banking77 that
its network has not seen."""

POLICY = OFFERED_POLICIES[0]
"""The policy that decides unless another is named."""

REDRAWS = 200

BROKEN = 1 - CONFIDENCE + 2 * math.sqrt(CONFIDENCE * (1 - CONFIDENCE) / REDRAWS)
"""Share of the guarantees that may be broken: what is left of the confidence, and two standard errors."""

DEARER = 1.3
"""Highest mean cost of the point, in costs of the cheapest point that truly loses no more."""

HALF = 0.005
"""Loss that the default before this one allowed on the tune split, with no guarantee."""


@dataclass(frozen=True)
class Redraw:
    """One tune and one calibrate split, and the true figures of the points taken."""

    guaranteed: bool
    """True where the calibrate split allowed a guarantee."""
    drop: float
    """Accuracy that the default's point truly loses to the full network."""
    cost: float
    """Its true relative cost."""
    least: float
    """That of the cheapest point that truly loses MAX_DROP at most; NaN if none does."""
    unguaranteed_drop: float
    """Loss of the cheapest point that is not below the full network on tune: the rule without a guarantee."""
    unguaranteed_cost: float
    half_drop: float
    """Loss of the cheapest point within HALF on tune: the default before this one."""
    half_cost: float


def taken(seen: Outcomes, rows: Tensor) -> Outcomes:
    """Outcomes of some samples, perhaps more than once.

    Args:
        seen: Outcomes of N samples.
        rows: `n` numbers of samples.
    """
    by_sample = {"labels", "sizes", "full"}
    columns = {field.name: getattr(seen, field.name) for field in fields(Outcomes) if field.name != "num_classes"}
    chosen: dict[str, Any] = {
        name: None if value is None else value[rows] if name in by_sample else value[:, rows]
        for name, value in columns.items()
    }
    return Outcomes(seen.num_classes, **chosen)


def draw_once(
    seen: Outcomes,
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
        seen: Outcomes of all samples.
        fitted: The exits.
        temperatures: `1 x L` of the fit.
        costs: Costs of the default policy.
        active: The exits in force.
        size: Samples of each split.
        generator: Of the draw.
    """
    order = torch.randperm(len(seen.labels), generator=generator)
    tune, rest = taken(seen, order[:size]), taken(seen, order[size:])
    calibrate = taken(rest, torch.randint(len(rest.labels), (size,), generator=generator))
    view = tuning_of(fitted, tune, temperatures, costs, classifier=0, active=active)
    points = thin(POLICIES.get(POLICY).candidates(view), tune, costs)
    points = with_losses(with_tuned_losses(points, tune), calibrate)
    full = float(tune.full_correct.double().mean())
    chosen = default_point(points, full_accuracy=full, tune_samples=size).point
    drops, spent = _truth(points, rest, costs)
    kept = spent[drops <= MAX_DROP]
    dial = Dial(points)
    places = [_place(points, one) for one in (chosen, *(_reaching(dial, full - lost) for lost in (0.0, HALF)))]
    at, even, half = places
    return Redraw(
        guaranteed=chosen.guarantee is not None,
        drop=float(drops[at]),
        cost=float(spent[at]),
        least=float(kept.min()) if len(kept) else math.nan,
        unguaranteed_drop=float(drops[even]),
        unguaranteed_cost=float(spent[even]),
        half_drop=float(drops[half]),
        half_cost=float(spent[half]),
    )


def summary(draws: Sequence[Redraw]) -> dict[str, Any]:
    """Summarise redraws.

    Args:
        draws: At least one.
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
    """Both pools."""
    figures = {name: measure(name) for name in SIZES}
    bars = []
    for name, found in figures.items():
        bars.append(Bar(f"{name}: guarantees broken", found["broken"], BROKEN))
        bars.append(Bar(f"{name}: cost over that of the cheapest that keeps one point", found["ratio"], DEARER))
    return figures, bars


def measure(name: str) -> dict[str, Any]:
    """Figures of one pool.

    Args:
        name: Of SIZES.
    """
    seen, frontier, size = _outcomes(name), pool(name).frontier, SIZES[name]
    fitted = FittedExits(frontier.exits)
    given = fitted, frontier.temperatures, frontier.costs[POLICY], frontier.points[POLICY][0].active
    generator, draws = torch.Generator().manual_seed(0), []
    for number in range(REDRAWS):
        draws.append(draw_once(seen, *given, size=size, generator=generator))
        if number % 20 == 19:
            say(f"{name}: {number + 1} of {REDRAWS} redraws")
    return {"pool": len(seen.labels), "tune": size, "calibrate": size, **summary(draws)}


def _reaching(dial: Dial, accuracy: float) -> OperatingPoint:
    return dial.pick_by_accuracy(accuracy) or dial.front[-1]


def _place(points: Sequence[OperatingPoint], point: OperatingPoint) -> int:
    return next(place for place, other in enumerate(points) if other.parameters is point.parameters)


def _truth(points: Sequence[OperatingPoint], seen: Outcomes, costs: Costs) -> tuple[Tensor, Tensor]:
    """`P` mean losses of accuracy, and `P` relative costs."""
    table, exits = costs.of(seen.sizes), simulate(points, seen)
    spent = [float(table.relative_cost(left, point.active)) for left, point in zip(exits, points, strict=True)]
    lost = losses_at(points, seen)["accuracy"].double().mean(1)
    return lost, torch.tensor(spent, dtype=torch.float64)


@cache
def _outcomes(name: str) -> Outcomes:
    """Outcomes of all samples of a pool that the exits did not learn from, without what no point reads."""
    found = pool(name)
    parts = [replace(part, probabilities=None) for part in (found.tune, found.pool)]
    first, second = ({field.name: getattr(part, field.name) for field in fields(Outcomes)} for part in parts)
    both: dict[str, Any] = {
        key: value if value is None or key == "num_classes" else torch.cat([value, second[key]], _axis(key))
        for key, value in first.items()
    }
    return Outcomes(**both)


def _axis(column: str) -> int:
    return 0 if column in ("labels", "sizes", "full") else 1
