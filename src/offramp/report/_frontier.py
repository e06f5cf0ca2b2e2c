"""The points that a report lets its reader walk along, and the request that gets each."""

import math
import shlex
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from offramp.errors import BudgetError
from offramp.model._choose import CONFIDENCE
from offramp.model._evaluation import Measured
from offramp.model._guarantees import is_calibrated
from offramp.model._model import EarlyExitModel
from offramp.policy import Guarantee, OperatingPoint
from offramp.runtime._dial import Dial, same_decisions

__all__ = ["FrontierPoint", "ReachablePoint", "format_arguments", "format_options", "list_reachable_points"]

_POINTS = 24  # along the front: a slider of more is hard to stop at a point
_LOST = 0.3  # accuracy below the best: points that lose more are of no use, and would flatten the chart

DROPS = (0.05, 0.02, 0.01, 0.005)
"""Bounds on the loss whose guaranteed points are listed, loosest first."""

_DEFAULTS: dict[str, Any] = {"confidence": CONFIDENCE, "loss": "accuracy", "bound": "ltt"}  # of `EarlyExitModel.at`


@dataclass(frozen=True)
class ReachablePoint:
    """An operating point, and the request that gets it."""

    point: OperatingPoint
    """The point."""
    request: Mapping[str, Any]
    """Arguments of `EarlyExitModel.at`; empty if none gets the point."""
    guarantee: Guarantee | None = None
    """The guarantee that comes with the request."""


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
        return cls(measured, reachable.point.active, reachable.request, reachable.guarantee)


def list_reachable_points(model: EarlyExitModel, point: OperatingPoint) -> list[ReachablePoint]:
    """Return the chosen point, then others of its policy that a request gets: by cost, and with guarantees.

    Points that lose very much accuracy are left out, unless chosen.

    Args:
        model: The model.
        point: The chosen point.
    """
    policy = {} if point.policy == next(iter(model.points)) else {"policy": point.policy}
    dial = Dial(model.points[point.policy])
    reachable = [ReachablePoint(point, _find_request(point, dial, policy), point.guarantee)]
    for entry in _list_guaranteed_points(model, point.policy, policy):
        if not same_decisions(entry.point, point):
            reachable.append(entry)
        elif point.guarantee is None:  # chosen by its cost, but a guarantee exists
            reachable[0] = ReachablePoint(point, entry.request, entry.guarantee)
    best = dial.front[-1].tune_metrics["accuracy"]
    front = [other for other in dial.front if other.tune_metrics["accuracy"] >= best - _LOST]
    for index in sorted({round(step * (len(front) - 1) / (_POINTS - 1)) for step in range(_POINTS)}):
        if not any(same_decisions(front[index], entry.point) for entry in reachable):
            reachable.append(ReachablePoint(front[index], _find_request(front[index], dial, policy)))
    return reachable


def _find_request(point: OperatingPoint, dial: Dial, policy: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of `at` that get a point; empty if there are none."""
    guarantee = point.guarantee
    if guarantee is not None:
        values = {name: getattr(guarantee, name) for name in _DEFAULTS}
        named = {name: value for name, value in values.items() if value != _DEFAULTS[name]}
        return {"max_drop": guarantee.at_most, **named, **policy}
    index = next((index for index, other in enumerate(dial.front) if same_decisions(point, other)), None)
    if index is None:
        return {}
    # The shortest number that is enough for this point and not for the next.
    for digits in range(2, 9):
        cost = math.ceil(round(dial.costs[index] * 10**digits, 6)) / 10**digits
        if dial.pick_by_cost(cost) is dial.front[index]:
            return {"cost": cost, **policy}
    return {}


def _list_guaranteed_points(model: EarlyExitModel, policy: str, arguments: Mapping[str, Any]) -> list[ReachablePoint]:
    """Return the points of a policy with guarantees, each with its tightest.

    Args:
        model: The model.
        policy: Name of the policy.
        arguments: The policy as arguments of `at`; empty if it is the default.
    """
    points: Sequence[OperatingPoint] = model.points[policy]
    loss = next((name for name in (_DEFAULTS["loss"], "disagreement") if is_calibrated(points, name)), None)
    entries: list[ReachablePoint] = []
    if loss is None:
        return entries
    for drop in DROPS:
        request = {"max_drop": drop, **({} if loss == _DEFAULTS["loss"] else {"loss": loss}), **arguments}
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of a backend for which nothing is guaranteed: then there is none
                point = model.at(**request).point
        except BudgetError:
            break  # a tighter bound needs more samples still
        if point.guarantee is None:
            break
        entries = [entry for entry in entries if not same_decisions(entry.point, point)]
        entries.append(ReachablePoint(point, request, point.guarantee))
    return entries


def format_options(request: Mapping[str, Any]) -> str:
    """Return the options of a command for a request; empty if there are none.

    Example:
        >>> format_options({"max_drop": 0.01, "policy": "gates"})
        '--max-drop 0.01 --policy gates'
    """
    if "bound" in request:  # the command line knows one bound
        return ""
    return " ".join(f"--{name.replace('_', '-')} {shlex.quote(_show(value))}" for name, value in request.items())


def format_arguments(request: Mapping[str, Any]) -> str:
    """Return the arguments of `EarlyExitModel.at` for a request.

    Example:
        >>> format_arguments({"max_drop": 0.01, "policy": "gates"})
        "max_drop=0.01, policy='gates'"
    """
    return ", ".join(
        f"{name}={repr(value) if isinstance(value, str) else _show(value)}" for name, value in request.items()
    )


def _show(value: Any) -> str:
    return str(value) if isinstance(value, str) else f"{value:.8g}"
