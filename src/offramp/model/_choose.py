"""The operating point that meets a request, and the default where nothing is requested."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from numbers import Real
from statistics import NormalDist
from typing import Any

from offramp._registry import unknown_name
from offramp.errors import BudgetError, InputError
from offramp.model._guarantees import Shortfall, guarantee, is_calibrated, seek_guarantee
from offramp.policy import OperatingPoint
from offramp.runtime import Dial
from offramp.uncertainty._risk import LOSSES, RiskBound

__all__ = ["CONFIDENCE", "MAX_DROP", "ChosenPoint", "Request", "choose_point", "default_point", "tune_interval"]

MAX_DROP, CONFIDENCE = 0.01, 0.95
"""Guarantee of the default point: few users notice one point of accuracy, and 95 % is the usual confidence."""

MOST_COST = 10.0
"""Largest relative cost that can be requested: a cascade may cost more than its last member, but hardly ten times."""


@dataclass(frozen=True)
class Request:
    """Conditions on an operating point: at most one of cost, accuracy, latency_ms and max_drop."""

    cost: float | None = None
    """Relative cost at most."""
    accuracy: float | None = None
    """Accuracy at least."""
    latency_ms: float | None = None
    """Milliseconds per sample at most."""
    max_drop: float | None = None
    """Loss against the full network at most, guaranteed."""
    confidence: float | None = None
    """Confidence of the guarantee; 0.95 if left out."""
    loss: str | None = None
    """Name of the loss; "accuracy" if left out."""
    bound: RiskBound | None = None
    """Test behind the guarantee; "ltt" if left out."""
    policy: str | None = None
    """Policy that decides; the model's first if left out."""

    def __post_init__(self) -> None:
        targets = self.targets
        if len(targets) > 1:
            raise InputError(
                expected="one of cost, accuracy, latency_ms and max_drop",
                got=" and ".join(targets),
                hint="pass only one of them",
            )
        for name, value in targets.items():
            if not isinstance(value, Real):
                raise InputError(
                    expected=f"{name} as a number, such as {name}=0.9", got=f"{type(value).__name__} {value!r}"
                )
            if not isinstance(value, int | float):  # float32 of numpy, which JSON does not hold
                object.__setattr__(self, name, float(value))
        for name in ("confidence", "loss", "bound"):
            value = getattr(self, name)
            if value is not None and self.max_drop is None:
                raise InputError(
                    expected=f"{name} with max_drop, whose guarantee it describes",
                    got=f"{name}={value!r} with {', '.join(targets) or 'nothing else'}",
                    hint="give max_drop=...",
                )
        if self.cost is not None and not 0 < self.cost <= MOST_COST:
            raise InputError(expected="cost as a share of the full network's cost, such as 0.6", got=str(self.cost))
        if self.accuracy is not None and self.accuracy > 1:
            raise InputError("accuracy", expected="a share of right answers, such as 0.93", got=self.accuracy)
        if self.latency_ms is not None and not 0 < self.latency_ms < float("inf"):
            raise InputError(expected="latency_ms in milliseconds above 0, such as 2.0", got=str(self.latency_ms))

    @property
    def targets(self) -> dict[str, Any]:
        """The conditions that are set, of those that exclude each other."""
        names = ("cost", "accuracy", "latency_ms", "max_drop")
        return {name: getattr(self, name) for name in names if getattr(self, name) is not None}

    def describe(self) -> dict[str, Any]:
        """Return the fields that are set, as JSON holds them."""
        return {name: value for name, value in asdict(self).items() if value is not None}


@dataclass(frozen=True)
class ChosenPoint:
    """An operating point that meets a request, and a caution."""

    point: OperatingPoint
    """The point, with its guarantee if there is one."""
    caution: str = ""
    """The reason why there is no guarantee, what was chosen instead, and its figures; empty if there is one."""


