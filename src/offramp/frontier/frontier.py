"""The whole trade-off between cost and accuracy, and choosing a point on it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
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
from offramp.network import EarlyExitNetwork
from offramp.policy import OperatingPoint
from offramp.registry import unknown_name
from offramp.trunk import Pooling, Preprocessing, Trunk

__all__ = ["Frontier"]


AS_GOOD = 0.002
"""Accuracies on the tune split that differ by less are not told apart when a cost is asked for."""

MOST_COST = 10.0
"""Relative cost that can be asked for: a chain may cost more than its last network, but hardly ten times."""


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
    """What each policy costs."""
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

    @property
    def area(self) -> float:
        """Mean accuracy over all budgets on the tune split, by the preferred policy."""
        return area(self.points[self.preferred])

    @property
    def preferred(self) -> str:
        """The policy with the larger area under its curve on the tune split; thresholds, the simpler, on a tie."""
        return max(sorted(self.points, reverse=True), key=lambda policy: area(self.points[policy]))

    def choose(
        self, *, cost: float | None = None, accuracy: float | None = None, policy: str | None = None
    ) -> EarlyExitNetwork:
        """The network at the point that meets a wish, as far as the tune split can tell.

        Args:
            cost: Spend this share of the bare network's compute: of the points that cost no more, the dearest that is
                within a fifth of a point of the most accurate. Where the frontier is flat, `accuracy` finds a cheaper
                point as good.
            accuracy: Reach this accuracy: the cheapest point that does.
            policy: The policy that decides; the one the tune split prefers if left out.

        Returns:
            The network, its point's tune figures in `network.point.promised`.
        """
        points = self.points[self.preferred] if policy is None else self._points_of(policy)
        if (cost is None) == (accuracy is None):
            raise InputError("choose takes either cost=... or accuracy=..., one of the two")
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
        affordable = [point for point in points if point.promised["cost"] <= cost]
        if not affordable:
            cheapest = points[0].promised["cost"]
            raise BudgetError(
                f"no point costs {cost:.4f} or less; the cheapest costs {cheapest:.4f}: ask for that or more, or fit "
                "smaller exits (settings=offramp.PAPER, or a smaller ladder_width)"
            )
        best = max(point.promised["accuracy"] for point in affordable)
        as_good = [point for point in affordable if point.promised["accuracy"] >= best - AS_GOOD]
        spends = as_good[-1].promised["cost"] - 2 * COST_STEP
        near = [point for point in as_good if point.promised["cost"] >= spends]
        return self._network(max(near, key=lambda point: point.promised["accuracy"]))

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
        seen = outcomes(self.bank.take(*used), source, self.temperatures[used])
        return [replace(point, classifier=used.index(point.classifier)) for point in points], seen

    def __str__(self) -> str:
        """A table of a dozen points of the preferred policy, and what is not in force."""
        from rich.console import Console  # not above: it takes longer to import than all of offramp
        from rich.table import Table

        table = Table()
        for column in ("cost", "accuracy", "change"):
            table.add_column(column, justify="right")
        points = self.points[self.preferred]
        for index in sorted({round(step * (len(points) - 1) / 11) for step in range(12)}):
            promised = points[index].promised
            change = 100 * (promised["accuracy"] - self.full_accuracy)
            table.add_row(f"{promised['cost']:.3f}", f"{100 * promised['accuracy']:.2f}", f"{change:+.2f}")
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

    def _network(self, point: OperatingPoint) -> EarlyExitNetwork:
        costs = self.costs[point.policy]
        bank = self.bank.take(point.classifier)
        return EarlyExitNetwork(self.trunk, self.preprocessing, self.pooling, bank, costs, point)
