"""One number for all exits: confidence, entropy or margin, at levels spread over what tune samples show."""

import torch
from torch import Tensor

from offramp.frontier.candidates.tuning import CANDIDATES, Tuning
from offramp.frontier.outcomes import Outcomes
from offramp.policy import OperatingPoint
from offramp.policy.entropy import relative_entropy

__all__ = ["entropy_candidates", "margin_candidates", "threshold_candidates"]

LEVELS = 512
"""How many levels at most."""


def threshold_candidates(
    seen: Outcomes,
    temperatures: Tensor,
    classifier: int,
    *,
    active: tuple[int, ...] | None = None,
    levels: int = LEVELS,
) -> list[OperatingPoint]:
    """One global threshold, at levels spread over the confidences of the tune samples.

    Args:
        seen: Outcomes on the tune split.
        temperatures: `W x L`.
        classifier: Which set of classifiers.
        active: The exits in force; all if left out.
        levels: How many at most.

    Returns:
        Points from "everybody leaves at once" to "nobody leaves early".
    """
    active = tuple(range(seen.confidence.shape[-1])) if active is None else active
    chosen = _spread(seen.confidence[classifier][:, list(active[:-1])], levels)
    never = chosen.new_tensor([2.0])  # no confidence reaches it
    return [
        OperatingPoint("threshold", {"threshold": level}, active, temperatures[classifier], classifier)
        for level in torch.cat([chosen, never])
    ]


def entropy_candidates(tuning: Tuning) -> list[OperatingPoint]:
    """One global limit on relative entropy, at levels spread over those of the tune samples.

    Args:
        tuning: What there is to look at; its outcomes have probabilities.

    Returns:
        Points from "nobody leaves early" to "everybody leaves at once".
    """
    scores = [relative_entropy(tuning.probabilities(exit)) for exit in tuning.early]
    found = torch.stack(scores) if scores else tuning.temperatures.new_empty(0)
    never = found.new_tensor([-1.0])
    return [tuning.point("entropy", limit=level) for level in torch.cat([never, _spread(found, LEVELS)])]


def margin_candidates(tuning: Tuning) -> list[OperatingPoint]:
    """One global threshold on the margin, at levels spread over those of the tune samples.

    Args:
        tuning: What there is to look at.

    Returns:
        Points from "everybody leaves at once" to "nobody leaves early".
    """
    found = tuning.seen.margin[tuning.classifier][:, list(tuning.early)]
    never = found.new_tensor([2.0])
    return [tuning.point("margin", threshold=level) for level in torch.cat([_spread(found, LEVELS), never])]


def _spread(found: Tensor, levels: int) -> Tensor:
    """Ascending values from the lowest to the highest that were found, as many between each two."""
    ordered = found.flatten().sort().values
    places = torch.linspace(0, len(ordered) - 1, min(levels, len(ordered)), dtype=torch.float64).long()
    distinct: Tensor = torch.unique(ordered[places])
    return distinct


CANDIDATES.add(
    "threshold",
    lambda tuning: threshold_candidates(tuning.seen, tuning.temperatures, tuning.classifier, active=tuning.active),
)
CANDIDATES.add("entropy", entropy_candidates)
CANDIDATES.add("margin", margin_candidates)