def choose_point(
    points: Mapping[str, Sequence[OperatingPoint]],
    request: Request,
    *,
    full_accuracy: float,
    full_ms: float | None = None,
    tune_samples: int | None = None,
) -> ChosenPoint:
    """Choose the operating point that meets a request.

    Args:
        points: Operating points per policy.
        request: Conditions; the default point if there are none.
        full_accuracy: Accuracy of the full network on the tune split.
        full_ms: Milliseconds of the full network per sample, if costs are times.
        tune_samples: Samples of the tune split; None if unknown.

    Raises:
        BudgetError: If no point meets the request; for a guarantee, with how many samples would do.
    """
    policy = next(iter(points)) if request.policy is None else request.policy
    if policy not in points:
        raise unknown_name("policy of this model", policy, points)
    candidates = points[policy]
    if request.max_drop is not None:
        confidence = CONFIDENCE if request.confidence is None else request.confidence
        loss, bound = request.loss or "accuracy", request.bound or "ltt"
        return ChosenPoint(
            guarantee(candidates, max_drop=request.max_drop, confidence=confidence, loss=loss, bound=bound)
        )
    if request.latency_ms is not None:
        if full_ms is None:
            raise InputError(
                expected="a model with measured times for latency_ms",
                got="one whose costs are Mul-Adds",
                hint="use model.with_latency(table), table = offramp.runtime.measure_latency(...)",
            )
        return ChosenPoint(Dial(candidates).pick_by_cost(request.latency_ms / full_ms, full=full_ms, unit=" ms"))
    if request.cost is not None:
        return ChosenPoint(Dial(candidates).pick_by_cost(request.cost))
    if request.accuracy is not None:
        dial = Dial(candidates)
        point = dial.pick_by_accuracy(request.accuracy)
        if point is None:
            best = dial.front[-1].tune_metrics["accuracy"]
            raise BudgetError(
                expected=f"an accuracy that a point reaches on the tune split, at most {best:.4f}",
                got=f"{request.accuracy:.4f}",
                hint=f"request at most {best:.4f}",
            )
        return ChosenPoint(point)
    return default_point(candidates, full_accuracy=full_accuracy, tune_samples=tune_samples)


def default_point(points: Sequence[OperatingPoint], *, full_accuracy: float, tune_samples: int | None) -> ChosenPoint:
    """Choose the operating point of a model for which nothing was requested.

    1. The cheapest point with a guarantee: at most MAX_DROP of accuracy is lost, with CONFIDENCE. If the points were
       calibrated without labels, the guarantee is on disagreement, which is at least the loss of accuracy.
    2. If no point cheaper than the full network has it, the cheapest that is not below the full network on tune.
    3. If there is none, the most accurate point.

    Args:
        points: Points of one policy.
        full_accuracy: Accuracy of the full network on the tune split.
        tune_samples: Samples of the tune split; None if unknown.
    """
    loss = next((name for name in ("accuracy", "disagreement") if is_calibrated(points, name)), None)
    reason = "the points were never calibrated on this network; offramp recalibrate does that"
    if loss is not None:
        attempt = seek_guarantee(points, max_drop=MAX_DROP, confidence=CONFIDENCE, loss=loss, bound="ltt")
        if not isinstance(attempt, Shortfall):
            return ChosenPoint(attempt)
        reason = attempt.finding
    dial = Dial(points)
    point = dial.pick_by_accuracy(full_accuracy)
    if point is None:
        point = dial.front[-1]
        choice = "no point reaches the full network on the tune split; took the most accurate point"
    elif point.tune_metrics["cost"] >= 1:
        choice = (
            "no point that is cheaper than the full network reaches it on the tune split; took the cheapest that does, "
            f"at relative cost {point.tune_metrics['cost']:.3g}"
        )
    else:
        choice = "took the cheapest point that is not below the full network on the tune split"
    change = 100 * (point.tune_metrics["accuracy"] - full_accuracy)
    figures = f"{change:+.1f} points"
    if tune_samples is not None and tune_samples > 0 and "accuracy" in point.losses:
        low, high = tune_interval(point, tune_samples)
        figures += f", 95 % interval {100 * low:+.1f} to {100 * high:+.1f}"
    return ChosenPoint(point, f"no guarantee: {reason}; {choice} ({figures})")


def tune_interval(point: OperatingPoint, samples: int) -> tuple[float, float]:
    r"""Return the 95 % interval of a point's change of accuracy against the full network, from the tune split.

    The adjusted Wald interval for paired shares: $-\mu \pm z\, s / \sqrt n$, with the variance $s^2$ of the paired
    differences as if one more pair had been observed in which one of the two alone is right ([Agresti2005] add half a
    pair to each kind), so that it has a width where no pair differs. It ignores that the point was chosen on the same
    samples. [Agresti2005] is Agresti and Min: Simple improved confidence intervals for comparing matched proportions,
    Statistics in Medicine, 2005.

    Args:
        point: A point that knows its loss of accuracy on the tune split.
        samples: n, samples of that split.

    Returns:
        Its ends, as shares.
    """
    loss, known = LOSSES["accuracy"], point.losses["accuracy"]
    deviation = (loss.high - loss.low) * (known.tune_variance / samples) ** 0.5
    half = NormalDist().inv_cdf(0.975) * deviation
    return max(-1.0, -known.tune_mean - half), min(1.0, -known.tune_mean + half)
