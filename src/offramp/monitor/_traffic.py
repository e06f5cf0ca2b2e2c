"""Answers to inputs without labels, as a monitor sees them."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from offramp.errors import InputError

__all__ = ["Summary", "Traffic", "summarise"]

ROUNDING = 1e-5
"""Excess over 1 that the largest probability of a softmax in single precision may have; it is clipped to 1."""


@dataclass(frozen=True, init=False, eq=False)
class Traffic:
    """N answers in the order they were given: exits, confidences, and disagreements with the full network.

    Args:
        exits: `N` exits the samples left at, 0-based.
        confidence: `N` largest probabilities.
        disagreement: `N` numbers: 1 where the full network answers otherwise, 0 where it answers the same, NaN for
            samples that were not run to full depth. By default all NaN.

    Example:
        >>> traffic = Traffic([0, 2, 0], [0.99, 0.61, 0.97], [np.nan, 1, np.nan])
        >>> len(traffic), traffic.shadowed
        (3, array([1.]))
        >>> Traffic([0, 1], [0.9, 0.8]).join(traffic).exits
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
                expected="as many exits as confidences and disagreements",
                got=f"{len(left)}, {len(sure)} and {len(differs)}",
                hint="give NaN for the disagreement of a sample that was not run to full depth",
            )
        _check(left, np.isfinite(left) & (left >= 0) & (left == np.floor(left)), "exits as numbers 0, 1, ...")
        _check(
            sure, (sure >= 0) & (sure <= 1 + ROUNDING), "confidences between 0 and 1", "pass the largest probability"
        )
        _check(
            differs,
            (differs == 0) | (differs == 1) | np.isnan(differs),
            "disagreements 0, 1 or NaN",
            "pass 1 where the full network's label is another one",
        )
        columns = {"exits": left.astype(np.int64), "confidence": sure.clip(max=1), "disagreement": differs}
        for name, values in columns.items():
            object.__setattr__(self, name, values)

    def __len__(self) -> int:
        return len(self.exits)

    def __getitem__(self, rows: slice) -> "Traffic":
        return Traffic(self.exits[rows], self.confidence[rows], self.disagreement[rows])

    @property
    def shadowed(self) -> npt.NDArray[np.float64]:
        """Disagreements, 1 or 0, of the samples that were run to full depth, in order."""
        return self.disagreement[~np.isnan(self.disagreement)]

    def join(self, later: "Traffic") -> "Traffic":
        """Return this traffic followed by later traffic."""
        pairs = zip(self._columns(), later._columns(), strict=True)
        return Traffic(*(np.concatenate(pair) for pair in pairs))

    def _columns(self) -> tuple[npt.NDArray[Any], ...]:
        return self.exits, self.confidence, self.disagreement


@dataclass(frozen=True)
class Summary:
    """Traffic in a few numbers; shares and means are NaN where there are no samples."""

    samples: int
    """N."""
    exit_shares: tuple[float, ...]
    """`L` shares of the samples that left at each exit."""
    confidence: float
    """Mean of the largest probabilities."""
    shadowed: int
    """Number of samples that were run to full depth."""
    disagreement: float
    """Share of those on which the full network answers otherwise."""


def summarise(traffic: Traffic, *, num_exits: int) -> Summary:
    """Summarise traffic of a model with L exits.

    Example:
        >>> summarise(Traffic([0, 0, 2], [0.9, 0.8, 0.4], [0, np.nan, 1]), num_exits=3).disagreement
        0.5
    """
    shares = np.bincount(traffic.exits, minlength=num_exits) / len(traffic) if len(traffic) else [np.nan] * num_exits
    shadowed = traffic.shadowed
    return Summary(
        samples=len(traffic),
        exit_shares=tuple(float(share) for share in shares),
        confidence=float(traffic.confidence.mean()) if len(traffic) else float("nan"),
        shadowed=len(shadowed),
        disagreement=float(shadowed.mean()) if len(shadowed) else float("nan"),
    )


def _column(values: npt.ArrayLike, name: str) -> npt.NDArray[np.float64]:
    """Return values as a vector of float64, or refuse them."""
    expected = f"{name} as numbers, one per sample"
    try:
        column = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(expected=expected, got=f"{type(values).__name__}: {error}") from error
    if column.ndim != 1:
        raise InputError(expected=expected, got=f"an array of shape {column.shape}")
    return column


def _check(values: npt.NDArray[np.float64], valid: npt.NDArray[np.bool_], expected: str, hint: str = "") -> None:
    """Refuse the first value that is not valid."""
    if not valid.all():
        row = int(np.flatnonzero(~valid)[0])
        raise InputError(expected=expected, got=f"{values[row]:g} for sample {row}", hint=hint)
