"""Answers of an early-exit model."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from offramp._notebook import html_table
from offramp.errors import MissingExtraError

if TYPE_CHECKING:
    import pandas

__all__ = ["NOT_FINITE", "Answer", "join_answers"]

NOT_FINITE = "no finite answer: check the input for NaN or infinite numbers"
"""Message of an input for which the network computes no numbers."""

ROWS = 10
"""Inputs that a notebook shows at most."""


@dataclass(frozen=True, repr=False)
class Answer:
    """Answers to N inputs, in their order."""

    labels: Tensor
    """`N` predicted classes; -1 for a bad input."""
    probabilities: Tensor
    """`N x K` calibrated probabilities; not finite for a bad input."""
    exits: Tensor
    """`N` exits at which the samples left, 0-based; -1 for an input that the network could not take."""
    relative_cost: Tensor
    """`N` costs as shares of the full network's cost."""
    prediction_sets: Mapping[float, Tensor]
    """`N x K` booleans per miscoverage: the set holds the true class with probability 1 - miscoverage."""
    classes: tuple[str, ...] = ()
    """`K` class names; empty if the model does not know them."""
    errors: Mapping[int, str] = field(default_factory=dict)
    """Messages of bad inputs, by their indices: `predict(..., on_error="mark")`."""

    @property
    def names(self) -> tuple[str, ...]:
        """`N` names of the predicted classes, "" for a bad input; empty if the model does not know its classes."""
        return tuple("" if label < 0 else self.classes[label] for label in self.labels.tolist()) if self.classes else ()

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> "Answer":
        """Return the answer to one input."""
        index = range(len(self))[index]
        own = slice(index, index + 1)
        return Answer(
            self.labels[own],
            self.probabilities[own],
            self.exits[own],
            self.relative_cost[own],
            {miscoverage: sets[own] for miscoverage, sets in self.prediction_sets.items()},
            self.classes,
            {0: self.errors[index]} if index in self.errors else {},
        )

    def __repr__(self) -> str:
        left = torch.bincount(self.exits[self.exits >= 0])
        exits = ", ".join(f"{count} at exit {exit}" for exit, count in enumerate(left) if count)
        first = [str(label) for label in (self.names or self.labels.tolist())[:3]]
        more = ", ..." if len(self) > len(first) else ""
        cost = f"relative cost {float(self.relative_cost.mean()):.3g}" if len(self) else "no samples"
        bad = f"; {len(self.errors)} bad" if self.errors else ""
        return f"Answer({len(self)} samples: {', '.join(first)}{more}; {exits or 'no exits'}; {cost}{bad})"

    def _repr_html_(self) -> str:
        columns = ("input", "label", "confidence", "exit", "relative cost")
        rows = [
            (str(index), row["error"], "", "", "")
            if "error" in row
            else (
                str(index),
                str(row["label"]),
                f"{row['confidence']:.3f}",
                str(row["exit"]),
                f"{row['relative_cost']:.3f}",
            )
            for index in range(min(len(self), ROWS))
            for row in self[index].to_dicts()
        ]
        notes = [f"{len(self) - ROWS:,} more"] if len(self) > ROWS else []
        return html_table(repr(self), columns, rows, notes)

    def to_dicts(self) -> list[dict[str, Any]]:
        """Return one dictionary of plain Python values per sample; that of a bad input has its "error" alone.

        Example:
            >>> columns = torch.tensor([1]), torch.tensor([[0.25, 0.75]]), torch.tensor([0]), torch.tensor([0.5])
            >>> answer = Answer(*columns, prediction_sets={}, classes=("no", "yes"))
            >>> answer.to_dicts()
            [{'label': 'yes', 'confidence': 0.75, 'exit': 0, 'relative_cost': 0.5, 'prediction_sets': {}}]
        """
        names: Sequence[Any] = self.classes or range(self.probabilities.shape[1])
        confidences = self.probabilities.gather(1, self.labels[:, None].clamp_min(0))[:, 0].tolist()
        columns = zip(self.labels.tolist(), confidences, self.exits.tolist(), self.relative_cost.tolist(), strict=True)
        return [
            {"error": self.errors[row]}
            if row in self.errors
            else {
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

    def to_pipeline(self) -> list[dict[str, Any]]:
        """Return what a text or image classification pipeline of transformers returns: labels and scores.

        Classes without names are called LABEL_0, LABEL_1, ... as they are there. A bad input has its "error" alone.

        Example:
            >>> columns = torch.tensor([1]), torch.tensor([[0.25, 0.75]]), torch.tensor([0]), torch.tensor([0.5])
            >>> Answer(*columns, prediction_sets={}, classes=("no", "yes")).to_pipeline()
            [{'label': 'yes', 'score': 0.75}]
        """
        return [
            row
            if "error" in row
            else {"label": row["label"] if self.classes else f"LABEL_{row['label']}", "score": row["confidence"]}
            for row in self.to_dicts()
        ]

    def to_pandas(self) -> "pandas.DataFrame":
        """Return a data frame with one row per sample, the columns of `to_dicts`, one per prediction set, and `error`.

        The columns are the same whatever the inputs are. A bad input has the label "" (-1 where classes have no names),
        no confidence (NaN), exit -1 if the network could not take it, an empty set, and its message in `error`, which
        is "" for the others.

        Raises:
            MissingExtraError: If pandas is not installed.
        """
        try:
            import pandas
        except ImportError as error:
            raise MissingExtraError("to_pandas needs pandas", hint="pip install pandas, or use to_dicts()") from error
        names: Sequence[Any] = self.classes or range(self.probabilities.shape[1])
        confidences = self.probabilities.double().gather(1, self.labels[:, None].clamp_min(0))[:, 0]
        confidences[list(self.errors)] = torch.nan
        columns = {
            "label": pandas.Series(self.names, dtype=object) if self.classes else self.labels.numpy(),
            "confidence": confidences.numpy(),
            "exit": self.exits.numpy(),
            "relative_cost": self.relative_cost.double().numpy(),
        }
        for miscoverage, sets in self.prediction_sets.items():
            members = [[names[member] for member in row.nonzero()[:, 0].tolist()] for row in sets]
            columns[f"prediction_set_{miscoverage:g}"] = pandas.Series(members, dtype=object)
        errors = [self.errors.get(row, "") for row in range(len(self))]
        return pandas.DataFrame(columns | {"error": pandas.Series(errors, dtype=object)})


def join_answers(answers: Sequence[Answer]) -> Answer:
    """Join answers of one model, in their order.

    Args:
        answers: At least one; prediction sets of miscoverages that all of them have are kept.
    """
    if len(answers) == 1:
        return answers[0]
    starts = accumulate(map(len, answers), initial=0)
    shared = [level for level in answers[0].prediction_sets if all(level in part.prediction_sets for part in answers)]
    return Answer(
        labels=torch.cat([part.labels for part in answers]),
        probabilities=torch.cat([part.probabilities for part in answers]),
        exits=torch.cat([part.exits for part in answers]),
        relative_cost=torch.cat([part.relative_cost for part in answers]),
        prediction_sets={level: torch.cat([part.prediction_sets[level] for part in answers]) for level in shared},
        classes=answers[0].classes,
        errors={
            start + row: text for start, part in zip(starts, answers, strict=False) for row, text in part.errors.items()
        },
    )
