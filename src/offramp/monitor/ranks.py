"""How unusual each new score is among a reference and all that came after it."""

import numpy as np
import numpy.typing as npt

from offramp.errors import InputError

__all__ = ["Ranks"]

_MOST_EDGES = 1024
"""Reference scores kept as edges of bins: a larger reference still counts in full, bins then hold several scores."""

_AT_ONCE = 128
"""Scores compared in pairs before they are added to their bins: more cost more pairs, fewer more sums over bins."""

_LEAST = 2.0**-53
"""Ranks stay this far inside (0, 1): a bet on 0 itself would win without limit."""


class Ranks:
    r"""Conformal ranks of a stream of scores, among a reference and the stream so far, in bins.

    The reference's order statistics at fixed positions $k_1 < .. < k_B$ are the edges of B + 1 bins. Equal scores are
    put in order by a draw each, made once. A new score may fall between any two of the scores known before, and bin j
    holds $m_j = k_{j+1} - k_j + \#\{\text{scores of the stream in bin } j\}$ of these places. With $\theta$ uniform on
    [0, 1] and the new score in bin j,

    $$p = \frac{\sum_{i > j} m_i + \theta\, m_j}{\sum_i m_i}$$

    If reference and stream are exchangeable, every place is equally likely whatever the order of the scores before:
    bin j is met with probability $m_j / \sum_i m_i$, so the ranks are independent and uniform on [0, 1], exactly,
    whatever the scores' distribution, however small the reference and however few the bins. (Chapters 2 and 8 of
    [Vovk2022] have every score as an edge.) Ranks among the reference alone would not be independent: all of them lean
    the way the reference happens to.

    Memory and time of an update do not grow with the stream.

    Args:
        reference: `N` scores, at least one; larger is more unusual.
        random: Draws between equal scores: independent of whatever the scores come from.

    Example:
        >>> ranks = Ranks(np.arange(99.0), random=np.random.default_rng(0))
        >>> ranks.update(np.array([1000.0, -1.0])).round(1)  # larger than all, smaller than all
        array([0., 1.])
    """

    def __init__(self, reference: npt.NDArray[np.float64], *, random: np.random.Generator) -> None:
        if not len(reference):
            raise InputError("expected reference samples to compare with, got none; 1,000 or more are best")
        self._random = random
        # Complex numbers are ordered by their real parts, and by their imaginary ones where these are equal.
        ordered = np.sort(reference + 1j * random.random(len(reference)))
        positions = np.linspace(0, len(ordered) - 1, min(len(ordered), _MOST_EDGES)).astype(np.int64)
        self._edges = ordered[positions]
        self._places = np.diff(positions, prepend=-1, append=len(ordered))

    def update(self, scores: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Rank scores that came next, in order.

        Args:
            scores: `N` scores.

        Returns:
            `N` ranks in (0, 1); small where a score is unusually large.
        """
        between_equals, within_bin = self._random.random((len(scores), 2)).T
        bins = np.searchsorted(self._edges, scores + 1j * between_equals)
        ranks = np.empty(len(scores))
        for start in range(0, len(scores), _AT_ONCE):
            rows = slice(start, start + _AT_ONCE)
            ranks[rows] = self._rank_bins(bins[rows], within_bin[rows])
        return ranks.clip(_LEAST, 1 - _LEAST)

    def _rank_bins(self, bins: npt.NDArray[np.int64], draws: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Rank a few scores by their bins and add them to these."""
        up_to = np.cumsum(self._places)
        others, own, earlier = bins[None, :], bins[:, None], np.tri(len(bins), k=-1, dtype=np.bool_)
        above = up_to[-1] - up_to[bins] + np.count_nonzero((others > own) & earlier, axis=1)
        inside = self._places[bins] + np.count_nonzero((others == own) & earlier, axis=1)
        np.add.at(self._places, bins, 1)
        ranks: npt.NDArray[np.float64] = (above + draws * inside) / (up_to[-1] + np.arange(len(bins)))
        return ranks
