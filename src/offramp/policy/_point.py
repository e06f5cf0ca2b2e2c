"""An operating point, and the guarantee that may come with it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import Tensor

from offramp.errors import InputError
from offramp.policy._policy import POLICIES, Policy

__all__ = ["Guarantee", "OperatingPoint", "PointLosses"]


@dataclass(frozen=True)
class PointLosses:
    """The losses of an operating point against the full network, for one kind of loss."""

    samples: Tensor
    """`N` losses on the calibrate split, in random order; empty if the point is not calibrated."""
    tune_mean: float
    """Mean loss on the tune split; it decides the order in which points are tested."""
    tune_variance: float
    """Variance of the losses on the tune split, scaled to [0, 1], above 0."""


@dataclass(frozen=True)
class Guarantee:
    """A bound on a point's mean loss over new samples, with a confidence.

    The confidence refers to the draw of the calibrate split: a split leads to a guarantee that does not hold with
    probability at most 1 - confidence. Splits that lead to no guarantee count as holding, so where most splits lead to
    none, a larger share of the guarantees given may fail. A guarantee says nothing about a single sample.

    Example:
        >>> print(Guarantee("accuracy", at_most=0.01, confidence=0.95, bound="ltt", samples=3000, measured=0.002))
        with 95 % confidence it loses at most 1 point of accuracy to the full network (0.2 lost on 3,000 calibrate
        samples)
    """

    loss: str
    """The kind of loss, a key of `offramp.uncertainty.LOSSES`."""
    at_most: float
    """The bound on the mean loss."""
    confidence: float
    """The confidence, between 0 and 1."""
    bound: str
    """The test or bound used: "ltt" or "wsr"."""
    samples: int
    """Number of samples in the calibrate split."""
    measured: float
    """Mean loss on the calibrate split."""
    assumes: str = (
        "samples to come are drawn as those of the calibrate split were, independently of each other; nothing was "
        "fitted, tuned or chosen on that split but this point, nor what to guarantee; the network is the one that was "
        "calibrated, in the same arithmetic"
    )
    """The assumptions that the guarantee rests on."""

    def __str__(self) -> str:
        """Return one line to show."""
        unit = 1 if self.loss == "brier" else 100
        limit, measured = f"{unit * self.at_most:.3g}", f"{unit * self.measured:.3g}"
        claim = {
            "accuracy": f"loses at most {limit} point{'' if limit == '1' else 's'} of accuracy to the full network",
            "brier": f"has a Brier score at most {limit} above the full network's",
            "disagreement": f"answers at most {limit} % of the samples otherwise than the full network",
        }[self.loss]
        if self.loss == "accuracy":  # a loss below 0 is a gain, and is printed as one
            measured = f"{measured.removeprefix('-')} {'gained' if self.measured < 0 else 'lost'}"
        if self.loss == "disagreement":
            measured = f"{measured} %"
        return (
            f"with {100 * self.confidence:.4g} % confidence it {claim} "
            f"({measured} on {self.samples:,} calibrate samples)"
        )


@dataclass(frozen=True)
class OperatingPoint:
    """A policy with its parameters, active exits, temperatures and prediction-set thresholds.

    Carries, costs, temperatures and conformal thresholds refer to the active exits alone, in the simulator and in the
    runtime.

    Example:
        >>> import torch
        >>> point = OperatingPoint("threshold", {"threshold": torch.tensor(0.9)}, (0, 2), torch.ones(3))
        >>> point.rule.name
        'threshold'
    """

    policy: str
    """Name of a registered policy."""
    parameters: Mapping[str, Tensor]
    """The policy's parameters: `L x ...` for those that differ between exits, else one number."""
    active: tuple[int, ...]
    """The active exits, ascending, 0-based, the final one last."""
    temperatures: Tensor
    """`L` temperatures that divide the logits before probabilities are computed."""
    classifier: int = 0
    """Index of the set of classifiers that answers, where each cost weight has its own."""
    conformal_thresholds: Mapping[float, Tensor] = field(default_factory=dict)
    """For each miscoverage, `L` thresholds of prediction sets, or `L x K` where each class has its own."""
    tune_metrics: Mapping[str, float] = field(default_factory=dict)
    """Measured on the tune split: `cost`, `accuracy`. Optimistic, as the point was chosen on that split."""
    leaving: Tensor | None = None
    """`C x L` moments of the tune samples that leave at each exit, divided by N: their number, the sum of their sizes,
    and for C = 3 the sum of the squared sizes. Any cost table can price the point by them."""
    losses: Mapping[str, PointLosses] = field(default_factory=dict)
    """Losses against the full network, by kind of loss; guarantees are made from them."""
    guarantee: Guarantee | None = None
    """The guarantee that the point was chosen for, if any."""

    def __post_init__(self) -> None:
        last = len(self.temperatures) - 1
        ascending = list(self.active) == sorted(set(self.active))
        if not ascending or not self.active or self.active[0] < 0 or self.active[-1] != last:
            raise InputError(expected=f"ascending active exits that end with the final one, {last}", got=self.active)

    def __repr__(self) -> str:
        figures = (f", {name} {value:.4g}" for name, value in self.tune_metrics.items())
        return f"OperatingPoint({self.policy}{''.join(figures)}, {len(self.active)} exits)"

    @property
    def rule(self) -> Policy:
        """The policy itself."""
        return POLICIES.get(self.policy)
