"""Every patience there can be."""

import torch

from offramp.frontier.candidates.tuning import CANDIDATES, Tuning
from offramp.policy import OperatingPoint

__all__ = ["patience_candidates"]


def patience_candidates(tuning: Tuning) -> list[OperatingPoint]:
    """A point for every patience that lets anybody leave early, and one that lets nobody.

    Args:
        tuning: What there is to look at.

    Returns:
        As many points as exits are in force, from "everybody leaves at once" to "nobody leaves early".
    """
    return [tuning.point("patience", patience=torch.tensor(float(step))) for step in range(len(tuning.active))]


CANDIDATES.add("patience", patience_candidates)
