"""The table of a model's operating points."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from offramp._notebook import html_table
from offramp.cost._unit import CostUnit
from offramp.policy import OperatingPoint

__all__ = ["Contribution", "Frontier", "area"]

ROWS = 12
"""Points that a printed table shows at most."""


@dataclass(frozen=True)
class Contribution:
    """Gain from one exit, or from one member of a cascade."""

    name: str
    """Number of the exit (0-based), or name of the member."""
    gain: float
    """Mean accuracy over all budgets with it, minus without it, on the tune split."""
    kept: bool
    """True if it is in use."""


@dataclass(frozen=True, repr=False)
class Frontier:
    """Operating points of one policy, ascending in cost, measured on the tune split."""

    network: str
    """Name of the network."""
    num_exits: int
    """Exits of the network, used or not."""
    policy: str
    """Name of the policy that decides."""
    points: tuple[OperatingPoint, ...]
    """The operating points."""
    full_accuracy: float
    """Accuracy of the full network."""
    unit: CostUnit = CostUnit()
    """Unit of the costs."""
    contributions: tuple[Contribution, ...] = ()
    """Gain of each cascade member, then of each early exit."""

    def __len__(self) -> int:
        return len(self.points)

    def __iter__(self) -> Iterator[OperatingPoint]:
        return iter(self.points)

    def __repr__(self) -> str:
        return f"Frontier({self.network} by {self.policy}, {len(self)} points)"

    @cached_property
    def area(self) -> float:
        """Mean accuracy over all budgets."""
        return area(self.points)

    def to_dicts(self) -> list[dict[str, float]]:
        """Return one dictionary per point: cost, accuracy, change against the full network, and the cost in `unit`.

        The last is `latency_ms`, or `price` per sample if costs are money; there is none if they are Mul-Adds.
        """
        key = "price" if self.unit.is_money else "latency_ms"
        return [
            {
                "cost": point.tune_metrics["cost"],
                "accuracy": point.tune_metrics["accuracy"],
                "change": point.tune_metrics["accuracy"] - self.full_accuracy,
            }
            | ({} if self.unit.full is None else {key: self.unit.full * point.tune_metrics["cost"]})
            for point in self.points
        ]

    def __str__(self) -> str:
        # Not above: they take longer to import than all of offramp.
        from rich.console import Console
        from rich.table import Table

        columns, rows = self._cells()
        table = Table()
        for column in columns:
            table.add_column(column, justify="right")
        for row in rows:
            table.add_row(*row)
        # In a notebook rich would also show an empty output.
        console = Console(width=100, color_system=None, force_jupyter=False)
        with console.capture() as capture:
            console.print(table)
        return f"{self._title()}\n{capture.get()}" + "".join(f"{line}\n" for line in self._notes())

    def _repr_html_(self) -> str:
        columns, rows = self._cells()
        return html_table(self._title(), columns, rows, self._notes())

    def _rows(self) -> list[dict[str, float]]:
        """Return at most ROWS rows, evenly spread over the points."""
        rows = self.to_dicts()
        return [rows[place] for place in sorted({round(step * (len(rows) - 1) / (ROWS - 1)) for step in range(ROWS)})]

    def _cells(self) -> tuple[tuple[str, ...], list[list[str]]]:
        """Return the headers and rows of the table."""
        extra = (self.unit.heading,) if self.unit.heading else ()
        rows = [
            [
                *(self.unit.figure(row["cost"]) for _ in extra),
                f"{row['cost']:.3f}",
                f"{100 * row['accuracy']:.2f}",
                f"{100 * row['change']:+.2f}",
            ]
            for row in self._rows()
        ]
        return (*extra, "cost", "accuracy", "change"), rows

    def _title(self) -> str:
        shown = len(self._rows())
        count = f"{shown} of its {len(self)} points" if shown < len(self) else "all points"
        return f"frontier of {self.network} by {self.policy}, {count}, measured on the tune split"

    def _notes(self) -> Iterator[str]:
        """Yield the gains of cascade members and the exits that were dropped, if there are any."""
        first = max(0, len(self.contributions) - (self.num_exits - 1))  # exits come last, without the final one
        members, exits = self.contributions[:first], self.contributions[first:]
        if members:
            gains = [
                f"{member.name} {100 * member.gain:+.2f}{'' if member.kept else ' (dropped)'}" for member in members
            ]
            yield f"gain of each member, in points of mean accuracy: {', '.join(gains)}"
        dropped = [exit.name for exit in exits if not exit.kept]
        if dropped:
            yield f"exits dropped because they do not raise accuracy: {', '.join(dropped)}"


def area(points: Sequence[OperatingPoint]) -> float:
    """Return the mean accuracy over relative costs from 0.1 to 1, each with the best point within it.

    Args:
        points: Points with their tune figures.

    Returns:
        The mean; a cost below that of every point counts 0.
    """
    total = 0.0
    budgets = [0.1 + 0.01 * step for step in range(91)]
    for budget in budgets:
        total += max((p.tune_metrics["accuracy"] for p in points if p.tune_metrics["cost"] <= budget), default=0.0)
    return total / len(budgets)
