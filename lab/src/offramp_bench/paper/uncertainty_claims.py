"""Claims about uncertainty: calibration error, prediction sets, coverage."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from offramp_bench.paper.details import BASELINE, JEI
from offramp_bench.paper.equal_cost import Floats, Results, at_equal_cost, mean_level
from offramp_bench.paper.training_claims import BASELINES, THRESHOLD
from offramp_bench.paper.verdicts import Claim, Measure, differences, improves, is_alike, judge, noise_of_share

__all__ = [
    "judge_calibration_by_depth",
    "judge_conformal_variants",
    "judge_uncertainty",
    "judge_uncertainty_parts",
]

RIVALS = (*BASELINES, THRESHOLD)

NAMES = {THRESHOLD: "one threshold on linear exits"}
"""Contestants whose name in a sentence differs."""

COVERAGE = 0.95
"""Coverage that the prediction sets of the tracks are made for, and at which sizes are compared."""

SMALLER = 0.02
"""Prediction sets whose sizes differ by less than this share are alike."""

VARIANTS_APART = 0.02
"""Coverage that conformal variants may differ by and still be equivalent."""

SIZES_APART = 0.1
"""Share of their mean size that the prediction sets of conformal variants may differ by and still be equivalent."""

Tasks = Mapping[str, Results]
Details = Mapping[str, Any]


def judge_uncertainty(tasks: Tasks, details: Mapping[str, Details]) -> Claim:
    """Judge observation 4: calibration, prediction sets and coverage, all three."""
    parts = judge_uncertainty_parts(tasks, details)
    measures = [measure for part in parts for measure in part.figures]
    verdicts = "; ".join(f"{part.name.lower()}: {part.verdict}" for part in parts)
    return judge(
        "4. Uncertainty",
        "With learned gates, probabilities are much better calibrated than the baselines', prediction sets are "
        "smaller, and coverage is nearer to what was requested.",
        measures,
        cause=" ".join(part.why.split(". ")[0] + "." for part in parts if part.verdict == "does not hold"),
        note=f"By part: {verdicts}. All contestants have temperatures and conformal thresholds from the same samples.",
    )


def judge_uncertainty_parts(tasks: Tasks, details: Mapping[str, Details]) -> tuple[Claim, ...]:
    """Judge the parts of observation 4 one by one."""
    errors = [
        _judge_less(tasks, rival, f"points of calibration error less than {_display_name(rival)} at equal cost", "ece")
        for rival in RIVALS
    ]
    sizes = [
        improves(
            f"percent smaller prediction sets than {_display_name(rival)} at equal cost",
            differences(tasks, partial(_smaller_sets, rival=rival), lambda task: SMALLER),
        )
        for rival in RIVALS
    ]
    distances = [
        _judge_less(
            tasks, rival, f"points nearer to the requested 95 % than the coverage of {_display_name(rival)}", "coverage"
        )
        for rival in RIVALS
    ]
    levels = differences(details, _nearer_at_all_levels, _noise_of_levels)
    distances.append(improves("points nearer to the requested coverage than BoostedNet, at all levels", levels))
    return (
        judge(
            "Calibration",
            "Even after temperature scaling the baselines' probabilities are poorly calibrated; JEI-DNN's are much "
            "better, and better the more is spent.",
            errors,
            cause=_levels(tasks, "ece", "Calibration errors after temperature scaling are", 100, " points"),
        ),
        judge(
            "Set size",
            "At a coverage of 95 %, prediction sets of JEI-DNN are clearly smaller.",
            sizes,
            cause=_levels(tasks, "set size", "Sets of 95 % hold", 1, " classes"),
        ),
        judge(
            "Coverage",
            "Coverage of JEI-DNN's prediction sets is nearer to what was requested.",
            distances,
            cause=_levels(tasks, "coverage", "Coverage differs from the requested 95 % by", 100, " points", _distance),
            note="All levels: the baseline at the point whose cost on tune is nearest; one seed.",
        ),
    )


def judge_conformal_variants(details: Mapping[str, Details]) -> Claim:
    """Judge that four ways to set conformal thresholds are equivalent."""

    def spread(task_details: Details, column: str) -> float:
        rows = [[sets[column] for sets in row["sets"].values()] for row in task_details["cost weights"]]
        values = np.array(rows)  # cost weights x variants x levels
        if column == "size":
            place = int(np.abs(np.array(task_details["requested"]) - COVERAGE).argmin())
            return float(np.mean(np.ptp(values[..., place], axis=1) / values[..., place].mean(1)))
        return float(np.ptp(values, axis=1).mean())

    return judge(
        "Conformal variants",
        "Four ways to set conformal thresholds (one for all, one per exit, one per exit from the samples that leave "
        "there, the last with a fallback) are about equivalent.",
        [
            is_alike(
                "percent between the smallest and the largest mean size of sets of 95 %",
                differences(
                    details, lambda task_details: spread(task_details, "size"), lambda task_details: SIZES_APART
                ),
            ),
            is_alike(
                "points of coverage between the variants, at all levels",
                differences(
                    details, lambda task_details: spread(task_details, "coverage"), lambda task_details: VARIANTS_APART
                ),
            ),
        ],
        cause=_describe_variants(details),
        note=f"Equivalent: sizes within {100 * SIZES_APART:g} %, coverages within {100 * VARIANTS_APART:g} points.",
    )


def judge_calibration_by_depth(details: Mapping[str, Details]) -> Claim:
    """Judge that early exits are the worst calibrated."""

    def halves(task_details: Details, when: str) -> tuple[float, float]:
        errors = task_details["calibration by depth"][BASELINE][when]
        half = len(errors) // 2
        return float(np.mean(errors[:half])), float(np.mean(errors[half:]))

    def fall(task_details: Details, when: str) -> float:
        early, late = halves(task_details, when)
        return early - late

    def noise(task_details: Details) -> float:
        return noise_of_share(task_details["full accuracy"], task_details["test"])

    measures = [
        improves(
            f"points of calibration error more in the first half of the exits, {when} temperature scaling",
            differences(details, lambda task_details, when=when: fall(task_details, when), noise),  # type: ignore[misc]
        )
        for when in ("before", "after")
    ]
    cause = ""
    if details:
        early, late = np.mean([halves(task_details, "after") for task_details in details.values()], axis=0)
        cause = (
            f"After temperature scaling the error is {100 * early:.2f} points in the first half of the exits and "
            f"{100 * late:.2f} in the second, mean over tasks."
        )
    return judge(
        "Calibration by depth",
        "Early exits are the worst calibrated; calibration error falls with depth.",
        measures,
        cause=cause,
        note="Exits of BoostedNet, each on all test samples, one seed; the paper averages over its baselines.",
    )


def _describe_variants(details: Mapping[str, Details]) -> str:
    coverages: dict[str, list[float]] = {}
    for task_details in details.values():
        place = int(np.abs(np.array(task_details["requested"]) - COVERAGE).argmin())
        for row in task_details["cost weights"]:
            for variant, sets in row["sets"].items():
                coverages.setdefault(variant, []).append(sets["coverage"][place])
    if not coverages:
        return ""
    means = {variant: 100 * float(np.mean(values)) for variant, values in coverages.items()}
    low, high = min(means, key=lambda name: means[name]), max(means, key=lambda name: means[name])
    return (
        f"Of 95 % requested, {low.replace('_', ' ')} thresholds cover {means[low]:.2f} % and "
        f"{high.replace('_', ' ')} ones {means[high]:.2f} %, mean over tasks and cost weights."
    )


def _display_name(contestant: str) -> str:
    return NAMES.get(contestant, contestant)


def _judge_less(tasks: Tasks, rival: str, what: str, column: str) -> Measure:
    """Judge whether the paper's method has less calibration error, or less distance from the requested coverage."""
    is_coverage = column == "coverage"
    transform = _distance if is_coverage else np.asarray
    gaps = differences(
        tasks,
        lambda task: at_equal_cost(task, rival, JEI, column, transform=transform),
        lambda task: noise_of_share(COVERAGE if is_coverage else task["full accuracy"], task["test"]),
    )
    return improves(what, gaps)


