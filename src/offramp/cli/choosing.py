"""The operating point that a command asks for."""

from pathlib import Path

from offramp.cli.console import warn
from offramp.cli.networks import trusting
from offramp.errors import BudgetError, InputError
from offramp.frontier import Frontier
from offramp.network import EarlyExitNetwork
from offramp.runtime import LatencyTable
from offramp.runtime.measuring import machine

__all__ = ["DROP", "check_share", "choose", "read_latency", "timed", "warn_of_backend", "warn_of_busy"]

DROP = 0.005
"""Accuracy that may be lost on the tune split where nothing is asked for."""


def read_latency(path: Path | None, batch_size: int | None) -> tuple[LatencyTable | None, int]:
    """What was measured, if a file is given, and for batches of which size; a word where it was another machine."""
    if path is None:
        if batch_size is not None:
            raise InputError(
                f"expected --latency FILE with --latency-batch-size, got only --latency-batch-size {batch_size}; "
                f"offramp inspect --measure --batch-size {batch_size} --out FILE makes one"
            )
        return None, 1
    table = LatencyTable.load(path)
    if table.machine != machine():
        warn(f"the times in {path} are those of '{table.machine}', this machine is '{machine()}'.")
    warn_of_busy(table)
    return table, 1 if batch_size is None else batch_size


def warn_of_busy(table: LatencyTable) -> None:
    """Say so where what was measured does not add up."""
    if table.doubtful is not None:
        warn(
            f"the machine was busy: stages add up to {table.doubtful:.2f} of the bare network's time; measure again "
            "when it is quiet."
        )


def timed(frontier: Frontier, latency: Path | None, batch_size: int | None) -> Frontier:
    """The frontier with times for costs, where a file has them."""
    table, times_of = read_latency(latency, batch_size)
    return frontier if table is None else frontier.timed(table, batch_size=times_of)


def warn_of_backend(frontier: Frontier, backend: str) -> None:
    """Say so where times, if costs are times, are those of another backend than is to compute."""
    if frontier.bare_ms is None:
        return
    told = frontier.provenance.get("latency")
    measured = told.get("backend") if isinstance(told, dict) else None
    if measured != backend:
        warn(
            f"the times are those of backend '{measured or 'unknown'}', and '{backend}' computes: it will take other "
            f"times. Measure it: offramp inspect --measure --backend {backend} --out FILE"
        )


def check_share(name: str, share: float | None, *, most: float = 2, such: float = 0.6) -> None:
    """Refuse an option that is no share, such as one that is meant in percent."""
    if share is not None and not 0 < share <= most:
        meant = f": did you mean {share / 100:g}?" if 2 < share <= 100 else ""
        raise InputError(f"expected {name} as a share of 1, such as {such}, got {share:g}{meant}")


def choose(
    frontier: Frontier,
    *,
    cost: float | None,
    accuracy: float | None,
    policy: str | None,
    artifact: Path,
    latency_ms: float | None = None,
    max_drop: float | None = None,
    confidence: float | None = None,
    loss: str | None = None,
) -> EarlyExitNetwork:
    """The network at the point asked for; else at the cheapest that keeps the accuracy, or the most accurate one."""
    wishes = {"--cost": cost, "--accuracy": accuracy, "--latency-ms": latency_ms, "--max-drop": max_drop}
    asked = [name for name, wish in wishes.items() if wish is not None]
    if len(asked) > 1:
        raise InputError(
            f"expected --cost or --accuracy or --max-drop or --latency-ms, got {' and '.join(asked)}; leave one"
        )
    for name, value in (("--confidence", confidence), ("--loss", loss)):
        if value is not None and max_drop is None:
            raise InputError(f"expected --max-drop with {name}, got only {name} {value}; add it, or leave {name} out")
    if latency_ms is not None and frontier.bare_ms is None:
        raise InputError(
            "expected --latency FILE with --latency-ms, got none; offramp inspect --measure --out FILE makes one"
        )
    check_share("--cost", cost)
    check_share("--accuracy", accuracy)
    check_share("--max-drop", max_drop, most=0.99, such=0.01)
    check_share("--confidence", confidence, most=0.9999999, such=0.95)
    if not asked:
        listed = frontier.points.get(frontier.preferred if policy is None else policy, ())
        best = max((point.promised["accuracy"] for point in listed), default=1.0)
        accuracy = min(best, frontier.full_accuracy - DROP)
    try:
        return frontier.choose(
            cost=cost,
            accuracy=accuracy,
            latency_ms=latency_ms,
            max_drop=max_drop,
            confidence=confidence,
            loss=loss,
            policy=policy,
        )
    except BudgetError as error:
        told = str(error).partition(", or fit")[0]
        raise BudgetError(f"{told}. More points: offramp frontier {artifact}{trusting(frontier)}") from error
