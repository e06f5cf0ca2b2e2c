r"""Bets that pay one on average while nothing has changed, and more where the bettor's guess comes true.

A bet turns an observation into a factor by which a stake grows. That its mean is at most 1 under what is to be doubted,
whatever came before, is all that a valid test needs; which bets are made decides only how soon a change is found.
"""

from abc import ABC, abstractmethod

import numpy as np
import numpy.typing as npt

__all__ = ["Bets", "DisagreementBets", "RankBets"]


class Bets(ABC):
    """F ways to bet on each observation."""

    @property
    @abstractmethod
    def count(self) -> int:
        """F."""

    @abstractmethod
    def log_factors(self, observed: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Logarithm of the factor that each stake grows by.

        Args:
            observed: `N` observations.

        Returns:
            `F x N`.
        """


class RankBets(Bets):
    r"""Bets on ranks, which are uniform on [0, 1] while nothing has changed.

    $$f_a(p) = a\, p^{a - 1}, \qquad \int_0^1 f_a(p)\, dp = 1$$

    With a < 1 it is the power martingale's bet that small ranks become frequent, chapter 8 of [Vovk2022]; put on 1 - p
    with a > 1, that large ranks become rare: unusual samples more, or usual ones fewer. Where both sides are bet on,
    the same is done with p and 1 - p exchanged.

    Args:
        both: Whether large ranks are bet on too: scores that become less unusual than they were.

    Example:
        >>> bets = RankBets(both=False)
        >>> bool((bets.log_factors(np.array([0.001])) > 0).all())
        True
        >>> ranks = (np.arange(10**6) + 0.5) / 10**6
        >>> np.exp(bets.log_factors(ranks)).mean(1).round(2)
        array([1., 1., 1.])
    """

    MORE = (0.6, 0.85)
    """Exponents of bets that unusual samples become frequent: few and striking ones, or many a little."""
    FEWER = (1.25,)
    """Exponents of bets that usual samples become rare."""

    def __init__(self, *, both: bool) -> None:
        self._both = both

    @property
    def count(self) -> int:
        """F."""
        return (len(self.MORE) + len(self.FEWER)) * (2 if self._both else 1)

    def log_factors(self, observed: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Logarithm of the factor that each stake grows by.

        Args:
            observed: `N` ranks in (0, 1).

        Returns:
            `F x N`.
        """
        small, large = np.log(observed), np.log1p(-observed)
        sides = [(self.MORE, small), (self.FEWER, large)]
        if self._both:
            sides += [(self.MORE, large), (self.FEWER, small)]
        return np.stack([np.log(a) + (a - 1) * logs for exponents, logs in sides for a in exponents])


class DisagreementBets(Bets):
    r"""Bets that disagreement is more frequent than promised.

    $$f_q(x) = \left(\frac{q}{\varepsilon}\right)^{x} \left(\frac{1 - q}{1 - \varepsilon}\right)^{1 - x},
    \qquad q = \varepsilon^{\gamma} > \varepsilon$$

    the likelihood ratio of a rate q against the promised one. Its mean is 1 at the promised rate and below 1 at any
    smaller one.

    Args:
        promised: The most disagreement that was promised, in (0, 1).

    Example:
        >>> grows = DisagreementBets(0.02).log_factors(np.array([1.0, 0.0]))
        >>> bool((grows[:, 0] > 0).all()), bool((grows[:, 1] < 0).all())
        (True, True)
    """

    POWERS = (0.9, 0.75, 0.5, 0.25)
    """Of a promise of 2 %, the rates 3, 5, 14 and 38 %."""

    def __init__(self, promised: float) -> None:
        rates = promised ** np.array(self.POWERS)
        self._if_differs = np.log(rates / promised)[:, None]
        self._if_same = np.log((1 - rates) / (1 - promised))[:, None]

    @property
    def count(self) -> int:
        """F."""
        return len(self.POWERS)

    def log_factors(self, observed: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Logarithm of the factor that each stake grows by.

        Args:
            observed: `N` numbers, 1 where the full network disagrees, else 0.

        Returns:
            `F x N`.
        """
        return np.where(observed == 1, self._if_differs, self._if_same)
