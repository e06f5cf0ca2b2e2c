"""The points that a report lets its reader walk along, and the request that gets each."""

import math
import shlex
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from offramp.errors import BudgetError
from offramp.model._evaluation import Measured
from offramp.model._guarantees import is_calibrated
from offramp.model._model import EarlyExitModel
from offramp.policy import Guarantee, OperatingPoint
from offramp.runtime._dial import Dial, same_decisions

__all__ = ["FrontierPoint", "ReachablePoint", "arguments", "options", "reachable_points"]

_POINTS = 24  # along the front: a slider of more is hard to stop at a point
_LOST = 0.3  # accuracy below the best: points that lose more are of no use, and would flatten the chart

DROPS = (0.05, 0.02, 0.01, 0.005)
"""Bounds on the loss whose guaranteed points are listed, loosest first."""


@dataclass(frozen=True)
class ReachablePoint:
    """An operating point, and the request that gets it."""

    point: OperatingPoint
    """The point."""
    request: Mapping[str, Any]
    """Arguments of `EarlyExitModel.at`; empty if none gets the point."""


@dataclass(frozen=True)
class FrontierPoint:
    """A point of the frontier, measured, and the request that gets it."""

    measured: Measured
    """Its figures on the samples of the report."""
    active: tuple[int, ...]
    """Its active exits."""
    request: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of `EarlyExitModel.at`; empty if none gets the point. A cost among them is that of the tune split."""
    guarantee: Guarantee | None = None
    """The guarantee that comes with the request."""

    @classmethod
    def of(cls, reachable: ReachablePoint, measured: Measured) -> "FrontierPoint":
        """Return a point with its figures."""
        point = reachable.point
        return cls(measured, point.active, reachable.request, point.guarantee)


def reachable_points(model: EarlyExitModel, point: OperatingPoint) -> list[ReachablePoint]:
    """Return the chosen point, then others of its policy that a request gets: by cost, and with guarantees.

    Points that lose very much accuracy are left out, unless chosen.

    Args:
        model: The model.
        point: The chosen point.
    """
    policy = {} if point.policy == next(iter(model.points)) else {"policy": point.policy}
    dial = Dial(model.points[point.policy])
    guaranteed = _guaranteed_points(model, point, policy)
    listed = [ReachablePoint(point, _request(point, dial, policy)), *guaranteed]
    best = dial.front[-1].tune_metrics["accuracy"]
    front = [other for other in dial.front if other.tune_metrics["accuracy"] >= best - _LOST]
    places = sorted({round(step * (len(front) - 1) / (_POINTS - 1)) for step in range(_POINTS)})
    for other in (front[place] for place in places):
        if not any(same_decisions(other, known.point) for known in listed):
            listed.append(ReachablePoint(other, _request(other, dial, policy)))
    return listed


def _request(point: OperatingPoint, dial: Dial, policy: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of `at` that get a point; empty if there are none."""
    promised = point.guarantee
    if promised is not None:
        defaults = {"confidence": 0.95, "loss": "accuracy", "bound": "ltt"}
        named = {name: getattr(promised, name) for name in defaults if getattr(promised, name) != defaults[name]}
        return {"max_drop": promised.at_most, **named, **policy}
    place = next((place for place, other in enumerate(dial.front) if same_decisions(point, other)), None)
    if place is None:
        return {}
    # The shortest number that is enough for this point and not for the next.
    for digits in range(2, 9):
        cost = math.ceil(round(dial.costs[place] * 10**digits, 6)) / 10**digits
        if dial.pick_by_cost(cost) is dial.front[place]:
            return {"cost": cost, **policy}
    return {}


def _guaranteed_points(model: EarlyExitModel, point: OperatingPoint, policy: Mapping[str, Any]) -> list[ReachablePoint]:
    """Return points with guarantees, each with its tightest; without the chosen point."""
    points: Sequence[OperatingPoint] = model.points[point.policy]
    loss = next((name for name in ("accuracy", "disagreement") if is_calibrated(points, name)), None)
    found: list[ReachablePoint] = []
    if loss is None:
        return found
    for drop in DROPS:
        request = {"max_drop": drop, **({} if loss == "accuracy" else {"loss": loss}), **policy}
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of a backend for which nothing is guaranteed: then there is none
                other = model.at(**request).point
        except BudgetError:
            break  # a tighter bound needs more samples still
        if other.guarantee is None:
            break
        found = [known for known in found if not same_decisions(known.point, other)]
        if not same_decisions(other, point):
            found.append(ReachablePoint(other, request))
    return found


def options(request: Mapping[str, Any]) -> str:
    """Return the options of a command for a request; empty if there are none.

    Example:
        >>> options({"max_drop": 0.01, "policy": "gates"})
        '--max-drop 0.01 --policy gates'
    """
    if "bound" in request:  # the command line knows one bound
        return ""
    return " ".join(f"--{name.replace('_', '-')} {shlex.quote(_show(value))}" for name, value in request.items())


def arguments(request: Mapping[str, Any]) -> str:
    """Return the arguments of `EarlyExitModel.at` for a request.

    Example:
        >>> arguments({"max_drop": 0.01, "policy": "gates"})
        "max_drop=0.01, policy='gates'"
    """
    return ", ".join(
        f"{name}={repr(value) if isinstance(value, str) else _show(value)}" for name, value in request.items()
    )


def _show(value: Any) -> str:
    return str(value) if isinstance(value, str) else f"{value:.8g}"
