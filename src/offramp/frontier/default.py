"""The operating point that is taken where none is asked for."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

from offramp.frontier.guarantee import Shortfall, is_calibrated, seek_promise
from offramp.policy import OperatingPoint
from offramp.runtime import Dial
from offramp.uncertainty import LOSSES

__all__ = ["CONFIDENCE", "MAX_DROP", "DefaultPoint", "default_point", "tune_interval"]

MAX_DROP, CONFIDENCE = 0.01, 0.95
"""The guarantee of the default: few notice one point of accuracy, and 95 % is what intervals have everywhere else."""


@dataclass(frozen=True)
class DefaultPoint:
    """The default's operating point, and what speaks against it."""

    point: OperatingPoint
    """The point, with its guarantee where there is one."""
    caution: str = ""
    """Why there is no guarantee, what was taken instead and what is known of it; empty where there is one."""


def default_point(points: Sequence[OperatingPoint], *, full_accuracy: float, tune_samples: int | None) -> DefaultPoint:
    """Choose an operating point where nothing is asked for.

    The cheapest point with a guarantee of MAX_DROP at CONFIDENCE: of accuracy, or of disagreement, which is no less,
    where the points were calibrated without labels. Where the calibrate split allows none that is cheaper than the
    full network, the cheapest point that is not below the full network on the tune split; where no point is not below
    it, the most accurate one.

    Args:
        points: Points of one policy.
        full_accuracy: The full network's accuracy on the tune split.
        tune_samples: Samples of the tune split; None where that is not known.

    Returns:
        The point, and what to say of it.
    """
    loss = next((name for name in ("accuracy", "disagreement") if is_calibrated(points, name)), None)
    reason = "the points were never calibrated on this network; offramp recalibrate does that"
    if loss is not None:
        attempt = seek_promise(points, max_drop=MAX_DROP, confidence=CONFIDENCE, loss=loss, bound="ltt")
        if not isinstance(attempt, Shortfall):
            return DefaultPoint(attempt)
        reason = attempt.finding
    dial = Dial(points)
    point = dial.reaching(full_accuracy)
    if point is None:
        point = dial.settings[-1]
        choice = "no point reaches the full network on the tune split; took the most accurate point"
    elif point.promised["cost"] >= 1:
        choice = (
            "no point that is cheaper than the full network reaches it on the tune split; took the cheapest that does, "
            f"which costs {point.promised['cost']:.3g} of it"
        )
    else:
        choice = "took the cheapest point that is not below the full network on the tune split"
    change = 100 * (point.promised["accuracy"] - full_accuracy)
    figures = f"{change:+.1f} points"
    if tune_samples is not None and tune_samples > 0 and "accuracy" in point.losses:
        low, high = tune_interval(point, tune_samples)
        figures += f", 95 % interval {100 * low:+.1f} to {100 * high:+.1f}"
    return DefaultPoint(point, f"no guarantee: {reason}; {choice} ({figures})")


def tune_interval(point: OperatingPoint, samples: int) -> tuple[float, float]:
    r"""Return the 95 % interval of a point's change of accuracy against the full network, from the tune split.

    The adjusted Wald interval for paired shares: $-\mu \pm z\, s / \sqrt n$, with the variance $s^2$ of the paired
    differences as if one more pair had been seen in which one of the two alone is right ([Agresti2005] add half a pair
    to each kind), so that it has a width where no pair differs. The point was chosen on the same samples, which the
    interval does not know. [Agresti2005] is Agresti and Min: Simple improved confidence intervals for comparing
    matched proportions, Statistics in Medicine, 2005.

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
