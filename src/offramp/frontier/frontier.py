"""The whole trade-off between cost and accuracy, and choosing a point on it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import ROUND_CEILING, Context
from numbers import Real
from typing import Any

from torch import Tensor

from offramp.cost import Costs
from offramp.errors import BudgetError, InputError
from offramp.exits import ExitBank
from offramp.features import BatchSource
from offramp.frontier.candidates import COST_STEP, area
from offramp.frontier.contributions import Contribution
from offramp.frontier.metrics import Measured, measure
from offramp.frontier.outcomes import Outcomes, outcomes
from offramp.frontier.timing import check_measured, mean_bare, repriced, told_of
from offramp.network import EarlyExitNetwork
from offramp.policy import OperatingPoint
from offramp.registry import unknown_name
from offramp.runtime import LatencyTable
from offramp.trunk import Pooling, Preprocessing, Trunk

__all__ = ["Frontier"]


AS_GOOD = 0.002
"""Accuracies on the tune split that differ by less are not told apart when a cost is asked for."""

MOST_COST = 10.0
"""Relative cost that can be asked for: a chain may cost more than its last network, but hardly ten times."""


ROUNDING = 1e-9
"""By which a point may be dearer than what was asked for: a cost that was told, asked for again, is enough."""


@dataclass(frozen=True)
class Frontier:
    """Operating points from cheap to accurate, all of one fit."""

    trunk: Trunk
    """The frozen network."""
    preprocessing: Preprocessing
    """From raw inputs to what the trunk takes."""
    pooling: Pooling
    """What exits see of a stage."""
    bank: ExitBank
    """The trained exits."""
    costs: Mapping[str, Costs]
    """What each policy costs, in Mul-Adds or in milliseconds."""
    points: Mapping[str, Sequence[OperatingPoint]]
    """Each policy's points, in ascending order of their cost on the tune split."""
    temperatures: Tensor
    """`W x L` temperatures of the exits."""
    full_accuracy: float
    """The full network's accuracy on the tune split."""
    contributions: Sequence[Contribution] = ()
    """What each network of a chain, then each early exit, brings on the tune split; those not kept are not in force."""
    classes: tuple[str, ...] = ()
    """Names of the classes, in the order of their numbers; empty where nobody has named them."""
    provenance: Mapping[str, Any] = field(default_factory=dict)
    """How it was obtained: versions, settings, and the sizes and hashed ids of the splits."""
    bare_ms: float | None = None
    """Milliseconds the bare network takes for a sample of the tune split, where costs are times; None: Mul-Adds."""

    @property
    def area(self) -> float:
        """Mean accuracy over all budgets on the tune split, by the preferred policy."""
        return area(self.points[self.preferred])

    @property
    def preferred(self) -> str:
        """The policy with the larger area under its curve on the tune split; thresholds, the simpler, on a tie."""
        return max(sorted(self.points, reverse=True), key=lambda policy: area(self.points[policy]))

    def timed(self, table: LatencyTable, *, batch_size: int = 1) -> "Frontier":
        """The same points by the time they take: costs are then shares of the bare network's.

        Points that take longer than another and are less accurate are left out.

        Args:
            table: What was measured of this network and its exits: `runtime.measure_latency`.
            batch_size: How many samples come at a time; at 1 what a point promises is what a sample takes.

        Returns:
            A frontier to `choose(latency_ms=...)` of.

        Example:
            >>> import torch
            >>> from offramp.frontier import fit
            >>> from offramp.methods import JointSettings
            >>> from offramp.runtime import measure_latency
            >>> from offramp.trunk import CifarResNet
            >>> images, labels = torch.randn(60, 3, 32, 32), torch.arange(60) % 10
            >>> quick = JointSettings(exits="ladder", classifier_loss="fixed", warmup_epochs=1, epochs=1)
            >>> frontier = fit(CifarResNet(8), (images[:30], labels[:30]), (images[30:], labels[30:]), settings=quick)
            >>> table = measure_latency(frontier.trunk, frontier.pooling, frontier.bank, images[:1], batch_sizes=(1,))
            >>> network = frontier.timed(table).choose(latency_ms=1000)
        """
        check_measured(table, self.trunk)
        costs = {policy: table.costs(self.bank, policy=policy, batch_size=batch_size) for policy in self.costs}
        points = {policy: repriced(listed, costs[policy]) for policy, listed in self.points.items()}
        bare_ms = mean_bare(self.points[self.preferred][0], costs[self.preferred])
        provenance = {**self.provenance, "latency": told_of(table)}
        return replace(self, costs=costs, points=points, bare_ms=bare_ms, provenance=provenance)

    def choose(
        self,
        *,
        cost: float | None = None,
        accuracy: float | None = None,
        latency_ms: float | None = None,
        policy: str | None = None,
    ) -> EarlyExitNetwork:
        """The network at the point that meets a wish, as far as the tune split can tell.

        Args:
            cost: Spend this share of the bare network's compute, of its time if the frontier is timed: of the points
                that cost no more, the dearest that is within a fifth of a point of the most accurate. Where the
                frontier is flat, `accuracy` finds a cheaper point as good.
            accuracy: Reach this accuracy: the cheapest point that does.
            latency_ms: Take so many milliseconds a sample on average, of a frontier that is `timed`; as `cost` else.
            policy: The policy that decides; the one the tune split prefers if left out.

        Returns:
            The network, its point's tune figures in `network.point.promised`.
        """
        points = self.points[self.preferred] if policy is None else self._points_of(policy)
        wishes = {"cost": cost, "accuracy": accuracy, "latency_ms": latency_ms}
        asked = {name: wish for name, wish in wishes.items() if wish is not None}
        if len(asked) != 1:
            raise InputError("choose takes either cost=... or accuracy=... or latency_ms=..., one of them")
        for name, wish in asked.items():
            if not isinstance(wish, Real):
                raise InputError(f"expected {name} as a number, such as {name}=0.9, got {type(wish).__name__} {wish!r}")
        if latency_ms is not None:
            bare_ms = self._bare_ms(latency_ms)
            return self._network(_within(points, latency_ms / bare_ms, bare=bare_ms, unit=" ms"))
        if cost is not None and not 0 < cost <= MOST_COST:
            raise InputError(f"expected cost as a share of the network's, such as 0.6, got {cost}")
        if accuracy is not None:
            good = [point for point in points if point.promised["accuracy"] >= accuracy]
            if not good:
                best = max(point.promised["accuracy"] for point in points)
                raise BudgetError(
                    f"no point reaches accuracy {accuracy:.4f} on the tune split; the best has {best:.4f}: "
                    "ask for that or less, as a share of 1"
                )
            return self._network(good[0])
        assert cost is not None
        return self._network(_within(points, cost))

    def evaluate(self, source: BatchSource, points: Sequence[OperatingPoint], *, seed: int = 0) -> list[Measured]:
        """Measure operating points on samples that nothing was fitted on.

        Args:
            source: The samples' cached features.
            points: Which points, of any policy.
            seed: Of the bootstrap.
        """
        if not hasattr(source, "in_order"):
            raise InputError(
                f"evaluate takes cached features, got {type(source).__name__}; extract(frontier.trunk, ...) the "
                "samples into a store and give StoreSource(store, pooling=...)"
            )
        asked, seen = self.outcomes_at(points, source)
        return measure(asked, seen, [self.costs[point.policy] for point in points], seed=seed)

    def outcomes_at(
        self, points: Sequence[OperatingPoint], source: BatchSource
    ) -> tuple[list[OperatingPoint], Outcomes]:
        """What the exits say of samples, as far as some points ask for it.

        Args:
            points: Which points, of any policy.
            source: The samples' cached features.

        Returns:
            The points, each with the place of its classifiers in the outcomes; and the outcomes.
        """
        of = getattr(source, "trunk_fingerprint", None)
        if of is not None and of != self.trunk.fingerprint():
            raise InputError(
                f"these features are of another network than the frontier's '{self.trunk.name}'; extract them with "
                "frontier.trunk, which may have fewer networks than the chain that was fitted"
            )
        # Only the classifiers that the points ask: of sixteen sets, a threshold uses one.
        used = sorted({point.classifier for point in points})
        read = any("probabilities" in point.rule.reads for point in points)
        seen = outcomes(self.bank.take(*used), source, self.temperatures[used], probabilities=read)
        return [replace(point, classifier=used.index(point.classifier)) for point in points], seen

    def __str__(self) -> str:
        """A table of a dozen points of the preferred policy, and what is not in force."""
        from rich.console import Console  # not above: it takes longer to import than all of offramp
        from rich.table import Table

        table = Table()
        for column in (*(("ms",) if self.bare_ms is not None else ()), "cost", "accuracy", "change"):
            table.add_column(column, justify="right")
        points = self.points[self.preferred]
        for index in sorted({round(step * (len(points) - 1) / 11) for step in range(12)}):
            promised = points[index].promised
            change = 100 * (promised["accuracy"] - self.full_accuracy)
            took = () if self.bare_ms is None else (f"{self.bare_ms * promised['cost']:.3g}",)
            table.add_row(*took, f"{promised['cost']:.3f}", f"{100 * promised['accuracy']:.2f}", f"{change:+.2f}")
        console = Console(width=100, color_system=None)
        with console.capture() as capture:
            console.print(table)
        shown = f"{table.row_count} of its {len(points)} points" if table.row_count < len(points) else "all points"
        title = f"frontier of {self.trunk.name} by {self.preferred}, {shown}, measured on the tune split\n"
        return title + capture.get() + "".join(f"{line}\n" for line in self._summary())

    def _summary(self) -> Iterator[str]:
        """What the networks of a chain bring, and which exits are dropped, where there is something to say."""
        first = max(0, len(self.contributions) - (self.trunk.num_exits - 1))  # the exits come last, the final one not
        links, exits = self.contributions[:first], self.contributions[first:]
        if links:
            told = [f"{link.name} {100 * link.gain:+.2f}{'' if link.kept else ' (dropped)'}" for link in links]
            yield f"links bring, in points of mean accuracy: {', '.join(told)}"
        dropped = [exit.name for exit in exits if not exit.kept]
        if dropped:
            yield f"exits dropped, as they bring nothing: {', '.join(dropped)}"

    def _points_of(self, policy: str) -> Sequence[OperatingPoint]:
        if policy not in self.points:
            raise unknown_name("policy of this frontier", policy, self.points)
        return self.points[policy]

    def _bare_ms(self, latency_ms: float) -> float:
        """What the bare network takes, where milliseconds can be asked for."""
        if self.bare_ms is None:
            raise InputError(
                "latency_ms=... needs times, and the costs of this frontier are Mul-Adds; choose of frontier.timed("
                "table), with table = offramp.runtime.measure_latency(...) or LatencyTable.load(...)"
            )
        if not 0 < latency_ms < float("inf"):
            raise InputError(f"expected latency_ms as milliseconds above 0, such as 2.0, got {latency_ms}")
        return self.bare_ms

    def _network(self, point: OperatingPoint) -> EarlyExitNetwork:
        costs = self.costs[point.policy]
        bank = self.bank.take(point.classifier)
        return EarlyExitNetwork(self.trunk, self.preprocessing, self.pooling, bank, costs, point)


def _within(points: Sequence[OperatingPoint], cost: float, *, bare: float = 1.0, unit: str = "") -> OperatingPoint:
    """The point for a budget, which messages tell in the unit in which the bare network's cost is `bare`."""
    affordable = [point for point in points if point.promised["cost"] <= cost * (1 + ROUNDING)]
    if not affordable:
        least = _rounded_up(bare * points[0].promised["cost"])
        raise BudgetError(
            f"no point costs {bare * cost:.4g}{unit} or less; the cheapest costs {least:.4g}{unit}: ask for that or "
            "more, or fit smaller exits (settings=offramp.PAPER, or a smaller ladder_width)"
        )
    best = max(point.promised["accuracy"] for point in affordable)
    as_good = [point for point in affordable if point.promised["accuracy"] >= best - AS_GOOD]
    spends = as_good[-1].promised["cost"] - 2 * COST_STEP
    near = [point for point in as_good if point.promised["cost"] >= spends]
    return max(near, key=lambda point: point.promised["accuracy"])


def _rounded_up(cost: float) -> float:
    """To four digits, as messages show it: what they tell to ask for is then enough."""
    return float(Context(prec=4, rounding=ROUND_CEILING).create_decimal(repr(cost)))