def _levels(tasks: Tasks, column: str, opening: str, scale: float, unit: str, transform: Any = np.asarray) -> str:
    """Return a sentence with the level of each contestant, mean over costs and tasks."""
    levels = {name: mean_level(tasks, name, column, transform=transform) for name in (JEI, *RIVALS)}
    parts = [
        f"{scale * level:.2f}{unit} with {_display_name(name)}" for name, level in levels.items() if level is not None
    ]
    return f"{opening} {', '.join(parts)}, mean over costs and tasks." if len(parts) > 1 else ""


def _distance(coverage: Floats) -> Floats:
    """Return the distance from the requested coverage."""
    return np.abs(coverage - COVERAGE)


def _smaller_sets(task: Results, *, rival: str) -> float | None:
    """Return the share by which sets are smaller; logarithms make twice as large and half as large equally far."""
    more = at_equal_cost(task, JEI, rival, "set size", transform=lambda sizes: np.log(np.maximum(sizes, 1e-6)))
    return None if more is None else float(-np.expm1(more))


def _nearer_at_all_levels(details: Details) -> float:
    """Return how much nearer to the requested coverage than the baseline, mean over levels and cost weights."""
    requested_coverage = np.array(details["requested"])
    rows = details["cost weights"]
    ours = [np.abs(row["sets"]["gated"]["coverage"] - requested_coverage).mean() for row in rows]
    theirs = [np.abs(row["baseline"]["sets"]["gated"]["coverage"] - requested_coverage).mean() for row in rows]
    return float(np.mean(theirs) - np.mean(ours))


def _noise_of_levels(details: Details) -> float:
    shares = details["requested"]
    return float(np.mean([noise_of_share(share, details["test"], details["calibrate"]) for share in shares]))
