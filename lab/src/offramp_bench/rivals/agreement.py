"""Agreement-based cascading: samples go to the next tier of networks if the members of their tier disagree."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from offramp.errors import InputError

__all__ = ["AgreementSweep", "cascade_by_agreement"]


@dataclass(frozen=True)
class AgreementSweep:
    """The answers and costs of a cascade, one row per threshold."""

    thresholds: npt.NDArray[np.float64]
    """`T` shares of votes that let a sample leave a tier, ascending."""
    answers: npt.NDArray[np.int64]
    """`T x N` predicted classes."""
    costs: npt.NDArray[np.float64]
    """`T x N` costs of all members that ran."""
    tiers: npt.NDArray[np.int64]
    """`T x N` places of the tiers that the samples leave at, 0-based."""


def cascade_by_agreement(
    predictions: npt.NDArray[np.int64],
    costs: npt.NDArray[np.float64],
    tiers: Sequence[Sequence[int]],
    *,
    thresholds: Sequence[float] | None = None,
    pooled: bool = False,
) -> AgreementSweep:
    """Return where samples leave a cascade of ensembles, and with which answer, for a sweep of thresholds.

    The members of a tier vote for the class they predict. A sample leaves with the class of most votes at the first
    tier where the share of its votes reaches the threshold, and at the last tier in any case. Classes with equally many
    votes: the one that the later member votes for wins. Agreement-based cascading [Kolawole2024]; nothing is trained.

    Args:
        predictions: `M x N` predicted classes of M members.
        costs: `M` costs of running each member.
        tiers: Members (0-based) of each tier, from cheap to strong; none in two tiers.
        thresholds: Shares between 0 and 1; above 1 all samples go to the last tier. By default every share that occurs
            before the last tier, and infinity.
        pooled: Count the votes of all members that have run, not only those of the tier. [Kolawole2024] counts those of
            the tier, where a tier of one member always agrees with itself: no sample goes past it.

    Example:
        >>> predictions = np.array([[1, 1], [1, 2], [3, 3]])
        >>> sweep = cascade_by_agreement(predictions, np.array([1.0, 2.0, 10.0]), ((0, 1), (2,)))
        >>> sweep.thresholds, sweep.answers.tolist(), sweep.costs.tolist()
        (array([0.5, 1. , inf]), [[1, 2], [1, 3], [3, 3]], [[3.0, 3.0], [3.0, 13.0], [13.0, 13.0]])
    """
    members = [member for tier in tiers for member in tier]
    if not members or not all(map(len, tiers)) or sorted(set(members)) != sorted(members):
        raise InputError("tiers", expected="at least one member in each, and none in two", got=tiers)
    if predictions.ndim != 2 or not 0 <= min(members) <= max(members) < len(predictions) == len(costs):
        raise InputError(
            expected=f"predictions M x N and costs M, with members {min(members)} to {max(members)} among them",
            got=f"shapes {predictions.shape} and {costs.shape}",
            hint="count members from 0",
        )
    voters = [list(np.concatenate(tiers[: place + 1])) if pooled else list(tier) for place, tier in enumerate(tiers)]
    votes = [_count_votes(predictions[voting]) for voting in voters]
    answers, shares = (np.stack(column) for column in zip(*votes, strict=True))  # tiers x N each
    costs_so_far = np.cumsum([costs[list(tier)].sum() for tier in tiers])
    levels = np.append(np.unique(shares[:-1]), np.inf) if thresholds is None else np.sort(thresholds)
    enough = shares >= levels[:, None, None]  # T x tiers x N
    enough[:, -1] = True
    left = enough.argmax(1)
    return AgreementSweep(levels.astype(np.float64), answers[left, np.arange(left.shape[1])], costs_so_far[left], left)


def _count_votes(
    predictions: npt.NDArray[np.int64],
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """Return the class with most of the votes `V x N`, and its share; of equals, the one of the last voter."""
    counts = (predictions[:, None] == predictions).sum(1)  # V x N: members that vote like this one
    winner = len(predictions) - 1 - counts[::-1].argmax(0)
    samples = np.arange(predictions.shape[1])
    return predictions[winner, samples], counts[winner, samples] / len(predictions)
