"""The whole trade-off between cost and accuracy, and choosing a point on it."""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from numbers import Real
from typing import Any

from torch import Tensor

from offramp.backbone import Backbone, Pooling, Preprocessing
from offramp.cost import Costs
from offramp.errors import BudgetError, InputError, OfframpWarning
from offramp.exits import ExitBank
from offramp.features import BatchSource, IdSketch
from offramp.features.splits import without_overlap
from offramp.frontier.contributions import Contribution
from offramp.frontier.default import default_point
from offramp.frontier.guarantee import promise
from offramp.frontier.guessing import check_not_guessing
from offramp.frontier.metrics import Measured, measure
from offramp.frontier.outcomes import Outcomes, outcomes
from offramp.frontier.thinning import area
from offramp.frontier.timing import check_measured, mean_full, repriced, told_of
from offramp.network import EarlyExitNetwork
from offramp.policy import OperatingPoint
from offramp.registry import unknown_name
from offramp.runtime import Dial, LatencyTable
from offramp.uncertainty import RiskBound

__all__ = ["Frontier"]


MOST_COST = 10.0
"""Relative cost that can be asked for: a cascade may cost more than its last network, but hardly ten times."""


@dataclass(frozen=True)
class Frontier:
    """Operating points from cheap to accurate, all of one fit."""

    backbone: Backbone
    """The frozen network."""
    preprocessing: Preprocessing
    """From raw inputs to what the backbone takes."""
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
    """Gain on the tune split of each network of a cascade, then of each early exit; those not kept are not in force."""
    classes: tuple[str, ...] = ()
    """Names of the classes, in the order of their numbers; empty where nobody has named them."""
    provenance: Mapping[str, Any] = field(default_factory=dict)
    """How it was obtained: versions, settings, and the sizes of the splits."""
    splits: Mapping[str, IdSketch] = field(default_factory=dict)
    """Hashed ids of the samples of "fit", "tune", "calibrate" and, where there is one, "recalibrate"."""
    full_ms: float | None = None
    """Milliseconds the full network takes for a sample of the tune split, where costs are times; None: Mul-Adds."""
    embedded: bool = False
    """Whether it was loaded from an artifact with the network's weights: they are then saved again."""

    def __repr__(self) -> str:
        points = ", ".join(f"{len(points)} points by {policy}" for policy, points in self.points.items())
        return f"Frontier({self.backbone.name}, {self.backbone.num_exits} exits, {points})"

    @property
    def area(self) -> float:
        """Mean accuracy over all budgets on the tune split, by the preferred policy."""
        return area(self.points[self.preferred])

    @property
    def preferred(self) -> str:
        """The policy that decides unless another is named: the first that `fit` was asked for."""
        return next(iter(self.points))

    def timed(self, table: LatencyTable, *, batch_size: int = 1) -> "Frontier":
        """The same points by the time they take: costs are then shares of the full network's.

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
            >>> from offramp.backbone import CifarResNet
            >>> images, labels = torch.randn(60, 3, 32, 32), torch.arange(60) % 10
            >>> quick = JointSettings(exits="ladder", classifier_loss="fixed", warmup_epochs=1, epochs=1)
            >>> data = (images[:30], labels[:30]), (images[30:], labels[30:])
            >>> frontier = fit(CifarResNet(8), *data, settings=quick, anyway=True)
            >>> table = measure_latency(frontier.backbone, frontier.pooling, frontier.bank, images, batch_sizes=(1,))
            >>> network = frontier.timed(table).choose(latency_ms=1000)
        """
        check_measured(table, self.backbone)
        costs = {policy: table.costs(self.bank, policy=policy, batch_size=batch_size) for policy in self.points}
        points = {policy: repriced(listed, costs[policy]) for policy, listed in self.points.items()}
        full_ms = mean_full(self.points[self.preferred][0], costs[self.preferred])
        provenance = {**self.provenance, "latency": told_of(table)}
        return replace(self, costs=costs, points=points, full_ms=full_ms, provenance=provenance)

    def choose(
        self,
        *,
        cost: float | None = None,
        accuracy: float | None = None,
        latency_ms: float | None = None,
        max_drop: float | None = None,
        confidence: float | None = None,
        loss: str | None = None,
        bound: RiskBound | None = None,
        policy: str | None = None,
    ) -> EarlyExitNetwork:
        """The network at the point that meets a wish: `max_drop` with confidence, others as far as tune can tell.

        Where nothing is asked for: `max_drop=0.01` at 95 % confidence, if the calibrate split allows that; else the
        cheapest point that is not below the full network on the tune split, with a warning that says so.

        Args:
            cost: Spend at most this share of the full network's compute, of its time if the frontier is timed: the
                most accurate point that costs no more, the cheapest of equals. `predict(budget=...)` of any network
                of the same policy and classifiers picks the same point.
            accuracy: Reach this accuracy: the cheapest point that does.
            latency_ms: Take so many milliseconds a sample on average, of a frontier that is `timed`; as `cost` else.
            max_drop: Lose at most this to the full network, on average over new samples like those of the calibrate
                split: the cheapest point of which that can be promised; docs/guarantees.md.
            confidence: How sure the promise is; 0.95 if left out.
            loss: What is lost: "accuracy", if left out; "disagreement", the share of answers that change, which needs
                no labels and is no less; "brier", the Brier score.
            bound: How the calibrate split vouches for points: "ltt", Learn then Test, if left out, or "wsr", the bound
                of Waudby-Smith and Ramdas.
            policy: The policy that decides; `preferred` if left out.

        Returns:
            The network, its point's tune figures in `network.point.promised`, a promise in `network.point.guarantee`.

        Raises:
            BudgetError: If no point meets the wish; where samples are too few for a promise, with how many would do.

        Warns:
            UserWarning: If nothing is asked for and nothing can be guaranteed.
        """
        points = self.points[self.preferred] if policy is None else self._points_of(policy)
        wishes = {"cost": cost, "accuracy": accuracy, "latency_ms": latency_ms, "max_drop": max_drop}
        asked = {name: wish for name, wish in wishes.items() if wish is not None}
        if len(asked) > 1:
            raise InputError(
                f"choose takes cost=..., accuracy=..., latency_ms=... or max_drop=..., one of them, got "
                f"{' and '.join(asked)}; leave one"
            )
        for name, wish in asked.items():
            if not isinstance(wish, Real):
                raise InputError(f"expected {name} as a number, such as {name}=0.9, got {type(wish).__name__} {wish!r}")
        how = {"confidence": confidence, "loss": loss, "bound": bound}
        for name, value in how.items():
            if value is not None and max_drop is None:
                others = ", ".join(asked) or "nothing else"
                raise InputError(f"{name}={value!r} is for promises, got it with {others}; give max_drop=...")
        if not asked:
            return self._network(self._default(points))
        if max_drop is not None:
            sure = 0.95 if confidence is None else confidence
            return self._network(
                promise(points, max_drop=max_drop, confidence=sure, loss=loss or "accuracy", bound=bound or "ltt")
            )
        if latency_ms is not None:
            full_ms = self._full_ms(latency_ms)
            return self._network(Dial(points).within(latency_ms / full_ms, full=full_ms, unit=" ms"))
        if cost is not None and not 0 < cost <= MOST_COST:
            raise InputError(f"expected cost as a share of the network's, such as 0.6, got {cost}")
        if accuracy is not None:
            dial = Dial(points)
            point = dial.reaching(accuracy)
            if point is None:
                best = dial.settings[-1].promised["accuracy"]
                raise BudgetError(
                    f"no point reaches accuracy {accuracy:.4f} on the tune split; the best has {best:.4f}: "
                    "ask for that or less, as a share of 1"
                )
            return self._network(point)
        assert cost is not None
        return self._network(Dial(points).within(cost))

    def evaluate(
        self, source: BatchSource, points: Sequence[OperatingPoint], *, seed: int = 0, anyway: bool = False
    ) -> list[Measured]:
        """Measure operating points on samples that nothing was fitted on.

        Args:
            source: The samples' cached features.
            points: Which points, of any policy.
            seed: Of the bootstrap.
            anyway: Whether to go on, with a warning, where the full network is no better than guessing on the samples.

        Raises:
            GuessingError: The full network is not more often right than the commonest class comes, at 95 %, one-sided.
            SplitError: More than 1 % of the samples were used to make the frontier; up to that they are left out with
                an `OverlapWarning`.
        """
        if not hasattr(source, "in_order"):
            raise InputError(
                f"evaluate takes cached features, got {type(source).__name__}; extract(frontier.backbone, ...) the "
                "samples into a store and give StoreSource(store, pooling=...)"
            )
        source = without_overlap(source, self.splits, name="test")
        asked, seen = self.outcomes_at(points, source)
        check_not_guessing(seen.labels, seen.full, split="test", classes=self.classes, anyway=anyway)
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
        of = getattr(source, "backbone_fingerprint", None)
        if of is not None and of != self.backbone.fingerprint():
            raise InputError(
                f"these features are of another network than the frontier's '{self.backbone.name}'; extract them with "
                "frontier.backbone, which may have fewer networks than the cascade that was fitted"
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
        for column in (*(("ms",) if self.full_ms is not None else ()), "cost", "accuracy", "change"):
            table.add_column(column, justify="right")
        points = self.points[self.preferred]
        for index in sorted({round(step * (len(points) - 1) / 11) for step in range(12)}):
            promised = points[index].promised
            change = 100 * (promised["accuracy"] - self.full_accuracy)
            took = () if self.full_ms is None else (f"{self.full_ms * promised['cost']:.3g}",)
            table.add_row(*took, f"{promised['cost']:.3f}", f"{100 * promised['accuracy']:.2f}", f"{change:+.2f}")
        console = Console(width=100, color_system=None)
        with console.capture() as capture:
            console.print(table)
        shown = f"{table.row_count} of its {len(points)} points" if table.row_count < len(points) else "all points"
        title = f"frontier of {self.backbone.name} by {self.preferred}, {shown}, measured on the tune split\n"
        return title + capture.get() + "".join(f"{line}\n" for line in self._summary())

    def _summary(self) -> Iterator[str]:
        """What the networks of a cascade bring, and which exits are dropped, where there is something to say."""
        # The exits come last, the final one not.
        first = max(0, len(self.contributions) - (self.backbone.num_exits - 1))
        members, exits = self.contributions[:first], self.contributions[first:]
        if members:
            told = [
                f"{member.name} {100 * member.gain:+.2f}{'' if member.kept else ' (dropped)'}" for member in members
            ]
            yield f"members bring, in points of mean accuracy: {', '.join(told)}"
        dropped = [exit.name for exit in exits if not exit.kept]
        if dropped:
            yield f"exits dropped, as they bring nothing: {', '.join(dropped)}"

    def _points_of(self, policy: str) -> Sequence[OperatingPoint]:
        if policy not in self.points:
            raise unknown_name("policy of this frontier", policy, self.points)
        return self.points[policy]

    def _full_ms(self, latency_ms: float) -> float:
        """What the full network takes, where milliseconds can be asked for."""
        if self.full_ms is None:
            raise InputError(
                "latency_ms=... needs times, and the costs of this frontier are Mul-Adds; choose of frontier.timed("
                "table), with table = offramp.runtime.measure_latency(...) or LatencyTable.load(...)"
            )
        if not 0 < latency_ms < float("inf"):
            raise InputError(f"expected latency_ms as milliseconds above 0, such as 2.0, got {latency_ms}")
        return self.full_ms

    def _default(self, points: Sequence[OperatingPoint]) -> OperatingPoint:
        """The point of the default; a warning says what was taken where nothing can be guaranteed."""
        try:
            tune_samples = int(self.provenance["splits"]["tune"]["samples"])
        except (KeyError, TypeError, ValueError):  # made by hand, or from a file that says something else
            tune_samples = None
        default = default_point(points, full_accuracy=self.full_accuracy, tune_samples=tune_samples)
        if default.caution:
            warnings.warn(default.caution, OfframpWarning, stacklevel=3)
        return default.point

    def _network(self, point: OperatingPoint) -> EarlyExitNetwork:
        costs = self.costs[point.policy]
        bank = self.bank.take(point.classifier)
        # Budgets are within the point's own classifiers: a network that held all of them would compute all of them.
        # At the cost that the point was chosen for this is the same, as the best of all is the best of its own.
        alike = [other for other in self.points[point.policy] if other.classifier == point.classifier]
        return EarlyExitNetwork(
            self.backbone,
            self.preprocessing,
            self.pooling,
            bank,
            costs,
            point,
            Dial(alike).settings,
            classes=self.classes,
        )
