"""What happens at each exit under the paper's gates: who leaves, how right and how sure they are, what sets cover."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from offramp.cost import Costs
from offramp.methods import FittedExits
from offramp.model._outcomes import Outcomes, simulate
from offramp.model._points import tuning_of
from offramp.policy._gates import gate_candidates
from offramp.uncertainty import calibration_error
from offramp_bench.conformal_variants import PaperVariant, variant_thresholds

__all__ = ["decomposition"]

WEIGHTS = 3
"""Cost weights shown: a low, a middle and a high one."""

REQUESTED = (0.02, 0.05, 0.1, 0.15, 0.2)
"""Miscoverages asked for."""

FEWEST = 50
"""Samples that a calibration error of an exit's own needs."""

VARIANTS: tuple[PaperVariant, ...] = ("general", "per_exit", "strict", "gated")


def decomposition(
    fitted: FittedExits,
    cost_weights: Sequence[float],
    temperatures: Tensor,
    held_out: Outcomes,
    test: Outcomes,
    costs: Costs,
) -> list[dict[str, Any]]:
    """Figures by exit at some cost weights, the gates as they were trained.

    Args:
        fitted: Exits and gates.
        cost_weights: `W` prices of compute that the gates were trained for.
        temperatures: `W x L`.
        held_out: Outcomes on the calibrate split.
        test: Outcomes on the test split.
        costs: Of the gates.
    """
    everywhere = tuple(range(test.predictions.shape[-1]))
    view = tuning_of(fitted, held_out, temperatures, costs, classifier=0, active=everywhere)
    points = [point for point in gate_candidates("gates", view) if float(point.parameters["offset"]) == 0]
    picked = torch.linspace(1, len(points) - 2, WEIGHTS).round().long()
    chosen, weights = [points[index] for index in picked.tolist()], torch.tensor(cost_weights)[picked].tolist()
    rows, table = torch.arange(len(test.labels)), costs.of(test.sizes)
    found = []
    for weight, point, left, before in zip(
        weights, chosen, simulate(chosen, test), simulate(chosen, held_out), strict=True
    ):
        one = point.classifier
        correct = test.correct[one, rows, left]
        confidence = test.confidence[one, rows, left].clamp_max(1)
        by_exit = []
        for exit in range(test.predictions.shape[-1]):
            here = left == exit
            count = int(here.sum())
            by_exit.append(
                {
                    "leave": count,
                    "accuracy": float(correct[here].double().mean()) if count else None,
                    "accuracy of all": float(test.correct[one, :, exit].double().mean()),
                    "accuracy at the end": float(test.full_correct[here].double().mean()) if count else None,
                    "ece": float(calibration_error(confidence[here], correct[here])) if count >= FEWEST else None,
                }
            )
        scores, own = held_out.conformal_scores[one], test.conformal_scores[one, rows, left]
        covered = {
            variant: [
                float((own <= variant_thresholds(variant, scores, before, miscoverage=alpha)[left]).double().mean())
                for alpha in REQUESTED
            ]
            for variant in VARIANTS
        }
        found.append(
            {
                "cost weight": weight,
                "cost": float(table.relative_cost(left, point.active)),
                "accuracy": float(correct.double().mean()),
                "ece": float(calibration_error(confidence, correct)),
                "exits": by_exit,
                "requested": [1 - alpha for alpha in REQUESTED],
                "covered": covered,
            }
        )
    return found
