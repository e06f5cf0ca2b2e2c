"""What is known of answered inputs without their labels."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from offramp.errors import InputError

__all__ = ["Traffic"]

ROUNDING = 1e-5
"""By which the largest probability of a softmax in single precision may be above 1; it is then taken as 1."""


@dataclass(frozen=True, init=False, eq=False)
class Traffic:
    """N answers in the order they were given: where the samples left, how sure, and whether the full network agrees.

    Args:
        exits: `N` exits the samples left at, 0-based.
        confidence: `N` largest probabilities.
        disagreement: `N` numbers for those that were also run to full depth: 1 where the full network answers
            otherwise, 0 where it answers the same; NaN for all others. Nobody was, if left out.

    Example:
        >>> traffic = Traffic([0, 2, 0], [0.99, 0.61, 0.97], [np.nan, 1, np.nan])
        >>> len(traffic), traffic.shadowed
        (3, array([1.]))
        >>> Traffic([0, 1], [0.9, 0.8]).joined(traffic).exits
        array([0, 1, 0, 2, 0])
    """

    exits: npt.NDArray[np.int64]
    """`N` exits."""
    confidence: npt.NDArray[np.float64]
    """`N` largest probabilities."""
    disagreement: npt.NDArray[np.float64]
    """`N` ones, zeros and, for samples not run to full depth, NaNs."""

    def __init__(
        self, exits: npt.ArrayLike, confidence: npt.ArrayLike, disagreement: npt.ArrayLike | None = None
    ) -> None:
        left, sure = _column(exits, "exits"), _column(confidence, "confidence")
        differs = np.full(len(left), np.nan) if disagreement is None else _column(disagreement, "disagreement")
        if not len(left) == len(sure) == len(differs):
            raise InputError(
                f"expected as many exits as confidences and disagreements, got {len(left)}, {len(sure)} and "
                f"{len(differs)}; give NaN for the disagreement of a sample that was not run to full depth"
            )
        if not ((left >= 0) & (left == np.floor(left))).all():
            raise InputError(f"expected exits as numbers 0, 1, ..., got {_first(left, (left < 0) | (left % 1 != 0))}")
        if not ((sure >= 0) & (sure <= 1 + ROUNDING)).all():
            wrong = _first(sure, ~((sure >= 0) & (sure <= 1 + ROUNDING)))
            raise InputError(f"expected confidences between 0 and 1, got {wrong}; pass the largest probability")
        sure = sure.clip(max=1)
        known = differs[~np.isnan(differs)]
        if not ((known == 0) | (known == 1)).all():
            raise InputError(
                f"expected disagreements 0, 1 or NaN, got {_first(known, (known != 0) & (known != 1))}; pass whether "
                "the full network's label is another one"
            )
        for name, values in (("exits", left.astype(np.int64)), ("confidence", sure), ("disagreement", differs)):
            object.__setattr__(self, name, values)

    def __len__(self) -> int:
        return len(self.exits)

    def __getitem__(self, rows: slice) -> "Traffic":
        return Traffic(self.exits[rows], self.confidence[rows], self.disagreement[rows])

    @property
    def shadowed(self) -> npt.NDArray[np.float64]:
        """Whether the full network disagrees, of those samples that it was asked about, in order."""
        return self.disagreement[~np.isnan(self.disagreement)]

    def joined(self, later: "Traffic") -> "Traffic":
        """This traffic, then what came later."""
        pairs = zip(self._columns(), later._columns(), strict=True)
        return Traffic(*(np.concatenate(pair) for pair in pairs))

    def _columns(self) -> tuple[npt.NDArray[Any], ...]:
        return self.exits, self.confidence, self.disagreement


def _column(values: npt.ArrayLike, name: str) -> npt.NDArray[np.float64]:
    try:
        found = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"expected {name} as numbers, one a sample, got {type(values).__name__}: {error}") from error
    if found.ndim != 1:
        raise InputError(f"expected {name} as one number a sample, got an array of shape {found.shape}")
    return found


def _first(values: npt.NDArray[np.float64], wrong: npt.NDArray[np.bool_]) -> str:
    row = int(np.flatnonzero(wrong | np.isnan(values))[0])
    return f"{values[row]:g} for sample {row}"
