"""Two networks with exits on the same samples."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from offramp.errors import InputError
from offramp.features import BatchSource
from offramp.frontier.frontier import Frontier
from offramp.frontier.outcomes import outcomes
from offramp.frontier.simulate import simulate
from offramp.policy import OperatingPoint
from offramp.trunk import Trunk
from offramp.uncertainty import bootstrap_interval, bootstrap_ratio_interval

__all__ = ["Comparison", "compare", "on_trunk"]


@dataclass(frozen=True)
class Comparison:
    """What changes from one network with exits to another, with 95 % bootstrap intervals over the samples."""

    samples: int
    """N."""
    accuracies: tuple[float, float]
    """Of each."""
    full_accuracies: tuple[float, float]
    """Of each one's network without exits."""
    relative_costs: tuple[float, float]
    """Of each, relative to its own network without exits."""
    gain: float
    """The second's accuracy minus the first's."""
    gain_interval: tuple[float, float]
    """Of the paired difference."""
    cost_ratio: float
    """Multiply-adds of the second over those of the first."""
    cost_ratio_interval: tuple[float, float]
    """Of that ratio."""
    agreement: float
    """Share of the samples that both answer alike."""
    newly_wrong: float
    """Share of the samples that the first answers rightly and the second does not."""


def compare(
    first: tuple[Frontier, OperatingPoint, BatchSource],
    second: tuple[Frontier, OperatingPoint, BatchSource],
    *,
    seed: int = 0,
) -> Comparison:
    """Measure two frontiers, each at a point of its own, on the same samples.

    Args:
        first: A frontier, a point of it, and the samples' features under its network.
        second: The same of another.
        seed: Of the bootstrap.

    Raises:
        InputError: If the samples are not the same, in the same order, or their features are of another network.
    """
    if first[2].ids().tolist() != second[2].ids().tolist():
        raise InputError("expected the features of the same samples in the same order, got others; extract them again")
    one, other = (_answers(*side, seed=seed) for side in (first, second))
    gains = other.correct.double() - one.correct.double()
    generator = torch.Generator().manual_seed(seed)
    lower, upper = bootstrap_interval(gains[:, None], generator=generator)
    cheapest, dearest = bootstrap_ratio_interval(other.spent[:, None], one.spent[:, None], generator=generator)
    return Comparison(
        samples=len(gains),
        accuracies=(float(one.correct.double().mean()), float(other.correct.double().mean())),
        full_accuracies=(float(one.full.double().mean()), float(other.full.double().mean())),
        relative_costs=(one.relative_cost, other.relative_cost),
        gain=float(gains.mean()),
        gain_interval=(float(lower), float(upper)),
        cost_ratio=float(other.spent.sum() / one.spent.sum()),
        cost_ratio_interval=(float(cheapest), float(dearest)),
        agreement=float((one.labels == other.labels).double().mean()),
        newly_wrong=float((one.correct & ~other.correct).double().mean()),
    )


def on_trunk(frontier: Frontier, trunk: Trunk) -> Frontier:
    """The frontier's exits on another network of the same shape: its own after an update.

    Temperatures, thresholds and promises remain those of the network they were fitted for. Inputs are prepared as the
    updated network says, unless the exits were fitted with a preparation that was not the network's own.

    Args:
        frontier: Whose exits.
        trunk: The updated network.
    """
    ours = (frontier.trunk.num_exits, frontier.trunk.num_classes, frontier.trunk.own_heads)
    theirs = (trunk.num_exits, trunk.num_classes, trunk.own_heads)
    if ours != theirs:
        raise InputError(
            f"expected a network of {ours[0]} stages and {ours[1]} classes with heads of its own after stages "
            f"{ours[2]}, as '{frontier.trunk.name}' has, got {theirs[0]}, {theirs[1]} and {theirs[2]}; fit exits for it"
        )
    own = frontier.preprocessing == frontier.trunk.preprocessing
    return replace(frontier, trunk=trunk, preprocessing=trunk.preprocessing if own else frontier.preprocessing)


@dataclass(frozen=True)
class _Answers:
    labels: Tensor
    correct: Tensor
    full: Tensor
    spent: Tensor
    relative_cost: float


def _answers(frontier: Frontier, point: OperatingPoint, source: BatchSource, *, seed: int) -> _Answers:
    if getattr(source, "trunk_fingerprint", None) not in (None, frontier.trunk.fingerprint()):
        raise InputError(
            f"these features are of another network than '{frontier.trunk.name}'; extract them with frontier.trunk"
        )
    if source.widths != frontier.bank.widths:
        raise InputError(
            f"expected features of {frontier.bank.widths} numbers a stage, got {source.widths}; another pooling, or "
            "another network: fit exits for it"
        )
    seen = outcomes(frontier.bank, source, frontier.temperatures)
    exits = simulate([point], seen, seed=seed)[0]
    labels = seen.predictions[point.classifier, torch.arange(len(exits)), exits]
    table = frontier.costs[point.policy].of(seen.sizes)
    spent = table.spent(exits, point.active).double()
    cost = float(table.relative_cost(exits, point.active))
    return _Answers(labels, labels == seen.labels, seen.full_correct, spent, cost)
