"""Conversion of outcomes into what policies see of the tune split."""

from torch import Tensor

from offramp.cost import Costs
from offramp.frontier.outcomes import Outcomes
from offramp.methods import FittedExits
from offramp.policy import Tuning

__all__ = ["tuning_of"]


def tuning_of(
    fitted: FittedExits,
    seen: Outcomes,
    temperatures: Tensor,
    costs: Costs,
    *,
    classifier: int,
    active: tuple[int, ...],
    seed: int = 0,
) -> Tuning:
    """Put together what a policy may look at when it offers operating points.

    Args:
        fitted: Exits and gates.
        seen: Outcomes on the tune split; with probabilities, where the policy reads them.
        temperatures: `W x L`.
        costs: What the policy costs.
        classifier: Which set of classifiers answers.
        active: The exits in force, the final one last.
        seed: Seed of whatever is drawn.
    """
    table = costs.average(seen.sizes)
    gates = fitted.gates
    return Tuning(
        labels=seen.labels,
        predictions=seen.predictions[classifier],
        confidence=seen.confidence[classifier],
        margin=seen.margin[classifier],
        evidence=seen.evidence[classifier],
        all_probabilities=None if seen.probabilities is None else seen.probabilities[classifier],
        temperatures=temperatures,
        classifier=classifier,
        active=active,
        relative_costs=(table.cumulative_costs(active) / table.full)[list(active)],
        gate_weight=None if gates is None else gates.weight.detach(),
        gate_bias=None if gates is None else gates.bias.detach(),
        seed=seed,
    )
