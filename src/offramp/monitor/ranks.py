"""How unusual each new score is among all that came before it."""

import math

import numpy as np
import numpy.typing as npt

from offramp.errors import InputError

__all__ = ["Ranks"]

_AT_ONCE = 128
"""Scores compared in pairs, at least: fewer cost as much, since the known ones are put in order after each turn."""

_LEAST = 2.0**-53
"""Ranks stay this far inside (0, 1): a bet on 0 itself would win without limit."""


class Ranks:
    r"""Smoothed conformal ranks of a stream of scores, among a reference and the stream so far.

    With the scores $s_1 .. s_n$ known before and $\theta$ uniform on [0, 1],

    $$p_{n+1} = \frac{\#\{i \le n: s_i > s_{n+1}\} + \theta\,(1 + \#\{i \le n: s_i = s_{n+1}\})}{n + 1}$$

    If reference and stream are exchangeable, the ranks are independent and uniform on [0, 1], exactly, whatever the
    scores' distribution and however small the reference: chapters 2 and 8 of [Vovk2022]. Ranks among the reference
    alone would not be independent: all of them lean the way the reference happens to.

    Every update puts all known scores in order again, which takes time proportional to their number: updates of a
    single score are slow, the slower the longer the stream; batches of some hundreds are not.

    Args:
        reference: `N` scores, at least one; larger is more unusual.
        random: Draws between equal scores: independent of whatever the scores come from.

    Example:
        >>> ranks = Ranks(np.arange(99.0), random=np.random.default_rng(0))
        >>> ranks.update(np.array([1000.0, -1.0])).round(2)  # larger than all, smaller than all
        array([0.01, 0.99])
    """

    def __init__(self, reference: npt.NDArray[np.float64], *, random: np.random.Generator) -> None:
        if not len(reference):
            raise InputError("expected reference samples to compare with, got none; 1,000 or more are best")
        self._known = np.sort(reference)
        self._random = random

    def update(self, scores: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """The ranks of scores that came next, in order.

        Args:
            scores: `N` scores.

        Returns:
            `N` ranks in (0, 1); small where a score is unusually large.
        """
        # Pairs grow with the square of a turn, ordering with what is known: a turn of its root balances the two.
        turn = max(_AT_ONCE, math.isqrt(len(self._known) + len(scores)))
        parts = [self._some(scores[start : start + turn]) for start in range(0, len(scores), turn)]
        return np.concatenate(parts) if parts else np.empty(0)

    def _some(self, scores: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        below, up_to = (np.searchsorted(self._known, scores, side=side) for side in ("left", "right"))
        others, own, earlier = scores[None, :], scores[:, None], np.tri(len(scores), k=-1, dtype=np.bool_)
        greater = len(self._known) - up_to + np.count_nonzero((others > own) & earlier, axis=1)
        equal = 1 + up_to - below + np.count_nonzero((others == own) & earlier, axis=1)
        count = len(self._known) + 1 + np.arange(len(scores))
        self._known = np.sort(np.concatenate([self._known, scores]), kind="stable")  # which merges what is in order
        ranks: npt.NDArray[np.float64] = (greater + self._random.random(len(scores)) * equal) / count
        return ranks.clip(_LEAST, 1 - _LEAST)
