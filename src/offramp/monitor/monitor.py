"""Sequential tests of traffic against a reference, and what to do."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from offramp.errors import InputError
from offramp.monitor.bets import DisagreementBets, RankBets
from offramp.monitor.ranks import Ranks
from offramp.monitor.traffic import Traffic
from offramp.monitor.wealth import Wealth

__all__ = ["FEWEST", "Action", "Evidence", "Monitor", "Verdict"]

Action = Literal["wait", "keep", "recalibrate", "fall back"]

FEWEST = 100
"""Samples of traffic below which their silence says nothing: all but the greatest changes need more to be seen."""


@dataclass(frozen=True)
class Evidence:
    """What one test has found so far."""

    samples: int
    """Samples it has looked at: for disagreement, those that were run to full depth."""
    fortune: float
    """What betting against "nothing has changed" has made of 1, now."""
    most: float
    """The same, at its highest."""
    needed: float
    """The fortune that is an alarm; by chance it is ever reached with probability 1 / needed at most."""
    alarmed_at: int | None
    """After how many samples of traffic, shadowed or not, it was first reached."""


@dataclass(frozen=True)
class Verdict:
    """What to do, and why."""

    action: Action
    """Wait, as there is too little traffic to say anything; keep; re-calibrate without labels and begin with a new
    reference; or answer by the full network until then."""
    samples: int
    """Samples of traffic seen."""
    tests: Mapping[str, Evidence]
    """By name: exit, confidence, and disagreement where it is tested."""

    @property
    def alarms(self) -> tuple[str, ...]:
        """Names of the tests that have raised an alarm, the first one first."""
        found = [(test.alarmed_at, name) for name, test in self.tests.items() if test.alarmed_at is not None]
        return tuple(name for _, name in sorted(found))


class Monitor:
    r"""Watches traffic, and tells when it is no longer like the reference.

    Three tests, each of whose alarms is false with a probability of at most $\alpha / 3$ (of $\alpha / 2$ where two are
    made), *ever*, however long the traffic and however often one looks:

    * *exit*: whether samples leave where they left in the reference; of two that leave together, the less sure one
      counts as the later: chance would have to order them otherwise;
    * *confidence*: whether answers are as sure;
    * *disagreement*: whether the full network disagrees more often, on the samples that were run to full depth: more
      than promised where a promise is given, else more than in the reference.

    Exits and confidences are watched in both directions: traffic that looks easier has changed, too. What has changed
    is the traffic, or the network, or the way to it; no label has been seen, so how much accuracy it costs is not
    known. An alarm of the first two says that what was calibrated speaks of other samples: re-calibrate. One of the
    third says that answers are worse than calibrated: fall back.

    The tests are not put into one average, as bets within a test are: what one of them has seen of the past the others
    have not, so that the average would be no fair game; alarms at three times the level are valid whatever they share.

    Args:
        reference: Answers on samples that nothing was fitted on, such as those of the calibrate split.
        false_alarm: $\alpha$: while nothing changes, the probability of any alarm, ever, is at most this. With
            `promised`, an alarm comes from that, or the promise was broken from the start.
        promised: The most disagreement with the full network that was promised, as by a guarantee; one of confidence
            .95 is itself broken in up to 5 % of calibrate splits, and an alarm that says so is not a false one.
        seed: Of the draws between equal scores. The same traffic and seed give the same verdict.

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
        self, reference: Traffic, *, false_alarm: float = 0.01, promised: float | None = None, seed: int = 0
    ) -> None:
        if not 0 < false_alarm < 1:
            raise InputError(f"expected a false-alarm rate between 0 and 1, got {false_alarm}; 1 % is 0.01")
        if promised is not None and not 0 < promised < 1:
            raise InputError(f"expected a promised disagreement between 0 and 1, got {promised}; 2 % is 0.02")
        # Spawned: somebody's data may have been drawn from a generator of the same seed, and ties must not know of it.
        random = [np.random.default_rng(one) for one in np.random.SeedSequence(seed).spawn(3)]
        self._tests = {
            "exit": _Test(RankBets(both=True), Ranks(_lateness(reference), random=random[0])),
            "confidence": _Test(RankBets(both=True), Ranks(-reference.confidence, random=random[1])),
        }
        if promised is not None:
            self._tests["disagreement"] = _Test(DisagreementBets(promised), None)
        elif len(reference.shadowed):
            self._tests["disagreement"] = _Test(RankBets(both=False), Ranks(reference.shadowed, random=random[2]))
        self._needed = len(self._tests) / false_alarm
        self._seen = 0

    def update(self, traffic: Traffic) -> Verdict:
        """Look at traffic that came next, in order; in batches of any size, with the same result.

        Time and memory do not grow with the traffic before.

        Args:
            traffic: The answers.

        Returns:
            The verdict on all traffic so far.
        """
        shadowed = np.flatnonzero(~np.isnan(traffic.disagreement))
        if len(shadowed) and "disagreement" not in self._tests:
            raise InputError(
                "expected a reference with some samples that were run to full depth, as in this traffic, got none; "
                "make one with them, or name the disagreement that was promised"
            )
        everyone = np.arange(len(traffic))
        for name, scores, rows in (
            ("exit", _lateness(traffic), everyone),
            ("confidence", -traffic.confidence, everyone),
            ("disagreement", traffic.disagreement[shadowed], shadowed),
        ):
            if len(scores):
                self._tests[name].update(scores, self._seen + 1 + rows, self._needed)
        self._seen += len(traffic)
        return self.verdict

    @property
    def verdict(self) -> Verdict:
        """On all traffic so far."""
        tests = {name: test.evidence(self._needed) for name, test in self._tests.items()}
        action: Action = "keep" if self._seen >= FEWEST else "wait"
        if any(test.alarmed_at is not None for test in tests.values()):
            action = "recalibrate"
        if "disagreement" in tests and tests["disagreement"].alarmed_at is not None:
            action = "fall back"
        return Verdict(action, self._seen, tests)


def _lateness(traffic: Traffic) -> npt.NDArray[np.float64]:
    """Exits, and within an exit how unsure."""
    return traffic.exits - traffic.confidence


class _Test:
    """One fortune, and when it was first large enough; scores are ranked first, if there are ranks."""

    def __init__(self, bets: RankBets | DisagreementBets, ranks: Ranks | None) -> None:
        self._wealth, self._ranks = Wealth(bets), ranks
        self._samples, self._now, self._most = 0, 0.0, 0.0
        self._alarmed_at: int | None = None

    def update(self, scores: npt.NDArray[np.float64], counts: npt.NDArray[np.int64], needed: float) -> None:
        """Bet on scores; `counts` are the samples of traffic up to and with each."""
        fortunes = self._wealth.update(scores if self._ranks is None else self._ranks.update(scores))
        self._samples += len(scores)
        self._now, self._most = float(fortunes[-1]), max(self._most, float(fortunes.max()))
        if self._alarmed_at is None and self._most >= np.log(needed):
            self._alarmed_at = int(counts[int(np.argmax(fortunes >= np.log(needed)))])

    def evidence(self, needed: float) -> Evidence:
        # A fortune may be larger than any floating-point number; nobody needs to know how much.
        now, most = (float(np.exp(min(700.0, log))) for log in (self._now, self._most))
        return Evidence(self._samples, now, most, needed, self._alarmed_at)
