"""Answers of an early-exit model."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from offramp.errors import MissingExtraError

if TYPE_CHECKING:
    import pandas

__all__ = ["Answer"]


@dataclass(frozen=True, repr=False)
class Answer:
    """Answers to N inputs, in their order."""

    labels: Tensor
    """`N` predicted classes."""
    probabilities: Tensor
    """`N x K` calibrated probabilities."""
    exits: Tensor
    """`N` exits at which the samples left, 0-based."""
    relative_cost: Tensor
    """`N` costs as shares of the full network's cost."""
    prediction_sets: Mapping[float, Tensor]
    """`N x K` booleans per miscoverage: the set holds the true class with probability 1 - miscoverage."""
    classes: tuple[str, ...] = ()
    """`K` class names; empty if the model does not know them."""

    @property
    def names(self) -> tuple[str, ...]:
        """`N` names of the predicted classes; empty if the model does not know its classes."""
        return tuple(self.classes[label] for label in self.labels.tolist()) if self.classes else ()

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        exits = ", ".join(f"{count} at exit {exit}" for exit, count in enumerate(torch.bincount(self.exits)) if count)
        first = [str(label) for label in (self.names or self.labels.tolist())[:3]]
        more = ", ..." if len(self) > len(first) else ""
        cost = f"relative cost {float(self.relative_cost.mean()):.3g}" if len(self) else "no samples"
        return f"Answer({len(self)} samples: {', '.join(first)}{more}; {exits or 'no exits'}; {cost})"

    def to_dicts(self) -> list[dict[str, Any]]:
        """Return one dictionary of plain Python values per sample.

        Example:
            >>> columns = torch.tensor([1]), torch.tensor([[0.25, 0.75]]), torch.tensor([0]), torch.tensor([0.5])
            >>> answer = Answer(*columns, prediction_sets={}, classes=("no", "yes"))
            >>> answer.to_dicts()
            [{'label': 'yes', 'confidence': 0.75, 'exit': 0, 'relative_cost': 0.5, 'prediction_sets': {}}]
        """
        names: Sequence[Any] = self.classes or range(self.probabilities.shape[1])
        confidences = self.probabilities.gather(1, self.labels[:, None])[:, 0].tolist()
        columns = zip(self.labels.tolist(), confidences, self.exits.tolist(), self.relative_cost.tolist(), strict=True)
        return [
            {
                "label": names[label],
                "confidence": confidence,
                "exit": exit,
                "relative_cost": cost,
                "prediction_sets": {
                    miscoverage: [names[member] for member in sets[row].nonzero()[:, 0].tolist()]
                    for miscoverage, sets in self.prediction_sets.items()
                },
            }
            for row, (label, confidence, exit, cost) in enumerate(columns)
        ]

    def to_pandas(self) -> "pandas.DataFrame":
        """Return a data frame with one row per sample, the columns of `to_dicts` and one column per prediction set.

        Raises:
            MissingExtraError: If pandas is not installed.
        """
        try:
            import pandas
        except ImportError as error:
            raise MissingExtraError("to_pandas needs pandas", hint="pip install pandas, or use to_dicts()") from error
        rows = [
            {key: value for key, value in row.items() if key != "prediction_sets"}
            | {f"prediction_set_{miscoverage:g}": names for miscoverage, names in row["prediction_sets"].items()}
            for row in self.to_dicts()
        ]
        return pandas.DataFrame(rows)
