"""What betting has earned: evidence that may be looked at after every sample."""

import numpy as np
import numpy.typing as npt

from offramp.monitor.bets import Bets

__all__ = ["Wealth"]

START_EVERY = 100
"""Samples between two times at which new stakes are placed: a change is met by fresh stakes within so many."""


class Wealth:
    r"""A fortune of 1, put on several bets at several starting times.

    Of the fortune, $w_k = 1 / ((k + 1)(k + 2))$ is staked after 100 k samples, k = 0, 1, ..., equally on the F bets,
    and stays there; what is not staked yet is kept:

    $$M_t = \sum_k w_k \frac{1}{F} \sum_f \prod_{i = 100 k + 1}^{t} f(x_i), \qquad \sum_k w_k = 1$$

    with an empty product being 1. If every bet pays at most 1 on average, whatever came before, so does the fortune,
    and by Ville's inequality it *ever* reaches $1 / \alpha$ with probability at most $\alpha$. Early stakes find what
    was different from the start; late ones have not lost by waiting when a change comes.

    Args:
        bets: What the fortune is put on.

    Example:
        >>> from offramp.monitor.bets import RankBets
        >>> wealth = Wealth(RankBets(both=True))
        >>> fortune = wealth.update(np.full(50, 0.02))[-1]  # fifty ranks among the least two in a hundred
        >>> bool(fortune > np.log(100))
        True
    """

    def __init__(self, bets: Bets) -> None:
        self._bets = bets
        self._log_stakes = np.full((bets.count, 1), -np.inf)
        self._log_kept = 0.0
        self._seen = 0

    def update(self, observed: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Bet on observations that came next, in order.

        Args:
            observed: `N` observations.

        Returns:
            `N` logarithms of the fortune, one after each observation.
        """
        grown = self._bets.log_factors(observed)
        fortunes = np.empty(len(observed))
        start = 0
        while start < len(observed):
            if self._seen % START_EVERY == 0:
                self._stake(self._seen // START_EVERY)
            stop = min(len(observed), start + START_EVERY - self._seen % START_EVERY)
            stakes = self._log_stakes + np.cumsum(grown[:, start:stop], axis=1)
            fortunes[start:stop] = np.logaddexp(np.logaddexp.reduce(stakes, axis=0), self._log_kept)
            self._log_stakes = stakes[:, -1:]
            self._seen += stop - start
            start = stop
        return fortunes

    def _stake(self, k: int) -> None:
        """Place the stakes of a starting time; 1 / (k + 2) of the fortune is left after it."""
        staked = -np.log((k + 1) * (k + 2) * self._bets.count)
        self._log_stakes = np.logaddexp(self._log_stakes, staked)
        self._log_kept = -np.log(k + 2)
