"""MSDNet's family of thresholds: a confidence for each exit, from a geometric series of shares."""

import torch

from offramp.frontier.candidates.quotas import NEVER, quota_thresholds
from offramp.frontier.candidates.tuning import CANDIDATES, Tuning
from offramp.policy import OperatingPoint

__all__ = ["geometric_candidates"]


def geometric_candidates(tuning: Tuning) -> list[OperatingPoint]:
    r"""Points at which shares $q_k \propto (p/20)^k$ of the tune samples leave at the exits in force, p = 1..39.

    The thresholds of exit after exit are the confidences that fill these quotas; the last exit takes the rest. The
    family of MSDNet's "budgeted batch" evaluation, which BoostedNet and L2W-DEN are measured with.

    Args:
        tuning: What there is to look at.

    Returns:
        39 points of the policy "exit_thresholds", from the cheapest to the dearest.
    """
    confidence = tuning.seen.confidence[tuning.classifier][:, list(tuning.early)]
    powers = torch.arange(1, len(tuning.active) + 1, dtype=torch.float64)
    points = []
    for step in range(1, 40):
        shares = (step / 20) ** powers
        thresholds = quota_thresholds(confidence, (shares / shares.sum())[:-1])
        points.append(tuning.point("exit_thresholds", threshold=tuning.per_exit(thresholds, NEVER)))
    return points


CANDIDATES.add("geometric", geometric_candidates)
