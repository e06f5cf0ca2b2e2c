"""What is promised of an operating point, and what a promise is made from."""

from dataclasses import dataclass

from torch import Tensor

__all__ = ["Guarantee", "PointLosses"]


@dataclass(frozen=True)
class PointLosses:
    """What a point loses against the full network, in one sense of loss."""

    samples: Tensor
    """`N` losses of the calibrate split, in an order that says nothing of the samples; none: not calibrated."""
    tune_mean: float
    """Mean loss on the tune split, which decides the order in which points are tested."""
    tune_variance: float
    """Variance there, on [0, 1] and above 0."""


@dataclass(frozen=True)
class Guarantee:
    """A loss that a point does not exceed, on average over new samples, and how sure that is.

    Confidence speaks of the draw of the calibrate split: of a hundred that might have been drawn, at most so few would
    have led to a promise that is broken. Where most of them would have led to no promise at all, a larger share of the
    promises made may be broken. It says nothing of a single sample.

    Example:
        >>> print(Guarantee("accuracy", at_most=0.01, confidence=0.95, bound="ltt", samples=3000, measured=0.002))
        with 95 % confidence it loses at most 1 point of accuracy to the full network (0.2 lost on 3,000 calibrate
        samples)
    """

    loss: str
    """Which loss: `offramp.uncertainty.LOSSES`."""
    at_most: float
    """What is promised."""
    confidence: float
    """How sure."""
    bound: str
    """By which test or bound."""
    samples: int
    """Of the calibrate split."""
    measured: float
    """Mean loss on it."""
    assumes: str = (
        "samples to come are drawn as those of the calibrate split were, independently of each other; nothing was "
        "fitted, tuned or chosen on that split but this point, nor what to promise; the network is the one that was "
        "calibrated, in the same arithmetic"
    )
    """What the promise rests on."""

    def __str__(self) -> str:
        """One line to show."""
        unit = 1 if self.loss == "brier" else 100
        points, found = f"{unit * self.at_most:.3g}", f"{unit * self.measured:.3g}"
        what = {
            "accuracy": f"loses at most {points} point{'' if points == '1' else 's'} of accuracy to the full network",
            "brier": f"has a Brier score at most {points} above the full network's",
            "disagreement": f"answers at most {points} % of the samples otherwise than the full network",
        }[self.loss]
        sure = f"with {100 * self.confidence:.4g} % confidence"
        measured = found
        if self.loss == "accuracy":  # a loss below 0 is a gain, and reads as one
            measured = f"{found.removeprefix('-')} {'gained' if self.measured < 0 else 'lost'}"
        return f"{sure} it {what} ({measured} on {self.samples:,} calibrate samples)"
