"""The five observations of [Regol2024] as tests, and the claims of its appendix."""

from collections.abc import Mapping
from dataclasses import asdict, replace
from functools import partial
from typing import Any

import numpy as np

from offramp_bench.page.results import WITHHELD
from offramp_bench.paper.appendix import appendix
from offramp_bench.paper.comparing import (
    Floats,
    Gap,
    Measure,
    Observation,
    agreed,
    at_equal_cost,
    gaps,
    improves,
    is_alike,
    noise_of_areas,
    noise_of_share,
    told,
)

__all__ = [
    "Observation",
    "joint_training",
    "learned_gates",
    "observations",
    "tailored_architectures",
    "uncertainties",
    "uncertainty",
    "where_samples_leave",
]

JEI = "JEI-DNN"
BASELINES = ("BoostedNet", "L2W-DEN")
"""What the paper compares with."""

HIGH = 0.8
"""Share of the full network's accuracy from which the paper's first observation speaks."""

COVERAGE = 0.95
"""What the prediction sets of the curves were asked for."""

REASON = (
    "JEI-DNN was trained for 5 + 10 epochs and without the paper's weight decay, its rivals for 15 epochs and more: "
    "the figures are what this training reached, not what the paper's method can."
)
"""Said of every claim until all contestants get the same training."""

SMALLER = 0.02
"""Prediction sets whose sizes differ by less than this share are alike."""

ALIKE = 0.01
"""Accuracies of exits on all samples that differ by less are alike."""


def observations(tasks: dict[str, Any]) -> list[dict[str, Any]]:
    """All verdicts, as JSON can hold them.

    Args:
        tasks: As `assembled` gives them.
    """
    five = (joint_training, learned_gates, where_samples_leave, uncertainty, tailored_architectures)
    found = [*(observe(tasks) for observe in five), *uncertainties(tasks), *appendix(tasks)]
    return [asdict(_withhold(claim)) for claim in found]


def _withhold(claim: Observation) -> Observation:
    """Take the verdict off a claim whose contestants did not get the same training; its figures stay."""
    if claim.verdict == "not tested":
        return claim
    figures = tuple(replace(measure, verdict=WITHHELD) for measure in claim.figures)
    return replace(claim, verdict=WITHHELD, figures=figures, why=f"{REASON} {claim.why}")


def joint_training(tasks: Mapping[str, Any]) -> Observation:
    """Observation 1: gates and classifiers trained together beat what is trained apart."""
    measures = [
        _more_accurate(tasks, JEI, rival, f"points more than {rival} at equal cost, from 80 % of the full accuracy on")
        for rival in BASELINES
    ]
    measures.append(
        _more_accurate(tasks, JEI, "fixed classifiers", "points more than its own gates on classifiers left alone")
    )
    return Observation(
        "1. Joint training",
        "Training gates and classifiers together, so that each exit learns from the samples that will leave there, is "
        "clearly more accurate than BoostedNet and L2W-DEN on every dataset wherever accuracy is above 80 % of the "
        "full network's, and no worse elsewhere.",
        agreed(measures),
        tuple(measures),
        told(measures),
    )


def learned_gates(tasks: Mapping[str, Any]) -> Observation:
    """Observation 2: learned gates choose exits better than a threshold on the same classifiers."""
    control = "JEI-DNN's classifiers, threshold"
    fewer = gaps(
        tasks,
        lambda task: _less(at_equal_cost(task, JEI, control, "early")),
        lambda task: noise_of_share(task, 0.5),
    )
    measures = (
        _more_accurate(tasks, JEI, control, "points more than one threshold on the very same classifiers", above=0.0),
        improves("points fewer that leave in the first third of the exits, at equal cost", fewer),
    )
    return Observation(
        "2. Learned gates",
        "Gates that are trained, and know the price of going on, choose exits better than thresholds on confidence: "
        "they pass over early exits that are poor but sure of themselves.",
        agreed(measures),
        measures,
        told(measures) + " The paper has no such control: its baselines differ in classifiers and rule at once.",
    )


def where_samples_leave(tasks: Mapping[str, Any]) -> Observation:
    """Observation 3: easy samples leave at the exits in use, whose classifiers are no better than others'."""
    easier = gaps(tasks, _easier, lambda task: noise_of_share(task, task["full accuracy"]))
    measures = [improves("points more on those who leave at much-used exits than those exits have on all", easier)]
    for rival in (*BASELINES, "threshold"):
        measures.append(is_alike(f"points of exits on all samples above those of {rival}", _exits_apart(tasks, rival)))
    return Observation(
        "3. Where samples leave",
        "At the exits that most samples leave at, accuracy on those who leave is above the exit's accuracy on all: "
        "easy samples are sent there. The exits themselves are about as accurate on all samples as the baselines'.",
        agreed(measures),
        tuple(measures),
        told(measures)
        + " Much used is an exit before the last that more than its even share leaves at, over the cost weights shown.",
    )


