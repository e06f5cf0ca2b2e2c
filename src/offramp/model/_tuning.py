"""From trained exits to operating points: temperatures, choice of points, prediction sets and guarantees."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from offramp._registry import run_third_party
from offramp.cost import Costs
from offramp.features import BatchSource
from offramp.methods import FittedExits
from offramp.model._frontier import Contribution, area
from offramp.model._guarantees import with_losses, with_tuned_losses
from offramp.model._options import CalibrationOptions
from offramp.model._outcomes import Outcomes, compute_outcomes, tune_temperatures
from offramp.model._points import LEVELS, paying_exits, thin, tuning_of, with_sets
from offramp.policy import POLICIES, OperatingPoint
from offramp.policy._checking import check_points
from offramp.policy._threshold import threshold_candidates

__all__ = ["TunedPoints", "tune_points"]


@dataclass(frozen=True)
class TunedPoints:
    """The operating points of trained exits, with their temperatures, accuracy and contributions."""

    points: Mapping[str, Sequence[OperatingPoint]]
    """Points per policy, calibrated if there was a calibrate split."""
    temperatures: Tensor
    """`W x L` temperatures of the exits."""
    full_accuracy: float
    """Accuracy of the full network on the tune split."""
    contributions: Sequence[Contribution]
    """Gain of each early exit."""
    sizes: Tensor
    """Sizes of the samples of the tune split."""


def tune_points(
    fitted: FittedExits,
    policies: Sequence[str],
    costs: Mapping[str, Costs],
    tune: BatchSource,
    calibrate: BatchSource | None,
    *,
    calibration: CalibrationOptions,
    seed: int,
) -> TunedPoints:
    """Tune temperatures and points, then calibrate.

    Args:
        fitted: Exits and gates.
        policies: Names of the policies to offer points of.
        costs: Costs per policy, of the threshold in any case.
        tune: Samples for temperatures and the choice of points.
        calibrate: Samples for conformal thresholds and guarantees; None leaves them out.
        calibration: Prediction sets.
        seed: Seed of random draws.
    """
    exits = fitted.exits
    num_exits, num_classes = len(exits.widths), exits.num_classes
    temperatures = tune_temperatures(exits, tune)
    probabilities = any("probabilities" in POLICIES.get(policy).reads for policy in policies)
    tuned = compute_outcomes(exits, tune, temperatures, probabilities=probabilities)
    # A dial should stay with one set of classifiers: the one whose whole curve is best.
    curves = [
        threshold_candidates(tuned.confidence[place], temperatures[place], place, levels=LEVELS)
        for place in range(exits.stacked)
    ]
    best = max(range(exits.stacked), key=lambda place: area(thin(curves[place], tuned, costs["threshold"])))
    active, contributions = paying_exits(tuned, temperatures, best, costs["threshold"], needed=exits.averaging.read)
    points: dict[str, list[OperatingPoint]] = {}
    for policy in policies:
        rule = POLICIES.get(policy)
        candidates: list[OperatingPoint] = []
        every = tuple(range(num_exits))
        for choice in dict.fromkeys((every, active) if rule.counts_earlier else (active,)):
            view = tuning_of(fitted, tuned, temperatures, costs[policy], classifier=best, active=choice, seed=seed)
            with run_third_party(rule.candidates, f"policy '{policy}'", "mend its candidates"):
                offered = rule.candidates(view)
            candidates += check_points(rule, offered, num_exits=num_exits, num_classes=num_classes)
        points[policy] = thin(candidates, tuned, costs[policy])
    calibrated = {policy: with_tuned_losses(kept, tuned) for policy, kept in points.items()}
    if calibrate is not None:
        held_out = compute_outcomes(exits, calibrate, temperatures, probabilities=probabilities)
        calibrated = {policy: _calibrate(kept, held_out, tuned, calibration) for policy, kept in points.items()}
    accuracy = float(tuned.full_correct.double().mean())
    return TunedPoints(calibrated, temperatures, accuracy, contributions, tuned.sizes)


def _calibrate(
    points: Sequence[OperatingPoint], held_out: Outcomes, tuned: Outcomes, options: CalibrationOptions
) -> list[OperatingPoint]:
    """Return points with prediction sets and losses of the calibrate split."""
    with_thresholds = with_sets(
        points, held_out, options.conformal, options.miscoverages, by_class=options.sets_by_class
    )
    return with_losses(with_tuned_losses(with_thresholds, tuned), held_out)
