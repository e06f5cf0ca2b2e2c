"""Figures of single exits under the paper's gates: who leaves, how accurate and calibrated, what sets cover."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from offramp.cost import Costs
from offramp.exits._exit_set import all_logits
from offramp.exits._gate import Gates
from offramp.features import BatchSource
from offramp.functional import evidence
from offramp.functional._leaving import first_exit, should_leave
from offramp.functional._statistics import log_probabilities
from offramp.methods import FittedExits
from offramp.model._outcomes import Outcomes, simulate
from offramp.model._points import tuning_of
from offramp.policy import OperatingPoint
from offramp.policy._gates import gate_candidates
from offramp.uncertainty import calibration_error, prediction_set
from offramp_bench.conformal_variants import PaperVariant, variant_thresholds

__all__ = [
    "REQUESTED",
    "VARIANTS",
    "accuracy_after_success",
    "calibration_by_exit",
    "gated_accuracy",
    "prediction_sets",
    "trained_gate_points",
    "use_of_exits",
]

REQUESTED = (0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3)
"""Miscoverages that prediction sets are made for."""

VARIANTS: tuple[PaperVariant, ...] = ("general", "per_exit", "strict", "gated")
"""The four ways to set conformal thresholds of the paper's appendix."""

FEWEST = 50
"""Samples that the calibration error of an exit needs."""

_CELLS = 10_000_000
"""Logits that are held at a time."""


def trained_gate_points(
    fitted: FittedExits, tune: Outcomes, temperatures: Tensor, costs: Costs
) -> list[OperatingPoint]:
    """Return one operating point per cost weight: the gates as they were trained, all exits in use.

    Args:
        fitted: Exits and gates.
        tune: Outcomes on any samples.
        temperatures: `W x L`.
        costs: Costs of the gates.
    """
    all_exits = tuple(range(tune.predictions.shape[-1]))
    view = tuning_of(fitted, tune, temperatures, costs, classifier=0, active=all_exits)
    return [point for point in gate_candidates("gates", view) if float(point.parameters["offset"]) == 0]


def use_of_exits(point: OperatingPoint, test: Outcomes, costs: Costs) -> dict[str, Any]:
    """Return cost and accuracy of a point, and figures of each exit.

    Args:
        point: The point.
        test: Outcomes on the test split.
        costs: Costs of the point's policy.

    Returns:
        Of each exit: the number of samples that leave, their accuracy, the exit's accuracy on all samples, the full
        network's accuracy on those that leave, and their calibration error if they are at least `FEWEST`.
    """
    left, rows, place = simulate([point], test)[0], torch.arange(len(test.labels)), point.classifier
    correct, confidence = test.correct[place, rows, left], test.confidence[place, rows, left].clamp_max(1)
    exits: list[dict[str, Any]] = []
    for exit in range(test.predictions.shape[-1]):
        here = left == exit
        count = int(here.sum())
        exits.append(
            {
                "leave": count,
                "accuracy": _mean(correct[here]),
                "accuracy of all": _mean(test.correct[place, :, exit]),
                "full network's accuracy": _mean(test.full_correct[here]),
                "ece": float(calibration_error(confidence[here], correct[here])) if count >= FEWEST else None,
            }
        )
    return {
        "cost": float(costs.of(test.sizes).relative_cost(left, point.active)),
        "accuracy": _mean(correct),
        "ece": float(calibration_error(confidence, correct)),
        "exits": exits,
    }


def prediction_sets(
    point: OperatingPoint, calibrate: Outcomes, test: Outcomes, variants: Sequence[PaperVariant] = VARIANTS
) -> dict[str, dict[str, list[float]]]:
    """Return coverage and mean size of prediction sets at every requested miscoverage, by conformal variant.

    Args:
        point: The point.
        calibrate: Outcomes that thresholds are set on.
        test: Outcomes with probabilities that sets are measured on.
        variants: Ways to set thresholds.
    """
    assert test.probabilities is not None
    rows, place = torch.arange(len(test.labels)), point.classifier
    left, left_before = simulate([point], test)[0], simulate([point], calibrate)[0]
    answers, scores = test.probabilities[place, rows, left], calibrate.conformal_scores[place]
    figures: dict[str, dict[str, list[float]]] = {}
    for variant in variants:
        coverage, size = [], []
        for miscoverage in REQUESTED:
            thresholds = variant_thresholds(variant, scores, left_before, miscoverage=miscoverage)
            sets = prediction_set(answers, thresholds[left])
            coverage.append(float(sets[rows, test.labels].double().mean()))
            size.append(float(sets.double().sum(1).mean()))
        figures[variant] = {"coverage": coverage, "size": size}
    return figures


def calibration_by_exit(outcomes: Outcomes) -> list[float]:
    """Return the calibration error of each exit on all samples, mean over sets of classifiers.

    Args:
        outcomes: Outcomes on the test split; their temperatures decide whether it is before or after scaling.
    """
    sets, exits = outcomes.predictions.shape[0], outcomes.predictions.shape[-1]
    errors = [
        [
            float(calibration_error(outcomes.confidence[place, :, exit].clamp_max(1), outcomes.correct[place, :, exit]))
            for exit in range(exits)
        ]
        for place in range(sets)
    ]
    return torch.tensor(errors).mean(0).tolist()


def accuracy_after_success(outcomes: Outcomes) -> dict[str, list[float | None]]:
    """Return the accuracy of each exit but the first, on all samples and on those the previous exit has right.

    Means over sets of classifiers; None where the previous exit has none right. The second is the conditional accuracy
    of Appendix "Optimizing the gates" of [Regol2024].

    Args:
        outcomes: Outcomes on the test split.
    """
    correct = outcomes.correct
    before, after = correct[..., :-1], correct[..., 1:]
    conditional: list[float | None] = []
    for exit in range(after.shape[-1]):
        shares = [_mean(after[place, before[place, :, exit], exit]) for place in range(len(correct))]
        values = [share for share in shares if share is not None]
        conditional.append(sum(values) / len(values) if values else None)
    return {"all": after.double().mean((0, 1)).tolist(), "right before": conditional}


@torch.no_grad()
def gated_accuracy(fitted: FittedExits, source: BatchSource, costs: Costs) -> dict[str, list[float]]:
    """Return accuracy and relative cost of every cost weight, at the exits its gates choose.

    Args:
        fitted: Exits and gates.
        source: Samples.
        costs: Costs of the gates.
    """
    gates, parts = fitted.trained_gates, []
    num_cost_weights, exits = len(gates.weight), len(source.widths)
    for batch in source.in_order(batch_size=max(1, _CELLS // (num_cost_weights * exits * source.num_classes))):
        log_p = log_probabilities(all_logits(fitted.exits, batch.features, batch.own_logits))
        left = first_exit(should_leave(Gates.scores(gates(evidence(log_p[..., :-1, :])))))
        correct = (log_p.argmax(-1) == batch.labels[:, None]).expand(num_cost_weights, -1, -1)
        parts.append((left, correct.gather(-1, left[..., None]).squeeze(-1)))
    left, correct = (torch.cat(column, dim=1) for column in zip(*parts, strict=True))
    table = costs.of(source.sizes())
    return {
        "accuracy": correct.double().mean(1).tolist(),
        "cost": [float(table.relative_cost(exits_of)) for exits_of in left],
    }


def _mean(values: Tensor) -> float | None:
    return float(values.double().mean()) if len(values) else None
