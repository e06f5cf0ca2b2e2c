"""The operating point that a command asks for."""

from pathlib import Path

from offramp.cli.networks import trusting
from offramp.errors import BudgetError, InputError
from offramp.frontier import Frontier
from offramp.network import EarlyExitNetwork

__all__ = ["DROP", "choose"]

DROP = 0.005
"""Accuracy that may be lost on the tune split where nothing is asked for."""


def choose(
    frontier: Frontier, *, cost: float | None, accuracy: float | None, policy: str | None, artifact: Path
) -> EarlyExitNetwork:
    """The network at the point asked for; else at the cheapest that keeps the accuracy, or the most accurate one."""
    if cost is not None and accuracy is not None:
        raise InputError("expected --cost or --accuracy, got both; leave one of them out")
    for name, share in (("--cost", cost), ("--accuracy", accuracy)):
        if share is not None and not 0 < share <= 2:
            meant = f": did you mean {share / 100:g}?" if 2 < share <= 100 else ""
            raise InputError(f"expected {name} as a share of 1, such as 0.6, got {share:g}{meant}")
    if cost is None and accuracy is None:
        listed = frontier.points.get(frontier.preferred if policy is None else policy, ())
        best = max((point.promised["accuracy"] for point in listed), default=1.0)
        accuracy = min(best, frontier.full_accuracy - DROP)
    try:
        return frontier.choose(cost=cost, accuracy=accuracy, policy=policy)
    except BudgetError as error:
        told = str(error).partition(", or fit")[0]
        raise BudgetError(f"{told}. More points: offramp frontier {artifact}{trusting(frontier)}") from error
