"""Conformal ranks of new scores among a reference and the scores after it."""

import numpy as np
import numpy.typing as npt

from offramp.errors import InputError

__all__ = ["Ranks"]

_MOST_EDGES = 1024
"""Largest number of bin edges: with a larger reference, all its scores still count, several per bin."""

_AT_ONCE = 128
"""Scores per block: pairs are compared within a block, sums over bins are computed once per block."""

_LEAST = 2.0**-53
"""Distance of ranks from 0 and 1: a bet on a rank of 0 would win without limit."""


class Ranks:
    r"""Conformal ranks of a stream of scores, among a reference and the stream so far, in bins.

    The reference's order statistics at fixed positions $k_1 < .. < k_B$ are the edges of B + 1 bins. Ties are broken at
    random. A new score may fall between any two of the earlier scores, and bin j holds
    $m_j = k_{j+1} - k_j + \#\{\text{scores of the stream in bin } j\}$ of these places. With $\theta$ uniform on [0, 1]
    and the new score in bin j,

    $$p = \frac{\sum_{i > j} m_i + \theta\, m_j}{\sum_i m_i}$$

    If reference and stream are exchangeable, every place is equally likely whatever the order of the earlier scores:
    bin j has probability $m_j / \sum_i m_i$, so the ranks are exactly independent and uniform on [0, 1], for any
    distribution of scores, size of the reference and number of bins. (In chapters 2 and 8 of [Vovk2022] every score is
    an edge.) Ranks among the reference alone would not be independent: they share the deviations of the reference.

    Memory and time of an update do not grow with the stream.

    Args:
        reference: `N` scores, at least one; larger is more unusual.
        random: Generator that breaks ties, independent of the scores.

    Example:
        >>> ranks = Ranks(np.arange(99.0), random=np.random.default_rng(0))
        >>> ranks.update(np.array([1000.0, -1.0])).round(1)  # larger than all, smaller than all
        array([0., 1.])
    """

    def __init__(self, reference: npt.NDArray[np.float64], *, random: np.random.Generator) -> None:
        if not len(reference):
            raise InputError(expected="reference samples to compare with", got="none", hint="1,000 or more are best")
        self._random = random
        # Complex numbers are sorted by their real parts, then by their imaginary parts: these break ties.
        ordered = np.sort(reference + 1j * random.random(len(reference)))
        positions = np.linspace(0, len(ordered) - 1, min(len(ordered), _MOST_EDGES)).astype(np.int64)
        self._edges = ordered[positions]
        self._places = np.diff(positions, prepend=-1, append=len(ordered))

    def update(self, scores: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Return the ranks in (0, 1) of the next `N` scores; small where a score is unusually large."""
        tie_breaks, within_bin = self._random.random((len(scores), 2)).T
        bins = np.searchsorted(self._edges, scores + 1j * tie_breaks)
        ranks = np.empty(len(scores))
        for start in range(0, len(scores), _AT_ONCE):
            rows = slice(start, start + _AT_ONCE)
            ranks[rows] = self._rank_bins(bins[rows], within_bin[rows])
        return ranks.clip(_LEAST, 1 - _LEAST)

    def _rank_bins(self, bins: npt.NDArray[np.int64], draws: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Rank one block of scores by their bins, and add them to the bins."""
        up_to = np.cumsum(self._places)
        others, own, earlier = bins[None, :], bins[:, None], np.tri(len(bins), k=-1, dtype=np.bool_)
        above = up_to[-1] - up_to[bins] + np.count_nonzero((others > own) & earlier, axis=1)
        inside = self._places[bins] + np.count_nonzero((others == own) & earlier, axis=1)
        np.add.at(self._places, bins, 1)
        ranks: npt.NDArray[np.float64] = (above + draws * inside) / (up_to[-1] + np.arange(len(bins)))
        return ranks
