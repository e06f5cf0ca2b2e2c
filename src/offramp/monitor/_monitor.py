"""The monitor: sequential tests of traffic against a reference, and the action they suggest."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from offramp.errors import InputError
from offramp.monitor._betting import Bets, DisagreementBets, RankBets, Wealth
from offramp.monitor._ranks import Ranks
from offramp.monitor._traffic import Traffic

__all__ = ["MIN_SAMPLES", "Action", "Evidence", "Monitor", "Verdict"]

Action = Literal["wait", "keep", "recalibrate", "fall back"]

MIN_SAMPLES = 100
"""Samples of traffic below which the absence of an alarm means nothing: most changes need more to be detected."""


@dataclass(frozen=True)
class Evidence:
    """The state of one test."""

    samples: int
    """Samples tested: for disagreement, those that were run to full depth."""
    wealth: float
    """The current wealth of bets against "nothing has changed", from 1."""
    max_wealth: float
    """The largest wealth so far."""
    alarm_level: float
    """The wealth that raises an alarm; it is ever reached by chance with probability at most 1 / alarm_level."""
    alarmed_at: int | None
    """The number of samples of traffic, shadowed or not, at the first alarm; None without an alarm."""


@dataclass(frozen=True)
class Verdict:
    """The action to take, and the evidence for it."""

    action: Action
    """`wait`: too little traffic; `keep`; `recalibrate`, without labels, and start with a new reference; `fall back`:
    answer by the full network until then."""
    samples: int
    """Number of samples of traffic."""
    tests: Mapping[str, Evidence]
    """The evidence of each test: exit, confidence, and disagreement where it is tested."""

    @property
    def alarms(self) -> tuple[str, ...]:
        """Names of the tests that have raised an alarm, in the order of their alarms."""
        alarms = [(test.alarmed_at, name) for name, test in self.tests.items() if test.alarmed_at is not None]
        return tuple(name for _, name in sorted(alarms))


class Monitor:
    r"""A monitor of traffic that raises an alarm when it differs from the reference.

    Up to three tests, each with a probability of a false alarm, *ever*, of at most $\alpha$ over the number of tests:

    * *exit*: samples leave at other exits than in the reference; at the same exit, the less confident one counts as
      later, so that ties are not broken at random;
    * *confidence*: answers are more or less confident;
    * *disagreement*: on samples that were run to full depth, the full network disagrees more often than
      `max_disagreement`, if given, else more often than in the reference.

    Exits and confidences are tested in both directions. The traffic may have changed, or the network, or the path to
    it; without labels, the loss of accuracy is unknown. An alarm of the first two tests means that the calibration no
    longer applies: recalibrate. An alarm of the third means that answers are worse than calibrated: fall back.

    The wealth of the tests is not averaged: they see different parts of the past, so that the average would not be a
    fair game. Dividing $\alpha$ by the number of tests is valid whatever their dependence.

    Args:
        reference: Answers on samples that nothing was fitted on, such as those of the calibrate split.
        false_alarm: $\alpha$: while nothing changes, the probability of any alarm, ever, is at most this.
        max_disagreement: Limit of the disagreement with the full network, as in a guarantee. A guarantee with
            confidence 0.95 does not hold for up to 5 % of calibrate splits; an alarm that detects this is not a false
            one.
        seed: Seed of the tie breaks. The same traffic and seed give the same verdict.

    Example:
        >>> random = np.random.default_rng(0)
        >>> reference = Traffic(random.integers(0, 4, 1000), random.beta(9, 1, 1000))
        >>> monitor = Monitor(reference)
        >>> monitor.update(Traffic(random.integers(0, 4, 5000), random.beta(9, 1, 5000))).action
        'keep'
        >>> verdict = monitor.update(Traffic(random.integers(0, 4, 1000), random.beta(5, 1, 1000)))
        >>> verdict.action, verdict.alarms
        ('recalibrate', ('confidence',))
    """

    def __init__(
        self, reference: Traffic, *, false_alarm: float = 0.01, max_disagreement: float | None = None, seed: int = 0
    ) -> None:
        if not 0 < false_alarm < 1:
            raise InputError(expected="a false-alarm rate between 0 and 1", got=false_alarm, hint="1 % is 0.01")
        if max_disagreement is not None and not 0 < max_disagreement < 1:
            raise InputError(expected="max_disagreement between 0 and 1", got=max_disagreement, hint="2 % is 0.02")
        # Spawned, as the traffic itself may have been drawn from a generator of the same seed.
        random = [np.random.default_rng(child) for child in np.random.SeedSequence(seed).spawn(3)]
        self._tests = {
            "exit": _Test(RankBets(both=True), Ranks(_lateness(reference), random=random[0])),
            "confidence": _Test(RankBets(both=True), Ranks(-reference.confidence, random=random[1])),
        }
        if max_disagreement is not None:
            self._tests["disagreement"] = _Test(DisagreementBets(max_disagreement), None)
        elif len(reference.shadowed):
            self._tests["disagreement"] = _Test(RankBets(both=False), Ranks(reference.shadowed, random=random[2]))
        self._alarm_level = len(self._tests) / false_alarm
        self._samples = 0

    def update(self, traffic: Traffic) -> Verdict:
        """Test the next traffic, and return the verdict on all traffic so far.

        The size of batches does not change the result; time and memory do not grow with earlier traffic.
        """
        shadowed = np.flatnonzero(~np.isnan(traffic.disagreement))
        if len(shadowed) and "disagreement" not in self._tests:
            raise InputError(
                expected="a reference with shadowed samples, as in this traffic",
                got="a reference without",
                hint="make the reference with predict --shadow 1, or pass max_disagreement",
            )
        all_rows = np.arange(len(traffic))
        for name, scores, rows in (
            ("exit", _lateness(traffic), all_rows),
            ("confidence", -traffic.confidence, all_rows),
            ("disagreement", traffic.disagreement[shadowed], shadowed),
        ):
            if len(scores):
                self._tests[name].update(scores, self._samples + 1 + rows, self._alarm_level)
        self._samples += len(traffic)
        return self.verdict

    @property
    def verdict(self) -> Verdict:
        """The verdict on all traffic so far."""
        tests = {name: test.evidence(self._alarm_level) for name, test in self._tests.items()}
        action: Action = "keep" if self._samples >= MIN_SAMPLES else "wait"
        if any(test.alarmed_at is not None for test in tests.values()):
            action = "recalibrate"
        if "disagreement" in tests and tests["disagreement"].alarmed_at is not None:
            action = "fall back"
        return Verdict(action, self._samples, tests)


def _lateness(traffic: Traffic) -> npt.NDArray[np.float64]:
    """Return exit minus confidence: orders samples by exit, and within an exit by falling confidence."""
    return traffic.exits - traffic.confidence


class _Test:
    """One test: its wealth and its first alarm. Scores are ranked first, if there are ranks."""

    def __init__(self, bets: Bets, ranks: Ranks | None) -> None:
        self._wealth, self._ranks = Wealth(bets), ranks
        self._samples, self._log_wealth, self._log_max = 0, 0.0, 0.0
        self._alarmed_at: int | None = None

    def update(self, scores: npt.NDArray[np.float64], counts: npt.NDArray[np.int64], alarm_level: float) -> None:
        """Bet on scores; `counts` are the numbers of samples of traffic up to each."""
        log_wealth = self._wealth.update(scores if self._ranks is None else self._ranks.update(scores))
        self._samples += len(scores)
        self._log_wealth, self._log_max = float(log_wealth[-1]), max(self._log_max, float(log_wealth.max()))
        if self._alarmed_at is None and self._log_max >= np.log(alarm_level):
            self._alarmed_at = int(counts[int(np.argmax(log_wealth >= np.log(alarm_level)))])

    def evidence(self, alarm_level: float) -> Evidence:
        # Wealth may exceed the largest floating-point number; the logarithm is capped at 700.
        wealth, max_wealth = (float(np.exp(min(700.0, log))) for log in (self._log_wealth, self._log_max))
        return Evidence(self._samples, wealth, max_wealth, alarm_level, self._alarmed_at)
