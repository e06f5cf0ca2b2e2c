r"""Tests by betting: wealth that grows only if something has changed, valid after every sample.

A bet turns an observation into the factor by which a stake grows. A test is valid if the mean factor is at most 1 under
the null hypothesis, whatever came before; the choice of bets only decides how soon a change is detected.
"""

from abc import ABC, abstractmethod

import numpy as np
import numpy.typing as npt

__all__ = ["Bets", "DisagreementBets", "RankBets", "Wealth"]

START_EVERY = 100
"""Samples between two times at which new stakes are placed; a change meets new stakes within this many samples."""


class Bets(ABC):
    """F bets on each observation."""

    @property
    @abstractmethod
    def count(self) -> int:
        """F."""

    @abstractmethod
    def log_factors(self, observations: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Return the `F x N` logarithms of the factors by which stakes grow, for `N` observations."""


class RankBets(Bets):
    r"""Bets on ranks, which are uniform on [0, 1] while nothing has changed.

    $$f_a(p) = a\, p^{a - 1}, \qquad \int_0^1 f_a(p)\, dp = 1$$

    For a < 1 this is the power martingale's bet that small ranks become frequent, chapter 8 of [Vovk2022]; on 1 - p
    with a > 1 it is the bet that large ranks become rare.

    Args:
        both: Also bet on the opposite change, with p and 1 - p exchanged.

    Example:
        >>> bool((RankBets(both=False).log_factors(np.array([0.001])) > 0).all())
        True
    """

    MORE = (0.6, 0.85)
    """Exponents of the bets that unusual samples become frequent: few very unusual ones, or many slightly unusual."""
    FEWER = (1.25,)
    """Exponents of the bets that usual samples become rare."""

    def __init__(self, *, both: bool) -> None:
        self._both = both

    @property
    def count(self) -> int:
        """F."""
        return (len(self.MORE) + len(self.FEWER)) * (2 if self._both else 1)

    def log_factors(self, observations: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Return the `F x N` logarithms of the factors, for `N` ranks in (0, 1)."""
        small, large = np.log(observations), np.log1p(-observations)
        sides = [(self.MORE, small), (self.FEWER, large)]
        if self._both:
            sides += [(self.MORE, large), (self.FEWER, small)]
        return np.stack([np.log(a) + (a - 1) * logs for exponents, logs in sides for a in exponents])


class DisagreementBets(Bets):
    r"""Bets that the rate of disagreement exceeds a limit.

    $$f_q(x) = \left(\frac{q}{\varepsilon}\right)^{x} \left(\frac{1 - q}{1 - \varepsilon}\right)^{1 - x},
    \qquad q = \varepsilon^{\gamma} > \varepsilon$$

    the likelihood ratio of a rate q against the limit. Its mean is 1 at the limit and below 1 at any smaller rate.

    Args:
        max_disagreement: The limit $\varepsilon$, in (0, 1).

    Example:
        >>> logs = DisagreementBets(0.02).log_factors(np.array([1.0, 0.0]))
        >>> bool((logs[:, 0] > 0).all()), bool((logs[:, 1] < 0).all())
        (True, True)
    """

    POWERS = (0.9, 0.75, 0.5, 0.25)
    """The exponents gamma: for a limit of 2 %, the rates 3, 5, 14 and 38 %."""

    def __init__(self, max_disagreement: float) -> None:
        rates = max_disagreement ** np.array(self.POWERS)
        self._if_differs = np.log(rates / max_disagreement)[:, None]
        self._if_same = np.log((1 - rates) / (1 - max_disagreement))[:, None]

    @property
    def count(self) -> int:
        """F."""
        return len(self.POWERS)

    def log_factors(self, observations: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Return the `F x N` logarithms of the factors; an observation is 1 for disagreement, else 0."""
        return np.where(observations == 1, self._if_differs, self._if_same)


class Wealth:
    r"""A wealth of 1, staked on several bets at several starting times.

    The share $w_k = 1 / ((k + 1)(k + 2))$ is staked after 100 k samples, k = 0, 1, ..., equally on the F bets, and
    stays there; the rest is kept:

    $$M_t = \sum_k w_k \frac{1}{F} \sum_f \prod_{i = 100 k + 1}^{t} f(x_i), \qquad \sum_k w_k = 1$$

    with an empty product being 1. If every bet's mean factor is at most 1 whatever came before, so is that of the
    wealth, and by Ville's inequality it *ever* reaches $1 / \alpha$ with probability at most $\alpha$. Early stakes
    detect a change from the start; late stakes have lost nothing when a change comes late.

    Args:
        bets: The bets.

    Example:
        >>> wealth = Wealth(RankBets(both=True))
        >>> bool(wealth.update(np.full(50, 0.02))[-1] > np.log(100))  # fifty ranks of 0.02
        True
    """

    def __init__(self, bets: Bets) -> None:
        self._bets = bets
        self._log_stakes = np.full((bets.count, 1), -np.inf)
        self._log_kept = 0.0
        self._samples = 0

    def update(self, observations: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Bet on the next `N` observations, and return the logarithm of the wealth after each."""
        log_factors = self._bets.log_factors(observations)
        log_wealth = np.empty(len(observations))
        start = 0
        while start < len(observations):
            if self._samples % START_EVERY == 0:
                self._stake(self._samples // START_EVERY)
            stop = min(len(observations), start + START_EVERY - self._samples % START_EVERY)
            stakes = self._log_stakes + np.cumsum(log_factors[:, start:stop], axis=1)
            log_wealth[start:stop] = np.logaddexp(np.logaddexp.reduce(stakes, axis=0), self._log_kept)
            self._log_stakes = stakes[:, -1:]
            self._samples += stop - start
            start = stop
        return log_wealth

    def _stake(self, k: int) -> None:
        """Place the stakes of a starting time; 1 / (k + 2) of the initial wealth is kept."""
        stake = -np.log((k + 1) * (k + 2) * self._bets.count)
        self._log_stakes = np.logaddexp(self._log_stakes, stake)
        self._log_kept = -np.log(k + 2)