def uncertainty(tasks: Mapping[str, Any]) -> Observation:
    """Observation 4: calibration, prediction sets and coverage, all three."""
    parts = uncertainties(tasks)
    measures = tuple(measure for part in parts for measure in part.figures)
    verdicts = "; ".join(f"{part.name.lower()}: {part.verdict}" for part in parts)
    return Observation(
        "4. Uncertainty",
        "With learned gates, probabilities are much better calibrated than the baselines', prediction sets are "
        "smaller, and coverage is nearer to what was asked for.",
        agreed(measures),
        measures,
        f"{verdicts[0].upper()}{verdicts[1:]}. Every contestant has its temperatures and conformal thresholds from the "
        "same samples.",
    )


def uncertainties(tasks: Mapping[str, Any]) -> tuple[Observation, ...]:
    """The parts of observation 4, one by one."""
    rivals = (*BASELINES, "threshold")
    error = [
        _lower(tasks, rival, f"points of calibration error less than {rival} at equal cost", "ece") for rival in rivals
    ]
    sizes = [
        improves(
            f"percent smaller prediction sets than {rival} at equal cost",
            gaps(tasks, partial(_smaller_sets, rival=rival), lambda task: SMALLER),
        )
        for rival in rivals
    ]
    off = [
        _lower(tasks, rival, f"points nearer to the 95 % asked for than {rival}'s coverage", "coverage")
        for rival in rivals
    ]
    claims = (
        ("Calibration", "Even after temperature scaling the baselines' probabilities are poorly calibrated; JEI-DNN's "
         "are much better, and better the more is spent.", error),
        ("Set size", "At a coverage of 95 %, prediction sets of JEI-DNN are clearly smaller.", sizes),
        ("Coverage", "Coverage of JEI-DNN's prediction sets is nearer to what was asked for.", off),
    )  # fmt: skip
    return tuple(
        Observation(name, claim, agreed(measures), tuple(measures), told(measures)) for name, claim, measures in claims
    )


def tailored_architectures(tasks: Mapping[str, Any]) -> Observation:
    """Observation 5: the paper's gates on exits that were made for leaving early."""
    gates, threshold = "offramp's exits, gates", "offramp's exits, threshold"
    measure = _more_accurate(tasks, gates, threshold, "points more by gates than by one threshold on offramp's ladder")
    return Observation(
        "5. Tailored architectures",
        "Joint training improves a network made for early exits, the Dynamic Perceiver, on CIFAR-100 and ImageNet.",
        measure.verdict,
        (measure,),
        "A stand-in, not the claim itself: no weights of the Dynamic Perceiver can be had offline. Instead the paper's "
        "gates decide on exits that carry a state up the network (offramp's ladder), where one threshold would. "
        + told([measure]),
    )


def _more_accurate(tasks: Mapping[str, Any], one: str, other: str, what: str, *, above: float = HIGH) -> Measure:
    found = gaps(
        tasks,
        lambda task: at_equal_cost(task, one, other, "accuracy", above=above),
        lambda task: noise_of_areas(task, one, other),
    )
    return improves(what, found)


def _lower(tasks: Mapping[str, Any], rival: str, what: str, shown: str) -> Measure:
    """Whether the paper's method has less calibration error, or less distance from the coverage asked for."""
    seen_as, share = (_off, COVERAGE) if shown == "coverage" else (np.asarray, None)
    found = gaps(
        tasks,
        lambda task: _less(at_equal_cost(task, JEI, rival, shown, seen_as=seen_as)),
        lambda task: noise_of_share(task, task["full accuracy"] if share is None else share),
    )
    return improves(what, found)


def _less(difference: float | None) -> float | None:
    return None if difference is None else -difference


def _off(coverage: Floats) -> Floats:
    """How far from what was asked for."""
    return np.abs(coverage - COVERAGE)


def _smaller_sets(task: Mapping[str, Any], *, rival: str) -> float | None:
    """By which share sets are smaller: logarithms, so that twice as large and half as large are as far apart."""
    more = at_equal_cost(task, JEI, rival, "set size", seen_as=lambda sizes: np.log(np.maximum(sizes, 1e-6)))
    return None if more is None else float(-np.expm1(more))


def _easier(task: Mapping[str, Any]) -> float | None:
    """Accuracy of those who leave above the exit's on all, at much-used exits, a mean over those who leave."""
    leave, above = 0, 0.0
    for shown in task.get("decomposition") or ():
        exits = shown["exits"]
        even = sum(one["leave"] for one in exits) / len(exits)
        for one in exits[:-1]:
            if one["leave"] > even:
                leave += one["leave"]
                above += one["leave"] * (one["accuracy"] - one["accuracy of all"])
    return above / leave if leave else None


def _exits_apart(tasks: Mapping[str, Any], rival: str) -> dict[str, Gap]:
    """How much more accurate the paper's exits are on all samples than a rival's, a mean over exits but the last."""

    def apart(task: Mapping[str, Any]) -> float | None:
        ours, theirs = (task["contestants"].get(name, {}).get("exit accuracy") for name in (JEI, rival))
        if not ours or not theirs or len(ours) != len(theirs) or len(ours) < 2:
            return None
        return float(np.mean(np.subtract(ours, theirs)[:-1]))

    return gaps(tasks, apart, lambda task: ALIKE)
