"""The operating point that a command asks for."""

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

from offramp.cli.console import say, warn
from offramp.cli.options import (
    AccuracyOption,
    ConfidenceOption,
    CostOption,
    LatencyMsOption,
    LossOption,
    MaxDropOption,
    PolicyOption,
)
from offramp.errors import BudgetError, InputError

if TYPE_CHECKING:
    from offramp.frontier import Frontier
    from offramp.network import EarlyExitNetwork
    from offramp.runtime import LatencyTable

__all__ = [
    "Wish",
    "asking",
    "check_share",
    "choose",
    "read_latency",
    "timed",
    "warn_of_backend",
    "warn_of_busy",
    "warn_of_full_sets",
]


@dataclass(frozen=True)
class Wish:
    """The operating point that a command asks for: an option a field, and what `Frontier.choose` takes."""

    cost: CostOption = None
    accuracy: AccuracyOption = None
    latency_ms: LatencyMsOption = None
    max_drop: MaxDropOption = None
    confidence: ConfidenceOption = None
    loss: LossOption = None
    policy: PolicyOption = None

    @property
    def asked(self) -> list[str]:
        """What is asked for, of which there can be one thing: its options."""
        wishes = {
            "--cost": self.cost,
            "--accuracy": self.accuracy,
            "--max-drop": self.max_drop,
            "--latency-ms": self.latency_ms,
        }
        return [name for name, wish in wishes.items() if wish is not None]


def read_latency(path: Path | None, batch_size: int | None) -> "tuple[LatencyTable | None, int]":
    """What was measured, if a file is given, and for batches of which size; a word where it was another machine."""
    from offramp.runtime import LatencyTable
    from offramp.runtime.measuring import machine

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


def warn_of_busy(table: "LatencyTable") -> None:
    """Say so where what was measured does not add up."""
    if table.doubtful is not None:
        warn(
            f"the machine was busy: stages add up to {table.doubtful:.2f} of the full network's time; measure again "
            "when it is quiet."
        )


def timed(frontier: "Frontier", latency: Path | None, batch_size: int | None) -> "Frontier":
    """The frontier with times for costs, where a file has them."""
    table, times_of = read_latency(latency, batch_size)
    return frontier if table is None else frontier.timed(table, batch_size=times_of)


def warn_of_backend(frontier: "Frontier", backend: str) -> None:
    """Say so where times, if costs are times, are those of another backend than is to compute."""
    if frontier.full_ms is None:
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


def asking(verb: Callable[..., None]) -> Callable[..., None]:
    """A verb whose parameter `wish` is an option for each field of a `Wish`.

    Args:
        verb: A function with a parameter `wish`.

    Example:
        >>> @asking
        ... def tell(wish: Wish) -> None:
        ...     print(wish.cost)
        >>> tell(cost=0.6, policy=None)
        0.6
    """
    names = [one.name for one in fields(Wish)]

    @wraps(verb)
    def asked(**given: Any) -> None:
        verb(wish=Wish(**{name: given.pop(name) for name in names if name in given}), **given)

    told: list[Parameter] = []
    for name, own in signature(verb).parameters.items():
        options = signature(Wish).parameters.values() if name == "wish" else (own,)
        told += [one.replace(kind=Parameter.KEYWORD_ONLY) for one in options]
    asked.__signature__ = Signature(told)  # type: ignore[attr-defined]
    asked.__annotations__ = {one.name: one.annotation for one in told}
    return asked


def choose(frontier: "Frontier", wish: Wish, artifact: Path, *, budget: float | None = None) -> "EarlyExitNetwork":
    """Return the network at the point asked for; where nothing is asked for, at the default's, and say which that is.

    Args:
        frontier: What to choose from.
        wish: What is asked for.
        artifact: Where the frontier was loaded from.
        budget: The share to spend on average, where the point is to move: the network is then at that cost.
    """
    from offramp.cli.networks import trusting

    asked = wish.asked
    if budget is not None:
        if asked:
            raise InputError(f"expected {asked[0]} or --budget, got both; leave one")
        check_share("--budget", budget)
        asked, wish = ["--budget"], replace(wish, cost=budget)
    if len(asked) > 1:
        raise InputError(
            f"expected --cost or --accuracy or --max-drop or --latency-ms, got {' and '.join(asked)}; leave one"
        )
    for name, value in (("--confidence", wish.confidence), ("--loss", wish.loss)):
        if value is not None and wish.max_drop is None:
            raise InputError(f"expected --max-drop with {name}, got only {name} {value}; add it, or leave {name} out")
    if wish.latency_ms is not None and frontier.full_ms is None:
        raise InputError(
            "expected --latency FILE with --latency-ms, got none; offramp inspect --measure --out FILE makes one, for "
            "evaluate, predict, or fit"
        )
    check_share("--cost", wish.cost)
    check_share("--accuracy", wish.accuracy)
    check_share("--max-drop", wish.max_drop, most=0.99, such=0.01)
    check_share("--confidence", wish.confidence, most=0.9999999, such=0.95)
    try:
        with warnings.catch_warnings(record=True) as cautions:
            warnings.simplefilter("always")
            network = frontier.choose(**vars(wish))
    except BudgetError as error:
        raise BudgetError(f"{error}. More points: offramp inspect {artifact}{trusting(frontier)}") from error
    for caution in cautions:
        warn(f"{artifact.name}: {caution.message}")
    if not asked and network.point.guarantee is not None:
        say(f"{artifact.name}: took the cheapest point with this guarantee: {network.point.guarantee}")
    return network


def warn_of_full_sets(frontier: "Frontier") -> None:
    """Say how many classes stand in every prediction set, where sets are by class and samples of one are too few."""
    points = frontier.points[frontier.preferred]
    for miscoverage, thresholds in sorted(points[-1].conformal_thresholds.items()):
        if thresholds.ndim == 2 and (unknown := int(thresholds.isinf().any(0).sum())):
            warn(
                f"{unknown} of {thresholds.shape[1]} classes are in every prediction set of miscoverage "
                f"{miscoverage:g} at some exit: too few samples of them to calibrate with; "
                f"{math.ceil(1 / miscoverage) - 1} a class are the least"
            )
